//! The actions of people and tenants on nodes, workloads and the operator, by the API server.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_api::names::{self, FLEET, UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION};
use brupop_api::{BottlerocketFleet, BottlerocketShadow};
use brupop_testbed::NewNode;
use brupop_testbed::host::Host;
use brupop_testbed::objects::{merge, merge_status};
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, from_value, json};
use tokio::time::{sleep, timeout};

use crate::SHOP;
use crate::fault::Fault;
use crate::world::OPEN;

/// On nodes that a person has cordoned.
const BY_HAND: &str = "example.org/cordoned-by-hand";
/// All accounts of the operator.
const OURS: &str = "system:serviceaccounts:brupop-bottlerocket-aws";
/// The webhook that nobody answers for.
const REFUSED: &str = "brupop-chaos-refused";
/// Longest that a Node is tried to be made again: the API server may be away.
const RECREATING: Duration = Duration::from_secs(30);
/// Pause before an action is repeated.
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
    let nodes = Api::<Node>::all(client.clone());
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
            change(
                &nodes,
                &node_name(node),
                json!({"metadata": {"labels": label}}),
            )
            .await
        }
        // The API server stores a spec, and the reconciler overwrites it.
        Fault::Edit { node, patch } if patch.get("spec").is_some() => {
            change(&shadows(client), &shadow(node), patch).await
        }
        Fault::Edit { node, patch } => {
            let (shadows, status) = (shadows(client), patch["status"].clone());
            let written = merge_status(&shadows, &shadow(node), status).await;
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
            change(
                &budgets,
                &workload,
                json!({"spec": {"maxUnavailable": allowed}}),
            )
            .await
        }
        _ => Ok(()),
    }
}

/// Changes an object, but for its status.
async fn change<K>(objects: &Api<K>, name: &str, patch: Json) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    Ok(merge(objects, name, patch).await.map(drop)?)
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
    while remove(objects, name).await.is_err() {
        sleep(RETRY).await;
    }
    Ok(())
}

/// Deletes an object, unless it is not there.
async fn remove<K: Clone + DeserializeOwned + Debug>(objects: &Api<K>, name: &str) -> Result<()> {
    match objects.delete(name, &DeleteParams::default()).await {
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
    change(nodes, &node_name(node), patch).await
}

/// Uncordons a node, no matter who cordoned it.
async fn uncordon(nodes: &Api<Node>, node: usize) -> Result<()> {
    let patch =
        json!({"metadata": {"annotations": {BY_HAND: null}}, "spec": {"unschedulable": null}});
    change(nodes, &node_name(node), patch).await
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
    let new = NewNode::numbered(node).on(&host);
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

/// A tenant's webhook is to be asked about what our programs write, and is not there; or no longer.
async fn refuse(client: Client, refused: bool) -> Result<()> {
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client);
    if !refused {
        return remove(&hooks, REFUSED).await;
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

/// Describes an error on one line, with the API server's words only once.
pub(crate) fn why(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.to_string(),
        _ => format!("{error:#}"),
    }
}
