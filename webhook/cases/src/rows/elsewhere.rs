//! What is no shadow: Nodes, the fleet, and what is nobody's business here. RBAC and the policies say; the webhook is
//! not asked.

use crate::actor::Actor::{Agent, Reconciler, Webhook};
use crate::ask::Ask;
use crate::row::Row;
use crate::row::Verdict::{Allowed, ByPolicy, ByRbac};
use crate::situations::known;
use brupop_api::names;
use http::Method;
use serde_json::{Value, json};

/// A patch of node-0.
fn node(body: Value) -> Ask {
    Ask::Other(Method::PATCH, "/api/v1/nodes/node-0", body)
}

/// A patch of node-0 that also writes the marker, in which stands what the reconciler changes.
fn marked(body: &Value) -> Ask {
    let mut patch = body.clone();
    patch["metadata"]["annotations"] = json!({names::MARKER_ANNOTATION: "{}"});
    node(patch)
}

/// The reconciler's patches of Nodes; as dry runs.
pub(super) fn nodes() -> Vec<Row> {
    let taints =
        |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "effect": effect}]}});
    let out_of_service = json!({
        "metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}},
        "spec": {"unschedulable": true,
            "taints": [{"key": "brupop.bottlerocket.aws/updating", "effect": "PreferNoSchedule"}]}});
    let check =
        json!({"metadata": {"annotations": {names::admission_check::NODE_ANNOTATION: "x"}}});
    let opted_out =
        json!({"metadata": {"labels": {"bottlerocket.aws/updater-interface-version": null}}});
    let status = Ask::Other(
        Method::PATCH,
        "/api/v1/nodes/node-0/status",
        json!({"status": {"phase": "Running"}}),
    );
    let end = Ask::Other(Method::DELETE, "/api/v1/nodes/node-0", Value::Null);
    rows! {
        "a node out of service": Reconciler, known(), marked(&out_of_service) => Allowed, dry();
        "the check that the policy refuses": Reconciler, known(), node(check)
            => ByPolicy("reconciler-node-annotations"), dry();
        "another label of a node": Reconciler, known(), marked(&json!({"metadata": {"labels": {"a": "b"}}}))
            => ByPolicy("reconciler-node-labels"), dry();
        "the opt-in taken back": Reconciler, known(), marked(&opted_out) => ByPolicy("reconciler-node-labels"), dry();
        "another taint of a node": Reconciler, known(), marked(&taints("a", "NoExecute"))
            => ByPolicy("reconciler-node-taints"), dry();
        "our taint, with a sting": Reconciler, known(), marked(&taints("brupop.bottlerocket.aws/updating", "NoExecute"))
            => ByPolicy("reconciler-node-taints"), dry();
        "a node's finalizer": Reconciler, known(), marked(&json!({"metadata": {"finalizers": ["a.b/c"]}}))
            => ByPolicy("reconciler-node-rest"), dry();
        "a node's provider": Reconciler, known(), marked(&json!({"spec": {"providerID": "x://y"}}))
            => ByPolicy("reconciler-node-rest"), dry();
        "a node's status": Reconciler, known(), status => ByRbac, dry();
        "a node's end": Reconciler, known(), end.clone() => ByRbac, dry();
        "its node's cordon, by an agent": Agent, known(), node(json!({"spec": {"unschedulable": null}})) => ByRbac, dry();
        "its node's end, by an agent": Agent, known(), end => ByRbac, dry();
        "a node's label, by the webhook": Webhook, known(), node(json!({"metadata": {"labels": {"a": "b"}}}))
            => ByRbac, dry();
    }
}

/// Other resources of the namespace.
pub(super) fn others() -> Vec<Row> {
    let get = |path| Ask::Other(Method::GET, path, Value::Null);
    let fleet =
        "/apis/brupop.bottlerocket.aws/v1alpha1/namespaces/{namespace}/bottlerocketfleets/fleet";
    let pause = || Ask::Other(Method::PATCH, fleet, json!({"spec": {"paused": true}}));
    let secrets = "/api/v1/namespaces/{namespace}/secrets";
    let pods = "/api/v1/namespaces/{namespace}/pods";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    rows! {
        "the fleet's pause, by an agent": Agent, known(), pause() => ByRbac, dry();
        "the fleet's pause, by the webhook": Webhook, known(), pause() => ByRbac, dry();
        "Secrets, by an agent": Agent, known(), get(secrets) => ByRbac;
        "Secrets, by the reconciler": Reconciler, known(), get(secrets) => ByRbac;
        "Secrets, by the webhook": Webhook, known(), get(secrets) => ByRbac;
        "pods, by an agent": Agent, known(), get(pods) => ByRbac;
        "pods, by the webhook": Webhook, known(), get(pods) => ByRbac;
        "leases, by an agent": Agent, known(), get(leases) => ByRbac;
        "shadows, read by an agent": Agent, known(),
            get("/apis/brupop.bottlerocket.aws/v2/namespaces/{namespace}/bottlerocketshadows") => Allowed;
        "shadows of another namespace, by an agent": Agent, known(),
            get("/apis/brupop.bottlerocket.aws/v2/namespaces/default/bottlerocketshadows") => ByRbac;
        "the policies' end, by the reconciler": Reconciler, known(), Ask::Other(Method::DELETE, policies, Value::Null)
            => ByRbac, dry();
        "the policies' end, by the webhook": Webhook, known(), Ask::Other(Method::DELETE, policies, Value::Null)
            => ByRbac, dry();
    }
}
