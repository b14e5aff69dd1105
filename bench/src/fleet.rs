//! The fleets that are measured: shipped programs, shipped settings but for what a benchmark has no time for.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use anyhow::Result;
use brupop_testbed::history::History;
use brupop_testbed::host::Durations;
use brupop_testbed::operator::{NAMESPACE, apply_elsewhere, apply_overlay, programs};
use brupop_testbed::{ControlPlane, Fleet, FleetOptions, Options};

/// Time for which a host is away for a reboot; all else that hosts do takes no time.
pub const REBOOT: Duration = Duration::from_secs(2);
/// Who asked for what, with the reports of agents.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived"], "omitManagedFields": true,
  "rules": [
    {"level": "Request", "verbs": ["patch"], "resources": [{"group": "brupop.bottlerocket.aws"}]},
    {"level": "Metadata"}
  ]
}"#;

/// Where reconciler and webhook run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the nodes that are updated, as in most clusters: then they are evicted like other pods.
    OnTheFleet,
    /// On nodes that are not opted in.
    Elsewhere,
}

impl Display for Place {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::OnTheFleet => "on these nodes",
            Self::Elsewhere => "on other nodes",
        })
    }
}

/// Returns how long things take on hosts that do everything but their reboots at once.
pub fn quick() -> Durations {
    Durations {
        reboot: REBOOT,
        ..Durations::default()
    }
}

/// Starts a fleet with this number of nodes, with hosts that take this long, and with these settings over the shipped ones.
/// Returns when every agent has reported, and all replicas of reconciler and webhook are ready.
pub async fn start(
    nodes: usize,
    place: Place,
    durations: Durations,
    settings: &[(&str, &str)],
) -> Result<Fleet> {
    let options = FleetOptions {
        nodes,
        env: settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        durations,
        control_plane: Options {
            audit_policy: Some(AUDIT_POLICY),
            ..Options::CLUSTER
        },
        ..FleetOptions::default()
    };
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        match place {
            Place::OnTheFleet => apply_overlay(control_plane, "default").await?,
            Place::Elsewhere => apply_elsewhere(control_plane).await?,
        };
        programs(env)
    };
    let mut fleet = Fleet::bare(&options, install).await?;
    fleet.watch();
    for number in 0..nodes {
        fleet.join(number, options.durations).await?;
    }
    let idle = |history: &History| {
        let of_fleet: Vec<_> = history.now().filter(|(_, seen)| seen.has_shadow).collect();
        of_fleet.len() == nodes
            && of_fleet
                .iter()
                .all(|(_, seen)| seen.is_idle() && seen.version.is_some())
    };
    fleet
        .until("every shadow is Idle and every host is known", idle)
        .await?;
    for workload in ["deployment/brupop-webhook", "deployment/brupop-reconciler"] {
        fleet
            .control_plane
            .until_rolled_out(NAMESPACE, workload)
            .await?;
    }
    Ok(fleet)
}

/// Awaits that every node that is opted in runs this version, Idle, with nothing left on it.
pub async fn until_updated(fleet: &Fleet, version: &str) -> Result<()> {
    let updated = |history: &History| {
        history
            .now()
            .all(|(_, seen)| !seen.has_shadow || seen.runs(version))
    };
    fleet
        .until(&format!("every node runs {version}"), updated)
        .await
}
