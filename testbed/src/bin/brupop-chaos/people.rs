//! What people and tenants do to nodes, to workloads and to the operator, by the API server.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_api::names::{
    self, FLEET, UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION, ZONE_LABEL,
};
use brupop_api::{BottlerocketFleet, BottlerocketShadow};
use brupop_testbed::NewNode;
use brupop_testbed::host::Host;
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, from_value, json};
use tokio::time::{sleep, timeout};

use crate::SHOP;
use crate::fault::Fault;
use crate::world::{OPEN, pod_spec};

/// On nodes that a person has cordoned.
const BY_HAND: &str = "example.org/cordoned-by-hand";
/// Keeps a pod that is being deleted.
const FINALIZER: &str = "example.org/stuck";
/// All accounts of the operator.
const OURS: &str = "system:serviceaccounts:brupop-bottlerocket-aws";
/// The webhook that nobody answers for.
const REFUSED: &str = "brupop-chaos-refused";
/// Longest that a Node is tried to be made again: the API server may be away.
const RECREATING: Duration = Duration::from_secs(30);
/// Pause between two tries.
const RETRY: Duration = Duration::from_millis(500);

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

pub(crate) fn shadows(client: Client) -> Api<BottlerocketShadow> {
    Api::namespaced(client, NAMESPACE)
}

/// Somebody does what makes this fault, or what takes it back; nothing, if it is none of theirs. `host`: that of the fault's
/// node.
pub(crate) async fn does(
    client: Client,
    host: Option<Host>,
    fault: Fault,
    make: bool,
) -> Result<()> {
    let (nodes, pods) = (
        Api::<Node>::all(client.clone()),
        Api::<Pod>::namespaced(client.clone(), SHOP),
    );
    let shadow = |node| names::shadow_name(&node_name(node));
    match fault {
        Fault::Limit { limit } => limit_to(client, limit).await,
        Fault::Refused { .. } => refuse(client, make).await,
        Fault::Leave { node, .. } if make => delete(&nodes, &node_name(node)).await,
        Fault::Leave { node, .. } => {
            add_node(client, node, host.context("there is no such host")?).await
        }
        Fault::Unlabel { node, .. } => {
            let label =
                json!({UPDATER_INTERFACE_LABEL: (!make).then_some(UPDATER_INTERFACE_VERSION)});
            merge(
                &nodes,
                &node_name(node),
                json!({"metadata": {"labels": label}}),
            )
            .await
        }
        // The API server stores a spec, and the reconciler overwrites it.
        Fault::Edit { node, patch } if patch.get("spec").is_some() => {
            merge(&shadows(client), &shadow(node), patch).await
        }
        Fault::Edit { node, patch } => {
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            let (shadows, name) = (shadows(client), shadow(node));
            let written = shadows.patch_status(&name, &params, &patch).await;
            Ok(written.map(drop)?)
        }
        Fault::DeleteShadow { node } => delete(&shadows(client), &shadow(node)).await,
        Fault::DeleteFleet => {
            let fleets = Api::<BottlerocketFleet>::namespaced(client, NAMESPACE);
            delete(&fleets, FLEET).await
        }
        Fault::Cordon { node, .. } if make => cordon(&nodes, node).await,
        Fault::Cordon { node, .. } => {
            let now = nodes.get(&node_name(node)).await?;
            if now.annotations().contains_key(BY_HAND) {
                uncordon(&nodes, node).await?;
            }
            Ok(())
        }
        Fault::Uncordon { node } => uncordon(&nodes, node).await,
        Fault::CloseBudget { workload, .. } => {
            let budgets = Api::<PodDisruptionBudget>::namespaced(client, SHOP);
            let allowed = if make { json!(0) } else { json!(OPEN) };
            merge(
                &budgets,
                &workload,
                json!({"spec": {"maxUnavailable": allowed}}),
            )
            .await
        }
        Fault::BadRollOut { workload, .. } => roll_out(client, &workload, make).await,
        Fault::StuckPod { node, .. } if make => stick_pod(&pods, node).await,
        Fault::StuckPod { node, .. } => {
            let name = stuck_name(node);
            if pods.get_metadata_opt(&name).await?.is_some() {
                merge(&pods, &name, json!({"metadata": {"finalizers": null}})).await?;
            }
            remove(&pods, &name, &DeleteParams::default().grace_period(0)).await
        }
        _ => Ok(()),
    }
}

/// Changes an object, but for its status.
async fn merge<K>(objects: &Api<K>, name: &str, patch: Json) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = Patch::Merge(patch);
    objects.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes an object that is there.
async fn delete<K: Clone + DeserializeOwned + Debug>(objects: &Api<K>, name: &str) -> Result<()> {
    let deleted = objects.delete(name, &DeleteParams::default()).await;
    Ok(deleted.map(drop)?)
}

