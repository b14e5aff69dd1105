//! Objects as they are watched, to be varied by each test, and what is seen in them.

#![allow(
    clippy::needless_pass_by_value,
    reason = "JSON is written where it is used"
)]

use std::sync::Arc;

use brupop_api::{BottlerocketShadow, Item, names};
use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Watched as _};
use crate::facts::Observed;
use crate::leader::LeaderState;
use crate::objects::{AgentPod, Budget, NodeFacts, PodItem, Readiness};
use crate::observe::observe;
use crate::observe::pools_at;
use crate::pool::Pool;
use crate::rules::Policy;

/// A table, one row a line: what is given, and what is expected of it. Each row is a tuple of all of these.
macro_rules! rows {
    ($($($given:expr),+ => $expected:expr;)+) => { [$(($($given,)+ $expected)),+] };
}
pub(crate) use rows;

pub(crate) const NOW: &str = "2026-11-21T04:00:00Z";
pub(crate) const OLD: &str = "1.19.4";
pub(crate) const NEW: &str = "1.20.0";
/// The term in which the fleet is led.
pub(crate) const TERM: u64 = 4;

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A time this number of seconds after [`NOW`].
pub(crate) fn later(seconds: i64) -> String {
    (at(NOW) + SignedDuration::from_secs(seconds)).to_string()
}

/// The object that this JSON is.
#[track_caller]
pub(crate) fn read<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

/// One JSON with the members of another.
pub(crate) fn with(mut one: Value, other: &Value) -> Value {
    json_patch::merge(&mut one, other);
    one
}

/// An opted-in node that is Ready, with these changes.
pub(crate) fn node(name: &str, more: Value) -> Item<NodeFacts> {
    let json = json!({
        "metadata": {"name": name, "uid": format!("node-{name}"),
            "labels": {names::UPDATER_INTERFACE_LABEL: names::UPDATER_INTERFACE_VERSION}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "boot-1", "osImage": "Bottlerocket OS 1.19.4 (aws-k8s-1.29)"}},
    });
    read(with(json, &more))
}

/// A change of a node: these labels.
pub(crate) fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

/// A change of a node: this value of the label that opts it in.
pub(crate) fn opted(value: &str) -> Value {
    labels(json!({names::UPDATER_INTERFACE_LABEL: value}))
}

/// A change of a node: this annotation.
pub(crate) fn annotated(annotation: &str, value: impl ToString) -> Value {
    json!({"metadata": {"annotations": {annotation: value.to_string()}}})
}

/// A change of a node: this marker.
pub(crate) fn marked(marker: Value) -> Value {
    annotated(names::MARKER_ANNOTATION, marker)
}

/// A change of a node: whether it is Ready, perhaps since a time.
pub(crate) fn ready(status: &str, since: Option<&str>) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}})
}

/// The shadow of this name.
pub(crate) fn shadow(name: &str, spec: Value, status: Value) -> Item<BottlerocketShadow> {
    let node = names::node_of_shadow(name).unwrap();
    read(json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": 3,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": format!("node-{node}")}]},
        "spec": spec, "status": status,
    }))
}

/// A pool of all nodes, with these changes of its spec.
pub(crate) fn pool(name: &str, spec: Value) -> Item<Pool> {
    let spec = with(json!({"nodeSelector": {}}), &spec);
    read(json!({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec}))
}

/// The nodes with these changes, each with an agent that is Ready, and these shadows.
pub(crate) fn cluster<'n>(
    nodes: impl IntoIterator<Item = (&'n str, Value)>,
    shadows: impl IntoIterator<Item = (&'n str, Value, Value)>,
) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, more) in nodes {
        node(name, more).put(&mut cluster);
        put_agent(&mut cluster, name, true, None);
    }
    for (name, spec, status) in shadows {
        shadow(name, spec, status).put(&mut cluster);
    }
    cluster
}

/// The pod of the agent on this node, and whether it is Ready, perhaps since a time.
pub(crate) fn put_agent(cluster: &mut Cluster, node: &str, ready: bool, since: Option<&str>) {
    let agent = AgentPod {
        node: node.to_owned(),
        readiness: Some(Readiness {
            ready,
            since: since.map(at),
        }),
    };
    cluster
        .record(&names::shadow_name(node))
        .agents
        .insert("agent".to_owned(), agent);
}

/// The fleet's object, which is led in [`TERM`] unless its status says otherwise.
pub(crate) fn put_ledger(cluster: &mut Cluster, spec: Value, status: Value) {
    let status = with(json!({"term": TERM}), &status);
    let ledger = json!({"metadata": {"name": "fleet", "uid": "f"}, "spec": spec, "status": status});
    cluster.fleet = Some(Arc::new(read(ledger)));
}

/// A Ready pod of the `ReplicaSet` `cart` in the namespace `shop`, with these changes.
pub(crate) fn pod(name: &str, more: Value) -> PodItem {
    let json = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "cart"},
            "resourceVersion": "7", "ownerReferences": controlled_by("ReplicaSet", "cart")},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    read(with(json, &more))
}

/// The owners of a pod that this one makes.
pub(crate) fn controlled_by(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true}])
}

/// A budget of the pods of `cart` in the namespace `shop`, of which two of three are healthy and have to be, with these
/// changes.
pub(crate) fn budget(name: &str, more: Value) -> Item<Budget> {
    let json = json!({
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": "7"},
        "spec": {"selector": {"matchLabels": {"app": "cart"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3},
    });
    read(with(json, &more))
}

/// A leader that knows what follows from the cluster alone.
pub(crate) fn known(cluster: &Cluster) -> LeaderState {
    prepare(&mut cluster.clone())
}

/// The same, after it has found the owners of these nodes.
pub(crate) fn prepare(cluster: &mut Cluster) -> LeaderState {
    let mut leader = LeaderState::default();
    leader.prepare(cluster, at(NOW), &Policy::default());
    leader
}

/// Makes known the pods of these nodes, of which none is left.
pub(crate) fn know_pods(cluster: &mut Cluster, names: &[&str]) {
    for name in names {
        cluster.record(name).led.plan = Some(Arc::default());
    }
}

/// Returns what this leader sees, which has found our rules in force, and no other operator.
pub(crate) fn observe_knowing<'a>(
    cluster: &Cluster,
    known: &LeaderState,
    policy: &'a Policy,
    now: &'a str,
) -> Observed<'a> {
    // Facts borrow from these, and tests are short.
    let cluster = Box::leak(Box::new(cluster.clone()));
    let leader = Box::leak(Box::new(LeaderState {
        term: TERM,
        enforced: true,
        alone: true,
        own_node: Some("n".to_owned()),
        ..known.clone()
    }));
    leader.prepare(cluster, at(now), policy);
    let pools = Box::leak(Box::new(pools_at(cluster, leader, policy, at(now))));
    observe(cluster, leader, pools, policy, now)
}
