//! Objects for the tests of reports and of steering.

use brupop_api::item::Readable as _;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, Item};
use brupop_core::objects::{NodeFacts, WatchedFleet};
use brupop_core::pool::Pool;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::status::{self, Glance};
use crate::event::Event;
use crate::gather::Fleet;
use crate::page::Page;

pub(crate) const NS: &str = "brupop-bottlerocket-aws";

/// Returns what all tests take for the present.
pub(crate) fn page() -> Page {
    Page {
        now: "2026-11-21T04:00:00Z".parse().unwrap(),
        columns: None,
        rows: None,
        flags: String::new(),
        zone: TimeZone::UTC,
    }
}

/// The whole fleet at a glance.
pub(crate) fn glance(fleet: &Fleet) -> Glance {
    status::of(fleet, None).unwrap()
}

pub(crate) fn shadow(
    node: &str,
    spec: &Value,
    mut status: Value,
    progressing: [&str; 3],
) -> Item<BottlerocketShadow> {
    let [is, reason, message] = progressing;
    let condition = json!({"type": "Progressing", "status": is, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T03:30:00Z"});
    status["conditions"] = json!([condition]);
    item(node, json!({"spec": spec, "status": status}))
}

pub(crate) fn item(node: &str, mut object: Value) -> Item<BottlerocketShadow> {
    object["metadata"] =
        json!({"name": format!("brs-{node}"), "namespace": NS, "uid": "u", "generation": 4});
    serde_json::from_value(object).unwrap()
}

/// A shadow whose node is idle, and runs the old version.
pub(crate) fn idle(node: &str, progressing: [&str; 3]) -> Item<BottlerocketShadow> {
    let status =
        json!({"current_state": "Idle", "current_version": "1.19.4", "target_version": "1.20.0"});
    shadow(node, &json!({"state": "Idle"}), status, progressing)
}

/// A shadow whose node is up to date.
pub(crate) fn updated(node: &str) -> Item<BottlerocketShadow> {
    let status = json!({"current_state": "Idle", "current_version": "1.20.0"});
    shadow(
        node,
        &json!({"state": "Idle"}),
        status,
        ["False", "NoUpdate", "the host chooses no update"],
    )
}

/// A shadow whose node is being drained.
pub(crate) fn draining(node: &str) -> Item<BottlerocketShadow> {
    let spec = json!({"state": "StagedAndPerformedUpdate", "version": "1.20.0", "attempt": 2,
        "state_transition_timestamp": "2026-11-21T03:50:00Z"});
    let status = json!({"current_state": "StagedAndPerformedUpdate", "current_version": "1.19.4",
        "target_version": "1.20.0", "attempt": 2});
    shadow(
        node,
        &spec,
        status,
        ["True", "Draining", "pods are being evicted from the node"],
    )
}

/// Events of that night, each a line: time, kind and name of the object, reason, and the message.
pub(crate) fn events(lines: &str) -> Vec<Event> {
    let read = |line: &str| {
        let words: Vec<_> = line.trim().splitn(5, ' ').collect();
        let [time, kind, name, reason, message] = words[..] else {
            panic!("{line}")
        };
        event(kind, name, &format!("2026-11-21T{time}Z"), reason, message)
    };
    lines.trim().lines().map(read).collect()
}

/// A fleet with this spec and status.
pub(crate) fn watched_fleet(spec: &Value, status: &Value) -> WatchedFleet {
    let metadata = json!({"name": "fleet", "namespace": NS, "uid": "f", "resourceVersion": "7", "generation": 3});
    let item: Item<WatchedFleet> =
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .unwrap();
    item.body.unwrap()
}

/// A fleet with a slot for node-0, and a halted version.
pub(crate) fn fleet() -> BottlerocketFleet {
    let condition = |type_: &str, is: &str, message: &str| {
        json!({"type": type_, "status": is, "reason": "R", "message": message,
            "lastTransitionTime": "2026-11-21T01:00:00Z"})
    };
    let status = json!({
        "term": 1, "unavailableLimit": 2,
        "slots": {"brs-node-0": {"uid": "u", "attempt": 2, "since": "2026-11-21T03:45:00Z",
            "version": "1.20.0", "variant": "aws-k8s-1.36"}},
        "versions": [
            {"version": "1.19.9", "variant": "aws-k8s-1.36", "succeeded": 0,
                "failures": [{"node": "node-4", "at": "2026-11-21T03:00:00Z", "reason": "FellBack"}],
                "haltedAt": "2026-11-21T03:00:00Z"},
            {"version": "1.20.0", "variant": "aws-k8s-1.36", "reportedAt": "2026-11-21T01:00:00Z", "succeeded": 2},
        ],
        "haltedVersions": ["1.19.9"],
        "lastFinished": "2026-11-21T03:44:00Z",
        "conditions": [
            condition("AdmissionEnforced", "True", "webhook and policy refused the dry runs, as they must"),
            condition("OtherOperator", "False", "upstream's operator is not installed"),
        ],
    });
    watched_fleet(&json!({"paused": false}), &status).object
}

/// A pool in mid-update; one named `db` has not been seen by a reconciler yet.
pub(crate) fn pool(name: &str) -> Item<Pool> {
    let progressing = json!({"type": "Progressing", "status": "True", "reason": "Updating",
        "message": "nodes of the pool are being updated", "lastTransitionTime": "2026-11-21T01:00:00Z"});
    let status = json!({"nodes": 12, "updatedNodes": 6, "updatingNodes": 2, "pendingNodes": 3, "blockedNodes": 1,
        "unavailableLimit": 3, "conditions": [progressing]});
    let status = if name == "db" { json!({}) } else { status };
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": NS, "uid": "p"},
        "spec": {"nodeSelector": {}}, "status": status}),
    )
    .unwrap()
}

/// A Node with these labels and annotations.
pub(crate) fn node(labels: &Value, annotations: &Value) -> NodeFacts {
    let metadata =
        json!({"name": "node-0", "uid": "n", "labels": labels, "annotations": annotations});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
        .unwrap()
}

pub(crate) fn event(kind: &str, name: &str, at: &str, reason: &str, message: &str) -> Event {
    let type_ = match reason {
        "DrainBlocked" => "Warning",
        _ => "Normal",
    };
    let about = json!({"kind": kind, "name": name});
    let event = json!({"metadata": {}, "involvedObject": about, "eventTime": at, "type": type_, "reason": reason,
        "message": message});
    Event::read(&event.to_string()).unwrap()
}
