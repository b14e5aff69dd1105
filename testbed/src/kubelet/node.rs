//! The node's side of a host's power: what its Node object says, and what becomes of the pods on it.

use super::status;
use crate::host::HostPower;
use crate::mended::Mended;
use crate::nodes::{not_ready, patch_status, ready};
use anyhow::Result;
use brupop_api::names::COMPONENT_LABEL;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_millis(500);
/// Pods whose status is written at once.
const PARALLEL: usize = 8;

/// Whether a node's kubelet is there, and in which boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    pub up: bool,
    /// Counts boots that this stand-in has seen; pods that run in another one are dead.
    pub number: u32,
}

/// Keeps a Node in step with its host, until the host is dropped.
pub(crate) async fn follow(
    client: Client,
    node: String,
    mut power: watch::Receiver<HostPower>,
    boot: watch::Sender<Boot>,
) {
    let mut running: Option<String> = None;
    loop {
        let now = power.borrow_and_update().clone();
        // Processes on the host die before the API server hears of it. A quick reboot may be seen as a new boot only.
        let another = match &now {
            HostPower::Down => true,
            HostPower::Up { boot_id, .. } => {
                running.as_ref().is_some_and(|running| running != boot_id)
            }
        };
        if another {
            boot.send_if_modified(|boot| std::mem::replace(&mut boot.up, false));
        }
        match report(&client, &node, &now, another || !boot.borrow().up).await {
            Ok(()) => {
                if let HostPower::Up { boot_id, .. } = now {
                    if !boot.borrow().up {
                        boot.send_modify(|boot| {
                            *boot = Boot {
                                up: true,
                                number: boot.number + 1,
                            }
                        });
                    }
                    running = Some(boot_id);
                }
                if power.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%node, error = format!("{error:#}"), "status of a node; trying again");
                // The next state of the host makes this one irrelevant.
                let _ = tokio::time::timeout(RETRY, power.changed()).await;
            }
        }
    }
}

async fn report(client: &Client, node: &str, power: &HostPower, booted: bool) -> Result<()> {
    let HostPower::Up {
        boot_id,
        pretty_name,
    } = power
    else {
        let status = json!({"conditions": [not_ready("the host is rebooting")]});
        return patch_status(client, node, &status).await.map(drop);
    };
    let info = json!({"bootID": boot_id, "osImage": pretty_name});
    if booted {
        // As a kubelet: its first report after a boot says who it is, the next that it is ready.
        let status = json!({"nodeInfo": info, "conditions": [not_ready("the container runtime is starting")]});
        patch_status(client, node, &status).await?;
    }
    patch_status(
        client,
        node,
        &json!({"nodeInfo": info, "conditions": [ready()]}),
    )
    .await?;
    if booted {
        revive_pods(client, node).await
    } else {
        Ok(())
    }
}

/// Pods of the node that kwok plays run again after a boot, their containers restarted.
async fn revive_pods(client: &Client, node: &str) -> Result<()> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Mended<Pod>>::all(client.clone())
        .list(&on_node)
        .await?;
    let played: Vec<_> = pods
        .items
        .into_iter()
        .map(|Mended(pod)| pod)
        .filter(is_played)
        .collect();
    let revive = |pod: Pod| async move { revive(client, &pod, 1).await };
    futures::stream::iter(played)
        .for_each_concurrent(PARALLEL, revive)
        .await;
    Ok(())
}

/// A pod that kwok plays and that should be running.
pub(crate) fn is_played(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !pod.labels().contains_key(COMPONENT_LABEL)
        && pod.metadata.deletion_timestamp.is_none()
        && phase == Some("Running")
}

/// Makes a pod that kwok plays ready. Failure is logged: the next change of the pod leads here again.
pub(crate) async fn revive(client: &Client, pod: &Pod, restarts: i32) {
    let mut containers = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.clone())
        .unwrap_or_default();
    for container in &mut containers {
        container.ready = true;
        container.restart_count += restarts;
    }
    let conditions = [
        status::condition("ContainersReady", true),
        status::condition("Ready", true),
    ];
    status::patch(
        client,
        pod,
        &json!({"conditions": conditions, "containerStatuses": containers}),
    )
    .await;
}
