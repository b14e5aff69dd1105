//! The `AdmissionReview` that the API server would send about a row, were it to come that far.

use crate::ask::Ask;
use crate::row::{Row, merged};
use crate::world::World;
use brupop_api::BottlerocketShadow;
use kube::Resource as _;
use serde_json::{Value, json};

/// The review of this row on paper; none if the webhook is not asked about it, or if the API server itself could not make
/// anything of it.
pub fn review(row: &Row) -> Option<Value> {
    if !row.passes_the_webhook() {
        return None;
    }
    let world = World::on_paper();
    let mut before = row.shadow(&world);
    let kept = json!({
        "uid": "00000000-0000-4000-8000-0000000000bb",
        "resourceVersion": "10",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [
            {"manager": "brupop-reconciler", "operation": "Update", "apiVersion": BottlerocketShadow::api_version(&()),
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:state": {}}}},
            {"manager": "brupop-agent", "operation": "Update", "apiVersion": BottlerocketShadow::api_version(&()),
                "subresource": "status", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:message": {}}}},
        ],
    });
    json_patch::merge(&mut before["metadata"], &kept);
    let after = row.after(&before)?;
    let (operation, old, new) = match &row.ask {
        Ask::Create(_) => ("CREATE", Value::Null, after.clone()),
        Ask::Delete | Ask::DeleteAll => ("DELETE", before.clone(), Value::Null),
        Ask::Update { .. } => ("UPDATE", before.clone(), after.clone()),
    };
    // Of a deletion of all there is one review an object, each without a name; a generated name is filled in.
    let name = match (&row.ask, &after["metadata"]["generateName"]) {
        (Ask::DeleteAll, _) => json!(""),
        (Ask::Create(_), Value::String(begin)) => json!(format!("{begin}x7f2q")),
        (Ask::Create(_), _) => after["metadata"]["name"].clone(),
        _ => before["metadata"]["name"].clone(),
    };
    let (kind, resource) = ("BottlerocketShadow", "bottlerocketshadows");
    let mut request = json!({
        "uid": "00000000-0000-4000-8000-0000000000cc",
        "kind": {"group": "brupop.bottlerocket.aws", "version": BottlerocketShadow::version(&()), "kind": kind},
        "resource": {"group": "brupop.bottlerocket.aws", "version": BottlerocketShadow::version(&()), "resource": resource},
        "name": name,
        "namespace": world.namespace,
        "operation": operation,
        "userInfo": row.actor.user_info(&world),
        "object": new,
        "oldObject": old,
        "dryRun": row.dry_run,
    });
    if !row.ask.sub_resource().is_empty() {
        request["subResource"] = json!(row.ask.sub_resource());
    }
    if !row.as_if.is_null() {
        request = merged(&request, &row.as_if);
    }
    Some(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}),
    )
}
