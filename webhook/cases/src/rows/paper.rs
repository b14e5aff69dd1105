//! For the verdict alone: what the API server of the test bed would never ask, and yet must not be let through.

use crate::actor::Actor::{Admin, Agent, Reconciler, Webhook};
use crate::ask::Ask;
use crate::row::Row;
use crate::row::Verdict::{Allowed, ByBoth, ByWebhook};
use crate::situations::{idle, known, message, missing, object, spec, staging, status};
use crate::world::World;
use serde_json::{Map, Value, json};

fn claims(change: &[(&str, Value)]) -> Value {
    let key = |claim: &str| format!("authentication.kubernetes.io/{claim}");
    let keyed: Map<_, _> = change
        .iter()
        .map(|(claim, value)| (key(claim), value.clone()))
        .collect();
    json!({"userInfo": {"extra": keyed}})
}

/// Claims that no token has.
pub(super) fn tokens() -> Vec<Row> {
    let unknown = || ByBoth("agent-identity");
    let world = World::on_paper();
    let uid = |uid: &str| claims(&[("node-uid", json!([uid]))]);
    let named = |name: &str| json!({"userInfo": {"username": format!("system:serviceaccount:{}:{name}", world.namespace)}});
    rows! {
        "no userInfo.extra": Agent, known(), message() => unknown(), as_if: json!({"userInfo": {"extra": null}});
        "two node names": Agent, known(), message() => unknown(), as_if: claims(&[("node-name", json!(["node-0", "node-1"]))]);
        "the same node name twice": Agent, known(), message()
            => unknown(), as_if: claims(&[("node-name", json!(["node-0", "node-0"]))]);
        "two node UIDs": Agent, known(), message() => unknown(), as_if: claims(&[("node-uid", json!(["a", "b"]))]);
        "two pod names": Agent, known(), message() => unknown(), as_if: claims(&[("pod-name", json!(["a", "b"]))]);
        "two pod UIDs": Agent, known(), message() => unknown(), as_if: claims(&[("pod-uid", json!(["a", "b"]))]);
        "no node name": Agent, known(), message() => unknown(), as_if: claims(&[("node-name", Value::Null)]);
        "no node UID": Agent, known(), message() => unknown(), as_if: claims(&[("node-uid", Value::Null)]);
        "no pod name": Agent, known(), message() => unknown(), as_if: claims(&[("pod-name", Value::Null)]);
        "no pod UID": Agent, known(), message() => unknown(), as_if: claims(&[("pod-uid", Value::Null)]);
        "an empty node name": Agent, known(), message() => unknown(), as_if: claims(&[("node-name", json!([""]))]);
        "an empty node UID": Agent, known(), message() => unknown(), as_if: claims(&[("node-uid", json!([""]))]);
        "a pod name without value": Agent, known(), message() => unknown(), as_if: claims(&[("pod-name", json!([]))]);
        "another node UID": Agent, known(), message() => ByBoth("agent-node-uid"), as_if: uid("another");
        "a node whose name begins alike": Agent, known(), message()
            => ByBoth("agent-own-node"), as_if: claims(&[("node-name", json!(["node-00"]))]);
        "an account with prefix and suffix": Agent, known(), message() => Allowed, as_if: named("team-brupop-agent-blue");
        "an account that is agent and reconciler by name": Agent, known(), message()
            => Allowed, as_if: named("brupop-reconciler-brupop-agent");
        "an account that is agent and reconciler by name, on a spec": Agent, known(), spec(staging())
            => ByBoth("agent-status-only"), as_if: named("brupop-reconciler-brupop-agent");
        "the default account": Agent, known(), message() => ByBoth("unknown-account"), as_if: named("default");
        "an agent of another namespace": Agent, known(), message()
            => Allowed, as_if: json!({"userInfo": {"username": "system:serviceaccount:other:brupop-agent"}}), alone: Some("outsider");
        "an agent of a namespace whose name begins alike": Agent, known(), message()
            => Allowed, as_if: json!({"userInfo": {"username": format!("system:serviceaccount:{}2:brupop-agent", world.namespace)}}),
            alone: Some("outsider");
        "nobody": Agent, known(), message() => Allowed, as_if: json!({"userInfo": {"username": null}}), alone: Some("outsider");
    }
}

