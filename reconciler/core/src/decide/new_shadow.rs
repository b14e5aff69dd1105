//! How a shadow is made.

use brupop_api::{BottlerocketShadow, BottlerocketShadowSpec, State, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// A new shadow of a node, Idle. From `now` on, its agent has a limited time to report.
pub fn new_shadow(
    node: &str,
    node_uid: &str,
    attempt: Option<u64>,
    term: u64,
    now: &str,
) -> BottlerocketShadow {
    let labels = [
        ("app.kubernetes.io/component", "brupop-shadow"),
        ("app.kubernetes.io/managed-by", "brupop"),
        ("app.kubernetes.io/part-of", "brupop"),
    ];
    let spec = BottlerocketShadowSpec {
        state: State::Idle,
        attempt,
        leader_term: Some(term),
        state_transition_timestamp: Some(now.to_owned()),
        ..BottlerocketShadowSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(names::shadow_name(node)),
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.to_owned(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    };
    BottlerocketShadow { metadata, spec, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_shadow_is_idle_and_its_nodes() {
        let shadow =
            serde_json::to_value(new_shadow("n", "node-uid", Some(3), 7, "2026-11-21T04:00:00Z")).unwrap();
        assert_eq!(shadow["metadata"]["name"], "brs-n");
        assert_eq!(
            shadow["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid"}])
        );
        assert_eq!(
            shadow["spec"],
            json!({"state": "Idle", "attempt": 3, "leader_term": 7,
                "state_transition_timestamp": "2026-11-21T04:00:00Z"})
        );
    }
}
