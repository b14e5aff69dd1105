//! Drains, and what administrators do meanwhile: the shipped programs and manifests on a real control plane.

mod administrators;
mod alone;
mod answers;
mod blocked;
mod held;
mod kinds;

use std::collections::BTreeMap;

use anyhow::Result;
use brupop_api::Marker;
use brupop_api::names::{MARKER_ANNOTATION, RECONCILER_ACCOUNT};
use brupop_testbed::Fleet;
use brupop_testbed::audit::Event;
use brupop_testbed::objects::deployment;
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value as Json, json};

async fn node(fleet: &Fleet, name: &str) -> Result<Node> {
    Ok(Api::<Node>::all(fleet.client()).get(name).await?)
}

async fn marker(fleet: &Fleet, name: &str) -> Result<Option<Marker>> {
    let node = node(fleet, name).await?;
    Ok(node
        .annotations()
        .get(MARKER_ANNOTATION)
        .map(|text| Marker::parse(text))
        .transpose()?)
}

/// The pod, as `namespace/name`, that a reconciler asked to be evicted.
fn evicted_by_us(event: &Event) -> Option<String> {
    let object = &event.object;
    let is = object.resource == "pods"
        && object.subresource == "eviction"
        && event.is_by(RECONCILER_ACCOUNT);
    is.then(|| format!("{}/{}", object.namespace, object.name))
}

/// The pods of reconciler and webhook that are not on their way out: name, and node.
async fn own_pods(fleet: &Fleet) -> Result<BTreeMap<String, String>> {
    let pods = Api::<Pod>::namespaced(fleet.client(), NAMESPACE);
    let ours =
        ListParams::default().labels("brupop.bottlerocket.aws/component in (reconciler,webhook)");
    let pods = pods.list(&ours).await?.items.into_iter();
    let stays = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let node = |pod: &Pod| {
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default()
    };
    Ok(stays.map(|pod| (pod.name_any(), node(&pod))).collect())
}

/// A Deployment without a budget; returns once its pods run.
async fn deploy(
    fleet: &Fleet,
    name: &str,
    replicas: usize,
    finalizers: &[&str],
    spec: Json,
) -> Result<()> {
    let template = json!({"metadata": {"finalizers": finalizers}, "spec": spec});
    fleet
        .apply(&[deployment("default", name, replicas, &template)])
        .await?;
    fleet.until_rolled_out("default", name).await
}
