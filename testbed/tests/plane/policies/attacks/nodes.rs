//! The reconciler and Nodes.

use super::*;

const TAINT: &str = names::UPDATING_TAINT;
const DO_NOT_DISRUPT: &str = names::DO_NOT_DISRUPT_ANNOTATION;
const SCALE_DOWN: &str = names::SCALE_DOWN_DISABLED_ANNOTATION;
const EXCLUDE: &str = names::EXCLUDE_FROM_LB_LABEL;

/// The reconciler and Nodes.
pub fn nodes() -> Vec<Row> {
    [service(), metadata(), taints(), rest(), methods()].concat()
}

fn on(node: &str, says: &'static str, patch: Json, verdict: Verdict) -> Row {
    (
        says,
        Reconciler,
        Method::PATCH,
        format!("{NODES}/{node}"),
        patch,
        verdict,
    )
}

fn marked(says: &'static str, patch: Json, verdict: Verdict) -> Row {
    on("in", says, with_marker(patch), verdict)
}

/// Out of service and back.
fn service() -> Vec<Row> {
    let (unmarked, uninvited) = (
        Policy("reconciler-node-marker"),
        Policy("reconciler-node-opted-in"),
    );
    let ours = json!([{"key": TAINT, "effect": "PreferNoSchedule"}]);
    let excluded = |value: Json| label(EXCLUDE, value);
    let (cordoned, uncordoned) = (
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"unschedulable": null}}),
    );
    let undo = json!({
        "metadata": {
            "annotations": {names::MARKER_ANNOTATION: null, DO_NOT_DISRUPT: null}, "labels": {EXCLUDE: null},
        },
        "spec": {"unschedulable": null, "taints": null},
    });
    let mut all = excluded(json!("true"));
    all["spec"] = json!({"unschedulable": true});
    vec![
        marked("taken out of service, and marked", all, Allowed),
        on(
            "in",
            "out of service, not marked",
            cordoned.clone(),
            unmarked,
        ),
        on(
            "in",
            "excluded, not marked",
            excluded(json!("true")),
            unmarked,
        ),
        // Not opted in, and not marked: also not if somebody took it out of service.
        on(
            "out",
            "out of service, never opted in",
            with_marker(cordoned.clone()),
            uninvited,
        ),
        on(
            "out",
            "a marker where none is wanted",
            with_marker(json!({})),
            uninvited,
        ),
        on(
            "left-cordoned",
            "another's cordon taken back",
            with_marker(uncordoned),
            uninvited,
        ),
        on(
            "left-excluded",
            "behind load balancers again",
            with_marker(excluded(Json::Null)),
            uninvited,
        ),
        on(
            "left-excluded",
            "cordoned, for it is excluded",
            with_marker(cordoned.clone()),
            uninvited,
        ),
        // No longer opted in: what was done to it may be taken back, and no more.
        on(
            "left-marked",
            "put back into service, no longer opted in",
            undo,
            Allowed,
        ),
        on(
            "left-marked",
            "the marker alone, no longer opted in",
            with_marker(json!({"spec": {}})),
            Allowed,
        ),
        on(
            "left-marked",
            "excluded in other words",
            excluded(json!("x")),
            uninvited,
        ),
        on(
            "left-in-service",
            "cordoned, no longer opted in",
            cordoned,
            uninvited,
        ),
        on(
            "left-in-service",
            "excluded, no longer opted in",
            excluded(json!("true")),
            uninvited,
        ),
        on(
            "left-in-service",
            "tainted, no longer opted in",
            json!({"spec": {"taints": ours}}),
            uninvited,
        ),
    ]
}

fn metadata() -> Vec<Row> {
    let (labels, annotations) = (
        Policy("reconciler-node-labels"),
        Policy("reconciler-node-annotations"),
    );
    let uninvited = Policy("reconciler-node-opted-in");
    let (kept, check) = (
        annotation(SCALE_DOWN, "true"),
        annotation(names::admission_check::NODE_ANNOTATION, "x"),
    );
    vec![
        marked("another label", label("x", "y"), labels),
        marked("a label changed", label("a", "c"), labels),
        marked("a label removed", label("a", ()), labels),
        marked("another annotation", annotation("x", "y"), annotations),
        marked("an annotation removed", annotation("c", ()), annotations),
        marked(
            "a retry that is past, removed",
            annotation(names::RETRY_ANNOTATION, ()),
            Allowed,
        ),
        marked(
            "a retry of another attempt",
            annotation(names::RETRY_ANNOTATION, "6"),
            annotations,
        ),
        on(
            "left-in-service",
            "a retry",
            annotation(names::RETRY_ANNOTATION, "5"),
            annotations,
        ),
        marked(
            "a request that has been met, removed",
            annotation(names::UPDATE_NOW_ANNOTATION, ()),
            Allowed,
        ),
        on(
            "left-in-service",
            "a request",
            annotation(names::UPDATE_NOW_ANNOTATION, "true"),
            annotations,
        ),
        marked("no autoscaler removes it", kept.clone(), Allowed),
        marked("in other words", annotation(SCALE_DOWN, "x"), annotations),
        marked(
            "somebody's words changed",
            annotation(DO_NOT_DISRUPT, "true"),
            annotations,
        ),
        marked(
            "somebody's words removed",
            annotation(DO_NOT_DISRUPT, ()),
            annotations,
        ),
        on(
            "left-marked",
            "no autoscaler removes it, no longer opted in",
            kept,
            uninvited,
        ),
        on(
            "in",
            "the check",
            check,
            Policy(names::admission_check::NODE_RULE),
        ),
    ]
}

