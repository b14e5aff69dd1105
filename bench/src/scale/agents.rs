//! The agents and hosts of all nodes in one: they do at once what specs ask for. They write as `admin`, so that neither
//! thousands of tokens nor the webhook is what is measured; the reconciler has its own token.

use anyhow::Result;
use brupop_api::{BottlerocketShadow, State, names};
use brupop_testbed::nodes::new_boot_id;
use brupop_testbed::operator::NAMESPACE;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Gone when it is dropped.
pub struct Agents {
    _tasks: JoinSet<()>,
}

impl Agents {
    /// Watches all shadows, and does what their specs ask for.
    pub fn start(client: Client) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let shadows = Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE);
            let changes = watcher(shadows.clone(), watcher::Config::default()).default_backoff();
            let followed = changes.applied_objects().try_for_each(async |shadow| {
                if let Err(error) = follow(&client, &shadows, &shadow).await {
                    eprintln!("the agent of {}: {error:#}", shadow.name_any());
                }
                Ok(())
            });
            if let Err(error) = followed.await {
                eprintln!("the agents have ended: {error}");
            }
        });
        Self { _tasks: tasks }
    }
}

async fn follow(
    client: &Client,
    shadows: &Api<BottlerocketShadow>,
    shadow: &BottlerocketShadow,
) -> Result<()> {
    let (spec, status) = (&shadow.spec, shadow.status.clone().unwrap_or_default());
    if status.current_state == Some(spec.state) && status.attempt == spec.attempt {
        return Ok(());
    }
    let mut report = json!({"current_state": spec.state, "attempt": spec.attempt});
    match spec.state {
        State::Idle => report["reboot_claimed_boot_id"] = Value::Null,
        State::RebootedIntoUpdate => {
            let granted = spec.reboot_granted_boot_id.as_deref();
            if granted.is_none() || granted != status.boot_id.as_deref() {
                return Ok(());
            }
            let claim = json!({"status": {"reboot_claimed_boot_id": granted}});
            patch(shadows, &shadow.name_any(), &claim).await?;
            let (boot_id, version) = (new_boot_id()?, spec.version.clone().unwrap_or_default());
            let image = format!("Bottlerocket OS {version} (aws-k8s-1.29)");
            let booted = json!({"status": {"nodeInfo": {"bootID": boot_id, "osImage": image}}});
            let name = names::node_of_shadow(shadow.metadata.name.as_deref().unwrap_or_default());
            let nodes = Api::<Node>::all(client.clone());
            let params = PatchParams::default();
            nodes
                .patch_status(name.unwrap_or_default(), &params, &Patch::Strategic(booted))
                .await?;
            report["boot_id"] = json!(boot_id);
            report["current_version"] = json!(version);
            report["target_version"] = Value::Null;
        }
        _ => {}
    }
    patch(shadows, &shadow.name_any(), &json!({"status": report})).await
}

async fn patch(shadows: &Api<BottlerocketShadow>, name: &str, status: &Value) -> Result<()> {
    shadows
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}
