//! What people do to nodes, and to the operator, by the API server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{self, FLEET, MARKER_ANNOTATION};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, State};
use brupop_testbed::NewNode;
use brupop_testbed::host::Host;
use brupop_testbed::operator::NAMESPACE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::time::{sleep, timeout};

use crate::SHOP;

/// On nodes that a person has cordoned.
pub(crate) const BY_HAND: &str = "example.org/cordoned-by-hand";
/// Longest that a Node is tried to be made again: the API server may be away.
const RECREATING: Duration = Duration::from_secs(30);
/// Longest wait for the end of a node's update.
const UPDATED_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two tries.
const RETRY: Duration = Duration::from_millis(500);
/// A marker that nobody can read.
const BROKEN: &str = "{broken";

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

pub(crate) fn shadow_name(node: usize) -> String {
    names::shadow_name(&node_name(node))
}

pub(crate) fn shadows(client: Client) -> Api<BottlerocketShadow> {
    Api::namespaced(client, NAMESPACE)
}

pub(crate) fn fleets(client: Client) -> Api<BottlerocketFleet> {
    Api::namespaced(client, NAMESPACE)
}

/// Changes an object, but for its status.
pub(crate) async fn merge<K>(objects: &Api<K>, name: &str, patch: Json) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    objects
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

pub(crate) async fn patch_node(client: &Client, node: usize, patch: Json) -> Result<()> {
    merge(&Api::<Node>::all(client.clone()), &node_name(node), patch).await
}

/// Cordons a node that is not cordoned.
pub(crate) async fn cordon(client: Client, node: usize) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let now = nodes.get(&node_name(node)).await?;
    if now.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Ok(());
    }
    let (uid, version) = (now.uid(), now.resource_version());
    let patch = json!({
        "metadata": {"uid": uid, "resourceVersion": version, "annotations": {BY_HAND: "true"}},
        "spec": {"unschedulable": true},
    });
    patch_node(&client, node, patch).await
}

/// Uncordons a node, no matter who cordoned it.
pub(crate) async fn uncordon(client: Client, node: usize) -> Result<()> {
    let patch =
        json!({"metadata": {"annotations": {BY_HAND: null}}, "spec": {"unschedulable": null}});
    patch_node(&client, node, patch).await
}

/// Uncordons a node that a person has cordoned.
pub(crate) async fn uncordon_own(client: Client, node: usize) -> Result<()> {
    let now = Api::<Node>::all(client.clone())
        .get(&node_name(node))
        .await?;
    if now.annotations().contains_key(BY_HAND) {
        uncordon(client, node).await
    } else {
        Ok(())
    }
}

/// As `kubectl drain`, once over, and for the pods of daemons, too.
pub(crate) async fn drain(client: Client, node: usize) -> Result<()> {
    cordon(client.clone(), node).await?;
    let on_node = ListParams::default().fields(&format!("spec.nodeName={}", node_name(node)));
    let pods = Api::<Pod>::namespaced(client, SHOP);
    for pod in pods.list_metadata(&on_node).await? {
        // Its budget may be against it.
        let _ = pods.evict(&pod.name_any(), &EvictParams::default()).await;
    }
    Ok(())
}

/// Resumes the versions that are halted.
pub(crate) async fn resume_versions(client: Client) -> Result<()> {
    let fleets = fleets(client);
    let versions = fleets.get(FLEET).await?.status.unwrap_or_default().versions;
    let halts = versions
        .into_iter()
        .filter(|record| record.halted_at.is_some())
        .map(|it| json!({"version": it.version, "variant": it.variant, "haltedAt": it.halted_at}));
    let halts: Vec<Json> = halts.collect();
    merge(&fleets, FLEET, json!({"spec": {"resumedVersions": halts}})).await
}

