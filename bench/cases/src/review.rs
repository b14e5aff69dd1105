//! What the API server sends to the webhook.

use serde_json::{Value, json};

/// The boot of the host.
pub const BOOT: &str = "5c2f7a1e-8a0d-4a5e-9a55-0c7f5bb6a1d2";
/// Who may write the status.
pub const AGENT: &str = "system:serviceaccount:brupop-bottlerocket-aws:brupop-agent";
pub const STRANGER: &str = "system:serviceaccount:brupop-bottlerocket-aws:default";

fn condition(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": "Draining", "message": "2 pods are left to evict",
        "lastTransitionTime": "2026-11-20T09:15:01Z"})
}

fn manager(name: &str, subresource: Option<&str>, fields: &[&str]) -> Value {
    let half = if subresource.is_some() {
        "f:status"
    } else {
        "f:spec"
    };
    let fields: serde_json::Map<_, _> = fields
        .iter()
        .map(|field| (format!("f:{field}"), json!({})))
        .collect();
    json!({"manager": name, "operation": "Update", "apiVersion": "brupop.bottlerocket.aws/v2",
        "time": "2026-11-20T09:15:02Z", "fieldsType": "FieldsV1", "subresource": subresource,
        "fieldsV1": {half: fields}})
}

/// A shadow in the middle of an update, with six conditions and three managers of its fields.
pub fn shadow() -> Value {
    let spec = [
        "state",
        "state_transition_timestamp",
        "version",
        "attempt",
        "leader_term",
        "baseline_boot_id",
    ];
    let status = [
        "current_version",
        "target_version",
        "current_state",
        "attempt",
        "boot_id",
        "staged",
    ];
    let types = [
        "Progressing",
        "Degraded",
        "Drained",
        "Reported",
        "Scheduled",
        "Soaked",
    ];
    json!({
        "apiVersion": "brupop.bottlerocket.aws/v2",
        "kind": "BottlerocketShadow",
        "metadata": {
            "name": "brs-ip-10-0-0-1.ec2.internal",
            "namespace": "brupop-bottlerocket-aws",
            "uid": "0b2e9c4e-65f3-4f0c-8f3d-4b4f4a3e9d11",
            "creationTimestamp": "2026-11-01T08:00:00Z",
            "generation": 17,
            "resourceVersion": "482913",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "ip-10-0-0-1.ec2.internal",
                "uid": "9d7f0f42-1a6c-4a3e-9d2b-2c1d0e5f6a7b"}],
            "managedFields": [
                manager("brupop-reconciler", None, &spec),
                manager("brupop-agent", Some("status"), &status),
                manager("brupop-reconciler-conditions", Some("status"), &["conditions"]),
            ],
        },
        "spec": {"state": "StagedAndPerformedUpdate", "state_transition_timestamp": "2026-11-20T09:14:55Z",
            "version": "1.27.1", "attempt": 7, "leader_term": 12, "baseline_boot_id": BOOT},
        "status": {"current_version": "1.26.0", "target_version": "1.27.1", "current_state": "Idle", "attempt": 7,
            "boot_id": BOOT, "crash_count": 0, "conditions": types.map(condition)},
    })
}

/// The agent has staged the image, and says so in `message`.
pub fn review(user: &str, message: &str) -> Vec<u8> {
    review_of(&shadow(), user, message)
}

/// The same of this shadow.
pub fn review_of(before: &Value, user: &str, message: &str) -> Vec<u8> {
    let mut staged = before.clone();
    staged["status"]["current_state"] = json!("StagedAndPerformedUpdate");
    staged["status"]["staged"] =
        json!({"version": "1.27.1", "at": "2026-11-20T09:15:01.123456789Z"});
    staged["status"]["message"] = json!(message);
    let kind =
        json!({"group": "brupop.bottlerocket.aws", "version": "v2", "kind": "BottlerocketShadow"});
    let resource = json!({"group": "brupop.bottlerocket.aws", "version": "v2", "resource": "bottlerocketshadows"});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "subResource": "status",
            "requestSubResource": "status",
            "name": "brs-ip-10-0-0-1.ec2.internal",
            "namespace": "brupop-bottlerocket-aws",
            "operation": "UPDATE",
            "userInfo": {
                "username": user,
                "uid": "b1f3a1a0-1111-4222-8333-444455556666",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:brupop-bottlerocket-aws",
                    "system:authenticated"],
                "extra": {
                    "authentication.kubernetes.io/credential-id": ["JTI=3f1b0c1e-2222-4333-8444-555566667777"],
                    "authentication.kubernetes.io/node-name": ["ip-10-0-0-1.ec2.internal"],
                    "authentication.kubernetes.io/node-uid": ["9d7f0f42-1a6c-4a3e-9d2b-2c1d0e5f6a7b"],
                    "authentication.kubernetes.io/pod-name": ["brupop-agent-x7k2p"],
                    "authentication.kubernetes.io/pod-uid": ["c0ffee00-3333-4444-8555-666677778888"],
                },
            },
            "object": staged,
            "oldObject": before,
            "dryRun": false,
            "options": {"kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "brupop-agent"},
        },
    });
    serde_json::to_vec(&review).expect("a review")
}
