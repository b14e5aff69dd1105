//! What people and controllers do to workloads while nodes are updated, and what becomes of their pods.

use anyhow::{Result, bail};
use brupop_api::names::ZONE_LABEL;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, json};

use crate::SHOP;
use crate::people::{merge, remove};
use crate::tenants;

/// Keeps a pod that is being deleted.
const FINALIZER: &str = "example.org/stuck";

/// Returns how many replicas a workload usually has; see `world.rs`.
fn usual(workload: &str) -> Result<usize> {
    Ok(match workload {
        "cart" => 16,
        "cache" => 5,
        "db" => 3,
        other => bail!("{other} is not scaled"),
    })
}

/// Scales a workload, or scales it back.
pub(crate) async fn scale(client: Client, workload: String, replicas: Option<usize>) -> Result<()> {
    let replicas = replicas.map_or_else(|| usual(&workload), Ok)?;
    patch(client, &workload, json!({"spec": {"replicas": replicas}})).await
}

/// Gives a workload a version whose pods no node takes, or the usual one.
pub(crate) async fn roll_out(client: Client, workload: String, bad: bool) -> Result<()> {
    let selector = json!({ZONE_LABEL: bad.then_some("nowhere")});
    let template = json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}});
    patch(client.clone(), &workload, template).await?;
    if !bad {
        // A StatefulSet waits for its broken pod for ever; a person has to delete it.
        let pods = Api::<Pod>::namespaced(client, SHOP);
        let pending = ListParams::default()
            .labels(&format!("app={workload}"))
            .fields("status.phase=Pending");
        for pod in pods.list_metadata(&pending).await? {
            remove(&pods, &pod.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn patch(client: Client, workload: &str, patch: Json) -> Result<()> {
    if workload == "db" {
        merge(
            &Api::<StatefulSet>::namespaced(client, SHOP),
            workload,
            patch,
        )
        .await
    } else {
        merge(
            &Api::<Deployment>::namespaced(client, SHOP),
            workload,
            patch,
        )
        .await
    }
}

/// The first pods of a workload are Ready, or not.
pub(crate) async fn set_ready(
    client: Client,
    workload: String,
    pods: usize,
    ready: bool,
) -> Result<()> {
    let status = if ready { "True" } else { "False" };
    let all = Api::<Pod>::namespaced(client, SHOP);
    let of_workload = all
        .list(&ListParams::default().labels(&format!("app={workload}")))
        .await?;
    let running = |pod: &&Pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    // All of them are well again: others may be the first ones by now.
    let most = if ready { usize::MAX } else { pods };
    for pod in of_workload.iter().filter(running).take(most) {
        let conditions = json!([{"type": "Ready", "status": status}, {"type": "ContainersReady", "status": status}]);
        let patch = Patch::Strategic(
            json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": conditions}}),
        );
        // It may be gone by now.
        let _ = all
            .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await;
    }
    Ok(())
}

/// A pod on this node that is being deleted, and stays.
pub(crate) async fn stuck_pod(client: Client, node: usize) -> Result<()> {
    tenants::bound_pod(client.clone(), &stuck_name(node), node, &[FINALIZER]).await?;
    let pods = Api::<Pod>::namespaced(client, SHOP);
    pods.delete(&stuck_name(node), &DeleteParams::default().grace_period(1))
        .await?;
    Ok(())
}

pub(crate) async fn release_pod(client: Client, node: usize) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client, SHOP);
    if pods.get_metadata_opt(&stuck_name(node)).await?.is_some() {
        merge(
            &pods,
            &stuck_name(node),
            json!({"metadata": {"finalizers": null}}),
        )
        .await?;
    }
    remove(
        &pods,
        &stuck_name(node),
        &DeleteParams::default().grace_period(0),
    )
    .await
}

fn stuck_name(node: usize) -> String {
    format!("stuck-{node}")
}