pub(crate) async fn edit_status(client: Client, node: usize, status: Json) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    shadows(client)
        .patch_status(&shadow_name(node), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Deletes an object that is there.
pub(crate) async fn delete<K: Clone + DeserializeOwned + Debug>(
    objects: &Api<K>,
    name: &str,
) -> Result<()> {
    Ok(objects
        .delete(name, &DeleteParams::default())
        .await
        .map(drop)?)
}

/// Deletes an object, whenever the API server takes that.
pub(crate) async fn until_gone<K: Clone + DeserializeOwned + Debug>(
    objects: &Api<K>,
    name: &str,
) -> Result<()> {
    while remove(objects, name, &DeleteParams::default())
        .await
        .is_err()
    {
        sleep(RETRY).await;
    }
    Ok(())
}

/// Deletes an object, unless it is not there.
pub(crate) async fn remove<K>(objects: &Api<K>, name: &str, how: &DeleteParams) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    match objects.delete(name, how).await {
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

/// Makes an object, unless it is there.
pub(crate) async fn make<K>(objects: &Api<K>, object: Json) -> Result<()>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    match objects
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await
    {
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

/// Writes a marker that nobody can read on a Node without one; or takes it away.
pub(crate) async fn break_marker(client: Client, node: usize, broken: bool) -> Result<()> {
    let now = Api::<Node>::all(client.clone())
        .get(&node_name(node))
        .await?;
    let marker = now.annotations().get(MARKER_ANNOTATION);
    if marker.map(String::as_str) != (!broken).then_some(BROKEN) {
        ensure!(!broken, "the Node is being updated");
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": now.uid(), "resourceVersion": now.resource_version(),
        "annotations": {MARKER_ANNOTATION: broken.then_some(BROKEN)},
    }});
    patch_node(&client, node, patch).await
}

pub(crate) async fn remove_node(client: Client, node: usize) -> Result<()> {
    delete(&Api::<Node>::all(client), &node_name(node)).await
}

/// Deletes a Node once its update is over, and it is being watched or runs the last of its attempts; an autoscaler sees it
/// empty. It fails if that does not happen soon.
pub(crate) async fn remove_when_updated(client: Client, node: usize) -> Result<()> {
    let shadows = shadows(client.clone());
    let soon = timeout(UPDATED_WITHIN, async {
        loop {
            let shadow = shadows.get_opt(&shadow_name(node)).await;
            let state = shadow.ok().flatten().map(|shadow| shadow.spec.state);
            if state == Some(State::MonitoringUpdate) {
                return;
            }
            sleep(RETRY / 5).await;
        }
    });
    soon.await.context("no update of the node ended")?;
    remove_node(client, node).await
}

/// What a leader whose clock is an hour ahead leaves behind: the times of a node's step and failure, and those of the ledger.
pub(crate) async fn set_times_ahead(client: Client, node: usize) -> Result<()> {
    let ahead = (Timestamp::now() + SignedDuration::from_hours(1)).to_string();
    let shadows = shadows(client.clone());
    let shadow = shadows.get(&shadow_name(node)).await?;
    let mut spec = json!({"state_transition_timestamp": ahead});
    if shadow.spec.last_failure.is_some() {
        spec["last_failure"] = json!({"at": ahead});
    }
    merge(
        &shadows,
        &shadow_name(node),
        json!({"metadata": {"uid": shadow.uid()}, "spec": spec}),
    )
    .await?;
    let fleets = fleets(client);
    let fleet = fleets.get(FLEET).await?;
    let status = fleet.status.clone().unwrap_or_default();
    let slots: BTreeMap<&String, Json> = status
        .slots
        .keys()
        .map(|shadow| (shadow, json!({"since": ahead})))
        .collect();
    // Of the ledger as it was read: a slot that was given back meanwhile must not come back.
    let metadata = json!({"resourceVersion": fleet.metadata.resource_version});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": {"slots": slots}}));
    fleets
        .patch_status(FLEET, &PatchParams::default(), &patch)
        .await?;
    Ok(())
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

/// As `kubectl set env deployment/brupop-reconciler MAX_CONCURRENT_UPDATE=…`, or the same of `daemonset/brupop-agent`.
pub(crate) async fn configure(
    client: Client,
    component: String,
    setting: String,
    value: String,
) -> Result<()> {
    let container = json!({"name": component, "env": [{"name": setting, "value": value}]});
    let patch =
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [container]}}}}));
    let (name, params) = (format!("brupop-{component}"), PatchParams::default());
    if component == "agent" {
        Api::<DaemonSet>::namespaced(client, NAMESPACE)
            .patch(&name, &params, &patch)
            .await?;
    } else {
        Api::<Deployment>::namespaced(client, NAMESPACE)
            .patch(&name, &params, &patch)
            .await?;
    }
    Ok(())
}

/// Returns why something failed, on one line: what the API server said, without kube's second telling of it.
pub(crate) fn why(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.to_string(),
        _ => format!("{error:#}"),
    }
}