/// Objects that the API server would not hand on as they are.
pub(super) fn objects() -> Vec<Row> {
    let new = |change: Value| json!({"object": change});
    let foreign = || ByBoth("agent-own-fields");
    rows! {
        "a state that the spec does not ask for, in the same patch as the spec": Agent, known(), message()
            => foreign(), as_if: new(json!({"spec": {"state": "MonitoringUpdate"}}));
        "a grant in the same patch": Agent, known(), message()
            => foreign(), as_if: new(json!({"spec": {"reboot_granted_boot_id": "b1"}}));
        "a finalizer in the same patch": Agent, known(), message()
            => foreign(), as_if: new(json!({"metadata": {"finalizers": ["a.b/c"]}}));
        "a label in the same patch": Agent, known(), message()
            => Allowed, as_if: new(json!({"metadata": {"labels": {"a": "b"}}}));
        "an owner removed in the same patch": Agent, known(), message()
            => foreign(), as_if: new(json!({"metadata": {"ownerReferences": null}}));
        "another name in the same patch": Agent, known(), message()
            => foreign(), as_if: new(json!({"metadata": {"name": "brs-node-1"}}));
        "a field beside spec and status": Agent, known(), message() => foreign(), as_if: new(json!({"data": {"a": "b"}}));
        "a field of the status that nobody knows": Agent, known(), message()
            => foreign(), as_if: new(json!({"status": {"owner": "me"}}));
        "no new object": Agent, known(), message() => foreign(), as_if: json!({"object": null});
        "no old object": Agent, known(), message() => ByBoth("agent-node-uid"), as_if: json!({"oldObject": null});
        "what the API server counts itself": Agent, known(), message()
            => Allowed, as_if: new(json!({"metadata": {"resourceVersion": "11", "generation": 4, "managedFields": []}}));
        "a message that was too long before, kept": Agent,
            (idle(), json!({"current_state": "Idle", "message": "m".repeat(2000)})), status(json!({"boot_id": "b2"}))
            => Allowed, as_if: json!({"dryRun": true});
    }
}

/// Kinds, versions, operations and sub-resources that are not.
pub(super) fn kinds() -> Vec<Row> {
    let version =
        |version: &str| json!({"kind": {"version": version}, "resource": {"version": version}});
    let fleet = || json!({"kind": {"kind": "BottlerocketFleet"}, "resource": {"resource": "bottlerocketfleets"}});
    let unknown = || ByWebhook("unknown-kind");
    let agents = || ByBoth("agent-status-only");
    let creation = json!({"operation": "CREATE", "oldObject": null});
    rows! {
        "v1": Agent, known(), message() => unknown(), as_if: version("v1");
        "v3": Agent, known(), message() => unknown(), as_if: version("v3");
        "v3 of the resource only": Agent, known(), message() => unknown(), as_if: json!({"resource": {"version": "v3"}});
        "another kind": Agent, known(), message() => unknown(), as_if: fleet();
        "another group": Agent, known(), message() => unknown(), as_if: json!({"kind": {"group": "example.com"}});
        "another kind, by the reconciler": Reconciler, known(), object(json!({})) => unknown(), as_if: fleet();
        "v3, by the reconciler": Reconciler, known(), object(json!({})) => unknown(), as_if: version("v3");
        "v3, by the webhook": Webhook, known(), object(json!({})) => unknown(), as_if: version("v3");
        "v3, by a person": Admin, known(), object(json!({})) => unknown(), as_if: version("v3");
        "another sub-resource": Agent, known(), message() => agents(), as_if: json!({"subResource": "scale"});
        "a status created": Agent, known(), message() => agents(), as_if: creation;
        "connecting": Agent, known(), message() => agents(), as_if: json!({"operation": "CONNECT"});
    }
}

/// Returns what no reconciler of ours would ask.
pub(super) fn reconciler() -> Vec<Row> {
    let unknown = || ByWebhook("unknown-request");
    let unreadable = || json!({"oldObject": {"spec": {"state": "StagedUpdate"}}});
    let from_error = |to: &str| json!({"oldObject": {"spec": {"state": "ErrorReset"}}, "object": {"spec": {"state": to}}});
    let no_uid = json!({"object": {"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": ""}]}}});
    let creation = json!({"operation": "CREATE", "subResource": "status", "oldObject": null});
    rows! {
        "another sub-resource, by the reconciler": Reconciler, known(), object(json!({}))
            => unknown(), as_if: json!({"subResource": "scale"});
        "connecting, by the reconciler": Reconciler, known(), object(json!({})) => unknown(), as_if: json!({"operation": "CONNECT"});
        "a status created, by the reconciler": Reconciler, known(), object(json!({})) => unknown(), as_if: creation;
        "from what cannot be read back to Idle": Reconciler, known(), object(json!({}))
            => ByWebhook("unreadable"), as_if: unreadable();
        "from ErrorReset to Idle": Reconciler, known(), object(json!({})) => Allowed, as_if: from_error("Idle");
        "from ErrorReset onwards": Reconciler, known(), object(json!({}))
            => ByWebhook("reconciler-transition"), as_if: from_error("StagedAndPerformedUpdate");
        "a new shadow of a Node without UID": Reconciler, missing(), Ask::Create(json!({}))
            => ByWebhook("reconciler-create"), as_if: no_uid;
    }
}