fn taints() -> Vec<Row> {
    let taints =
        |says, taints: Json, verdict| marked(says, json!({"spec": {"taints": taints}}), verdict);
    let a = json!({"key": "a", "effect": "NoSchedule"});
    let b = json!({"key": "b", "value": "c", "effect": "NoExecute"});
    let ours = json!({"key": TAINT, "effect": "PreferNoSchedule"});
    let valued = json!({"key": TAINT, "value": "x", "effect": "PreferNoSchedule"});
    let late = json!({"key": TAINT, "effect": "PreferNoSchedule", "timeAdded": "9999-12-31T23:59:59-23:59"});
    let sting = json!({"key": TAINT, "effect": "NoExecute"});
    let rule = Policy("reconciler-node-taints");
    vec![
        taints("our taint among the others", json!([a, ours, b]), Allowed),
        taints("taints in another order", json!([b, a]), rule),
        taints("a taint removed", json!([a]), rule),
        taints(
            "another taint",
            json!([a, b, {"key": "x", "effect": "NoExecute"}]),
            rule,
        ),
        taints("ours, with a sting", json!([a, b, sting]), rule),
        taints("ours, with a value", json!([a, b, valued]), rule),
        taints("ours, of the year 10000", json!([a, b, late]), rule),
        taints("ours, twice over", json!([a, b, ours, sting]), rule),
    ]
}

/// What else a Node has.
fn rest() -> Vec<Row> {
    let op = |says, op: &str, path: &str, value: Json, verdict| {
        let mark = json!({"op": "add", "path": "/metadata/annotations/brupop.bottlerocket.aws~1marker", "value": "{}"});
        on(
            "in",
            says,
            json!([mark, {"op": op, "path": path, "value": value}]),
            verdict,
        )
    };
    let rest = Policy("reconciler-node-rest");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "out", "uid": "u"}]);
    let record = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {}}}, "time": "9999-12-31T23:59:59-23:59"}]);
    let addresses = json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}});
    let (late, records) = ("times that nobody can take back", "/metadata/managedFields");
    vec![
        marked(
            "another provider",
            json!({"spec": {"providerID": "x://z"}}),
            Invalid,
        ),
        marked(
            "the provider removed",
            json!({"spec": {"providerID": null}}),
            Invalid,
        ),
        on(
            "left-marked",
            "a provider",
            json!({"spec": {"providerID": "x://z"}}),
            rest,
        ),
        marked("addresses of pods", addresses, rest),
        op(
            "a finalizer",
            "add",
            "/metadata/finalizers",
            json!(["a.b/c"]),
            rest,
        ),
        op("an owner", "add", "/metadata/ownerReferences", owner, rest),
        op(
            late,
            "replace",
            records,
            record,
            Policy("reconciler-node-managed-fields"),
        ),
        op(
            "another name",
            "replace",
            "/metadata/name",
            json!("other"),
            Invalid,
        ),
    ]
}

/// Other ways than a patch.
fn methods() -> Vec<Row> {
    let node = |name: &str, more: Json| {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        json_patch::merge(&mut node, &more);
        node
    };
    let (put, rule) = (
        node("out", json!({"spec": {"providerID": "x://y"}})),
        Policy("reconciler-node"),
    );
    vec![
        by(
            "a Node by PUT",
            Method::PUT,
            format!("{NODES}/out"),
            put,
            Policy("reconciler-node-rest"),
        ),
        by(
            "a new Node",
            Method::POST,
            NODES.to_owned(),
            node("new", json!({})),
            rule,
        ),
        by(
            "a Node's end",
            Method::DELETE,
            format!("{NODES}/in"),
            Json::Null,
            rule,
        ),
        by(
            "all Nodes' end",
            Method::DELETE,
            NODES.to_owned(),
            Json::Null,
            rule,
        ),
    ]
}
