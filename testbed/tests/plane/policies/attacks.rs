//! What a stolen token of the reconciler or the webhook may still do, and what it may not.

use super::bed::Actor::{Reconciler, Webhook};
use super::bed::{Actor, Bed};
use anyhow::{Result, ensure};
use brupop_api::{BottlerocketFleet, names};
use http::Method;
use kube::Resource as _;
use serde_json::{Value as Json, json};

mod kubelets;
mod nodes;
mod opting_in;
mod records;
mod webhook;

pub use kubelets::{kubelets_and_events, kubelets_and_nodes, kubelets_and_pods, register};
pub use nodes::nodes;
pub use opting_in::opting_in;
pub use records::{evictions, lease, plant, planted, records};
pub use webhook::webhook;

/// Who refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// The policy, by this rule.
    Policy(&'static str),
    /// The API server's own validation.
    Invalid,
    /// Nobody, but it is there already.
    Exists,
}

use Verdict::{Allowed, Exists, Invalid, Policy};

/// (what it says, who, method, path, body, verdict); all are dry runs.
pub type Row = (&'static str, Actor, Method, String, Json, Verdict);

const NODES: &str = "/api/v1/nodes";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// What the reconciler asks for.
fn by(says: &'static str, method: Method, path: String, body: Json, verdict: Verdict) -> Row {
    (says, Reconciler, method, path, body, verdict)
}

/// The Nodes that the rows are about.
pub async fn prepare(bed: &Bed) -> Result<()> {
    let opted_in = json!({names::UPDATER_INTERFACE_LABEL: "2.0.0", "a": "b"});
    let excluded = json!({names::EXCLUDE_FROM_LB_LABEL: "true"});
    let marker = json!({names::MARKER_ANNOTATION: "{}"});
    let mut kept = marker.clone();
    kept[names::DO_NOT_DISRUPT_ANNOTATION] = json!("true");
    let ours = json!([{"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"}]);
    let taints = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "c", "effect": "NoExecute"}]);
    let theirs =
        json!({"c": "d", names::DO_NOT_DISRUPT_ANNOTATION: "1h", names::RETRY_ANNOTATION: "5"});
    for (name, labels, annotations, spec) in [
        (
            "in",
            opted_in,
            theirs,
            json!({"taints": taints, "providerID": "x://y"}),
        ),
        ("out", json!({}), json!({}), json!({})),
        (
            "left-marked",
            excluded.clone(),
            kept,
            json!({"unschedulable": true, "taints": ours}),
        ),
        ("left-in-service", json!({}), marker, json!({})),
        (
            "left-cordoned",
            json!({}),
            json!({}),
            json!({"unschedulable": true}),
        ),
        ("left-excluded", excluded, json!({}), json!({})),
    ] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec,
        });
        bed.must(Method::POST, NODES, &node).await?;
        // A new Node gets the taint `not-ready` from the API server.
        let taints = json!({"spec": {"taints": spec["taints"]}});
        bed.must(Method::PATCH, &format!("{NODES}/{name}"), &taints)
            .await?;
    }
    opting_in::prepare(bed).await?;
    // Events and a fleet of others'.
    bed.must(
        Method::POST,
        EVENTS,
        &event("default", "theirs", "kubelet", "Node"),
    )
    .await?;
    let fleets = bed.ours(&BottlerocketFleet::api_version(&()), "bottlerocketfleets");
    bed.must(
        Method::POST,
        &fleets,
        &fleet(names::FLEET, &json!({"paused": true})),
    )
    .await?;
    Ok(())
}

fn event(namespace: &str, name: &str, controller: &str, kind: &str) -> Json {
    let of = if kind == "Node" {
        Json::Null
    } else {
        json!(namespace)
    };
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "reportingController": controller, "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {"kind": kind, "namespace": of, "name": "in"},
    })
}

fn fleet(name: &str, spec: &Json) -> Json {
    json!({"apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
        "metadata": {"name": name}, "spec": spec})
}

/// A patch of one label; null takes it away.
pub fn label(key: &str, value: impl Into<Json>) -> Json {
    json!({"metadata": {"labels": {key: value.into()}}})
}

pub fn annotation(key: &str, value: impl Into<Json>) -> Json {
    json!({"metadata": {"annotations": {key: value.into()}}})
}

pub fn with_marker(mut patch: Json) -> Json {
    patch["metadata"]["annotations"][names::MARKER_ANNOTATION] = json!("{}");
    patch
}

/// What does not hold of a row.
pub async fn check(bed: &Bed, row: &Row) -> Result<()> {
    let (_, actor, method, path, body, verdict) = row;
    let dry = if path.ends_with("/eviction") {
        String::new()
    } else {
        "?dryRun=All".to_owned()
    };
    let path = if method == Method::GET {
        path.clone()
    } else {
        format!("{path}{dry}")
    };
    let answer = bed.ask(*actor, None, method.clone(), &path, body).await?;
    let holds = match verdict {
        Allowed => (200..300).contains(&answer.code),
        Policy(rule) => {
            let message = answer.message();
            answer.code == 403
                && message.contains("ValidatingAdmissionPolicy")
                && message.contains(&format!("denied request: {rule}: "))
        }
        Invalid => answer.code == 422 || answer.code == 400,
        Exists => answer.code == 409,
    };
    ensure!(holds, "not {verdict:?}, but {answer:?}");
    Ok(())
}
