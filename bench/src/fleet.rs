//! The fleets that are measured: shipped programs, shipped settings but for what a benchmark has no time for.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::host::Durations;
use brupop_testbed::operator::{NAMESPACE, apply_elsewhere, apply_overlay, owned, programs};
use brupop_testbed::{ControlPlane, Fleet, FleetOptions, Options};
use serde_json::json;

/// Time for which a host is away for a reboot; all else that hosts do takes no time.
pub const REBOOT: Duration = Duration::from_secs(2);
/// Logs the metadata of requests, and the reports of agents in full.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived"], "omitManagedFields": true,
  "rules": [
    {"level": "Request", "verbs": ["patch"], "resources": [{"group": "brupop.bottlerocket.aws"}]},
    {"level": "Metadata"}
  ]
}"#;

/// Starts a fleet with this number of nodes, and with these settings over the shipped ones; reconciler and webhook run on
/// its nodes, or `elsewhere`. Returns when every agent has reported, and all replicas of reconciler and webhook are ready.
pub async fn start(nodes: usize, elsewhere: bool, settings: &[(&str, &str)]) -> Result<Fleet> {
    let options = FleetOptions {
        nodes,
        env: owned(settings),
        durations: Durations {
            reboot: REBOOT,
            ..Durations::default()
        },
        control_plane: Options {
            audit_policy: Some(AUDIT_POLICY),
            ..Options::CLUSTER
        },
        ..FleetOptions::default()
    };
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        if elsewhere {
            apply_elsewhere(control_plane).await?;
        } else {
            apply_overlay(control_plane, "default").await?;
        }
        programs(env)
    };
    let fleet = Fleet::start_with(&options, install).await?;
    for workload in ["webhook", "reconciler"] {
        fleet
            .until_rolled_out(NAMESPACE, &format!("brupop-{workload}"))
            .await?;
    }
    fleet
        .change(json!({"failureThreshold": {"unproven": 8}}))
        .await?;
    Ok(fleet)
}
