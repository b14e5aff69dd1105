//! Reading objects as they are stored.

use serde_json::Value as Json;

/// Ours, and named after what they are; written down here once more, so that a change of ours is noticed.
const MARKER: &str = "/metadata/annotations/brupop.bottlerocket.aws~1marker";
pub(crate) const COMPONENT: &str = "/metadata/labels/brupop.bottlerocket.aws~1component";
pub(crate) const EXCLUDED: &str =
    "/metadata/labels/node.kubernetes.io~1exclude-from-external-load-balancers";

pub(crate) fn text<'a>(object: &'a Json, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Json::as_str)
        .unwrap_or_default()
}

pub(crate) fn number(object: &Json, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Json::as_u64)
}

pub(crate) fn is_set(object: &Json, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .is_some_and(|value| !value.is_null())
}

/// The annotation in which the operator says what it changed on a Node; null if there is none.
pub(crate) fn marker(node: &Json) -> Json {
    serde_json::from_str(text(node, MARKER)).unwrap_or_default()
}

/// Whether the node is in service again and this marker only keeps autoscalers away.
pub(crate) fn is_only_kept(marker: &Json) -> bool {
    let changes = ["cordoned_at", "excluded_at", "drain_started_at", "tainted"];
    marker["kept_since"].is_string() && changes.iter().all(|field| marker[field].is_null())
}

pub(crate) fn is_cordoned(node: &Json) -> bool {
    node.pointer("/spec/unschedulable") == Some(&Json::Bool(true))
}

pub(crate) fn condition<'a>(object: &'a Json, kind: &str) -> Option<&'a Json> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

pub(crate) fn is_ready(object: &Json) -> bool {
    condition(object, "Ready").is_some_and(|condition| condition["status"] == "True")
}

/// Whether this ledger halts the version for the variant of this node.
pub(crate) fn is_halted(ledger: &Json, version: &str, node: &Json) -> bool {
    let image = text(node, "/status/nodeInfo/osImage");
    let variant = image.split(['(', ')']).nth(1).unwrap_or("unknown");
    let variant = match text(node, "/status/nodeInfo/architecture") {
        "" => variant.to_owned(),
        architecture => format!("{variant}-{architecture}"),
    };
    let records = ledger.pointer("/status/versions").and_then(Json::as_array);
    records.into_iter().flatten().any(|record| {
        record["version"] == version && record["variant"] == variant && is_set(record, "/haltedAt")
    })
}

/// Name of the node that this shadow is of.
pub(crate) fn node_of(shadow: &str) -> &str {
    shadow.strip_prefix("brs-").unwrap_or(shadow)
}

/// Name of the shadow of this node.
pub(crate) fn shadow_of(node: &str) -> String {
    format!("brs-{node}")
}

/// Members of an object, in order.
pub(crate) fn members<'a>(
    object: &'a Json,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Json)> {
    object
        .pointer(pointer)
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Json;

    /// A patch in the audit log, of this object, and what else its line says.
    pub(crate) fn event(
        resource: &str,
        subresource: &str,
        name: &str,
        more: &Json,
    ) -> brupop_testbed::audit::Event {
        let time = "2026-01-01T00:00:00Z";
        let mut line = serde_json::json!({
            "stage": "ResponseComplete", "requestURI": "/x", "verb": "patch", "user": {"username": "u"},
            "objectRef": {"resource": resource, "subresource": subresource, "name": name},
            "responseStatus": {"code": 200}, "requestReceivedTimestamp": time, "stageTimestamp": time,
        });
        for (field, value) in more.as_object().unwrap() {
            line[field] = value.clone();
        }
        serde_json::from_value(line).unwrap()
    }
}
