//! The rules as a table: who, in which situation, changes what, and which rule says so.

mod agent;
mod requests;
mod soundness;

use super::{Change, Rule, Verdict, verdict};
use json_patch::merge;
use kube::core::DynamicObject;
use kube::core::admission::AdmissionRequest;
use serde_json::{Value, json};

const AGENT: &str = "system:serviceaccount:ns:brupop-agent";
const RECONCILER: &str = "system:serviceaccount:ns:brupop-reconciler";
const WEBHOOK: &str = "system:serviceaccount:ns:brupop-webhook";

/// The shadow of node `n` (UID `nu`), with this spec and status.
fn shadow(spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "brupop.bottlerocket.aws/v2",
        "kind": "BottlerocketShadow",
        "metadata": {
            "name": "brs-n",
            "namespace": "ns",
            "uid": "su",
            "generation": 3,
            "resourceVersion": "10",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "nu"}],
            "managedFields": [{"manager": "brupop-agent", "operation": "Update", "subresource": "status"}],
        },
        "spec": spec,
        "status": status,
    })
}

/// What the API server says of a token that is mounted into a pod on node `n`.
fn bound() -> Value {
    json!({
        "authentication.kubernetes.io/node-name": ["n"],
        "authentication.kubernetes.io/node-uid": ["nu"],
        "authentication.kubernetes.io/pod-name": ["p"],
        "authentication.kubernetes.io/pod-uid": ["pu"],
    })
}

/// An update of `sub_resource` (empty for the object itself) by this user, with a token bound to a pod on node `n`.
fn update(user: &str, sub_resource: &str, old: &Value, new: &Value) -> Value {
    json!({
        "uid": "r",
        "kind": {"group": "brupop.bottlerocket.aws", "version": "v2", "kind": "BottlerocketShadow"},
        "resource": {"group": "brupop.bottlerocket.aws", "version": "v2", "resource": "bottlerocketshadows"},
        "subResource": if sub_resource.is_empty() { Value::Null } else { json!(sub_resource) },
        "name": "brs-n",
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": user, "extra": bound()},
        "object": new,
        "oldObject": old,
        "dryRun": false,
    })
}

/// `change` is a merge patch: null takes a field away.
fn changed(before: &Value, change: &Value) -> Value {
    let mut after = before.clone();
    merge(&mut after, change);
    after
}

fn judge(request: Value) -> Verdict {
    let request: AdmissionRequest<DynamicObject> = serde_json::from_value(request).unwrap();
    verdict(&request, &Change::of(&request))
}

fn check(says: &str, request: Value, expected: Rule) {
    let verdict = judge(request);
    assert_eq!(verdict.rule(), expected, "{says}: {:?}", verdict.outcome);
    if let Err(refusal) = verdict.outcome {
        let sentence = refusal.to_string();
        assert!(
            sentence.starts_with(expected.as_str()) && sentence.len() > expected.as_str().len() + 10,
            "{says}: {sentence}"
        );
    }
}