/// Deletes an object, whenever the API server takes that.
pub(crate) async fn until_gone<K: Clone + DeserializeOwned + Debug>(
    objects: &Api<K>,
    name: &str,
) -> Result<()> {
    let how = DeleteParams::default();
    while remove(objects, name, &how).await.is_err() {
        sleep(RETRY).await;
    }
    Ok(())
}

/// Deletes an object, unless it is not there.
async fn remove<K>(objects: &Api<K>, name: &str, how: &DeleteParams) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    match objects.delete(name, how).await {
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

/// Cordons a node that is not cordoned.
async fn cordon(nodes: &Api<Node>, node: usize) -> Result<()> {
    let now = nodes.get(&node_name(node)).await?;
    if now.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Ok(());
    }
    let (uid, version) = (now.uid(), now.resource_version());
    let patch = json!({
        "metadata": {"uid": uid, "resourceVersion": version, "annotations": {BY_HAND: "true"}},
        "spec": {"unschedulable": true},
    });
    merge(nodes, &node_name(node), patch).await
}

/// Uncordons a node, no matter who cordoned it.
async fn uncordon(nodes: &Api<Node>, node: usize) -> Result<()> {
    let patch =
        json!({"metadata": {"annotations": {BY_HAND: null}}, "spec": {"unschedulable": null}});
    merge(nodes, &node_name(node), patch).await
}

/// Makes a Node that is not there, and tries for half a minute; its host boots.
pub(crate) async fn add_node(client: Client, node: usize, host: Host) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    // Its status comes after it, and with it the room for pods.
    let is_made = |node: Node| {
        node.status
            .is_some_and(|status| status.allocatable.is_some())
    };
    if nodes.get_opt(&node_name(node)).await?.is_some_and(is_made) {
        return Ok(());
    }
    let mut new = NewNode::numbered(node)?;
    (new.os_image, new.boot_id) = (host.pretty_name(), host.boot_id());
    let made = timeout(RECREATING, async {
        while new.create(&client).await.is_err() && new.tell(&client).await.is_err() {
            sleep(RETRY).await;
        }
    })
    .await;
    // When it has booted, its kubelet tells the Node what runs.
    host.reboot_now();
    made.context("the Node is not made")
}

/// As `kubectl set env deployment/brupop-reconciler MAX_CONCURRENT_UPDATE=…`.
pub(crate) async fn limit_to(client: Client, limit: usize) -> Result<()> {
    let set = json!({"name": "MAX_CONCURRENT_UPDATE", "value": limit.to_string()});
    let container = json!({"name": "reconciler", "env": [set]});
    let patch =
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [container]}}}}));
    Api::<Deployment>::namespaced(client, NAMESPACE)
        .patch("brupop-reconciler", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Gives a workload a version whose pods no node takes, or the usual one.
async fn roll_out(client: Client, workload: &str, bad: bool) -> Result<()> {
    let selector = json!({ZONE_LABEL: bad.then_some("nowhere")});
    let template = json!({"spec": {"template": {"spec": {"nodeSelector": selector}}}});
    if workload == "db" {
        let stateful_sets = Api::<StatefulSet>::namespaced(client.clone(), SHOP);
        merge(&stateful_sets, workload, template).await?;
    } else {
        let deployments = Api::<Deployment>::namespaced(client.clone(), SHOP);
        merge(&deployments, workload, template).await?;
    }
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

/// Makes a pod on this node that is being deleted, and stays.
async fn stick_pod(pods: &Api<Pod>, node: usize) -> Result<()> {
    let name = stuck_name(node);
    let mut pod =
        json!({"metadata": {"name": name, "finalizers": [FINALIZER]}, "spec": pod_spec("c")});
    pod["spec"]["nodeName"] = json!(node_name(node));
    let (params, pod) = (PostParams::default(), from_value(pod)?);
    pods.create(&params, &pod).await?;
    let soon = DeleteParams::default().grace_period(1);
    Ok(pods.delete(&name, &soon).await.map(drop)?)
}

fn stuck_name(node: usize) -> String {
    format!("stuck-{node}")
}

/// A tenant's webhook is to be asked about what our programs write, and is not there; or no longer.
async fn refuse(client: Client, refused: bool) -> Result<()> {
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client);
    if !refused {
        return remove(&hooks, REFUSED, &DeleteParams::default()).await;
    }
    let ours = format!("request.userInfo.groups.exists(group, group == '{OURS}')");
    let hook = json!({
        "metadata": {"name": REFUSED},
        "webhooks": [{
            "name": "refuses.example.org",
            // Nothing listens there.
            "clientConfig": {"url": "https://localhost:1/"},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
            "matchConditions": [{"name": "ours", "expression": ours}],
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 2,
        }],
    });
    let (params, hook) = (PostParams::default(), from_value(hook)?);
    match hooks.create(&params, &hook).await {
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

/// Why something failed, on one line: what the API server said, without kube's second telling of it.
pub(crate) fn why(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.to_string(),
        _ => format!("{error:#}"),
    }
}
