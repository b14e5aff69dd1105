//! What the reconciler may do.

use super::*;

fn row(says: Says, spec: Json, before: Json, change: Change, verdict: Verdict) -> Row {
    (says, Reconciler, spec, before, change, verdict)
}

/// Shadows and their specs.
pub fn specs() -> Vec<Row> {
    vec![
        row("a new shadow, Idle", idle(), Json::Null, Create(json!({})), Allowed),
        row(
            "a new shadow, on its way",
            idle(),
            Json::Null,
            Create(json!({"spec": {"state": "StagedAndPerformedUpdate"}})),
            ByWebhook("reconciler-create"),
        ),
        row(
            "a new shadow of nobody",
            idle(),
            Json::Null,
            Create(json!({"metadata": {"ownerReferences": null}})),
            ByWebhook("reconciler-create"),
        ),
        row("the first step", idle(), at("Idle"), spec(staging()), Allowed),
        row("the grant", staging(), staged(), spec(granted()), Allowed),
        row(
            "an abort",
            granted(),
            staged(),
            spec(json!({"state": "Idle", "reboot_from_boot_id": null})),
            Allowed,
        ),
        row(
            "a reboot without staging",
            idle(),
            at("Idle"),
            spec(rebooting()),
            ByWebhook("reconciler-transition"),
        ),
        row(
            "a soak without a reboot",
            staging(),
            staged(),
            spec(monitoring()),
            ByWebhook("reconciler-transition"),
        ),
        row(
            "ErrorReset asked for",
            staging(),
            staged(),
            spec(json!({"state": "ErrorReset"})),
            BySchema("ErrorReset is a status"),
        ),
        row(
            "a stale term",
            staging(),
            staged(),
            spec(json!({"leader_term": 1})),
            BySchema("no longer leads"),
        ),
        row(
            "no term any more",
            staging(),
            staged(),
            spec(json!({"leader_term": null})),
            BySchema("no longer leads"),
        ),
        row(
            "an attempt that falls",
            staging(),
            staged(),
            spec(json!({"attempt": 6})),
            BySchema("attempt never falls"),
        ),
        row(
            "no owner any more",
            idle(),
            at("Idle"),
            Object(json!({"metadata": {"ownerReferences": null}})),
            ByWebhook("reconciler-owner"),
        ),
    ]
}

/// Conditions, and no other part of a status.
pub fn statuses() -> Vec<Row> {
    vec![
        row("a condition", idle(), at("Idle"), status(conditions("NoUpdate")), Allowed),
        row("a condition before any report", idle(), Json::Null, status(conditions("AgentSilent")), Allowed),
        row(
            "a state in the agent's place",
            staging(),
            at("Idle"),
            state("StagedAndPerformedUpdate"),
            ByWebhook("reconciler-conditions-only"),
        ),
        row(
            "a claim in the agent's place",
            granted(),
            staged(),
            status(json!({"reboot_requested": "b1"})),
            ByWebhook("reconciler-conditions-only"),
        ),
        row("the status by PUT", idle(), at("Idle"), Put(json!({"status": {"message": "m"}})), ByRbac),
        row("a shadow's end", idle(), at("Idle"), Delete, Allowed),
        row("the end of all shadows", idle(), at("Idle"), DeleteAll, ByRbac),
        row(
            "the canary that the webhook refuses",
            idle(),
            at("Idle"),
            DryStatus(json!({"status": {"message": brupop_api::names::canary::STATUS_MESSAGE}})),
            ByWebhook("reconciler-conditions-only"),
        ),
    ]
}

/// Nodes, and what is not its business.
pub fn nodes() -> Vec<Row> {
    let row = |says, change, verdict| row(says, idle(), Json::Null, change, verdict);
    let node = |change| Node("", change);
    let taints = |taints: Json| json!({"spec": {"taints": taints}});
    vec![
        row(
            "a node, excluded, cordoned, tainted and marked",
            node(json!({
                "metadata": {
                    "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"},
                    "annotations": {"brupop.bottlerocket.aws/marker": "{}"},
                },
                "spec": {"unschedulable": true, "taints": [{"key": "brupop.bottlerocket.aws/updating", "effect": "NoSchedule"}]},
            })),
            Allowed,
        ),
        row(
            "the canary that the policy refuses",
            node(json!({"metadata": {"annotations": {brupop_api::names::canary::NODE_ANNOTATION: "x"}}})),
            ByPolicy("reconciler-node-annotations"),
        ),
        row(
            "another label",
            node(json!({"metadata": {"labels": {"a": "b"}}})),
            ByPolicy("reconciler-node-labels"),
        ),
        row(
            "the opt-in taken back",
            node(json!({"metadata": {"labels": {"bottlerocket.aws/updater-interface-version": null}}})),
            ByPolicy("reconciler-node-labels"),
        ),
        row(
            "another taint",
            node(taints(json!([{"key": "a", "effect": "NoExecute"}]))),
            ByPolicy("reconciler-node-taints"),
        ),
        row(
            "our taint, with a sting",
            node(taints(json!([{"key": "brupop.bottlerocket.aws/updating", "effect": "NoExecute"}]))),
            ByPolicy("reconciler-node-taints"),
        ),
        row(
            "a finalizer",
            node(json!({"metadata": {"finalizers": ["a.b/c"]}})),
            ByPolicy("reconciler-node-rest"),
        ),
        row("a provider", node(json!({"spec": {"providerID": "x://y"}})), ByPolicy("reconciler-node-rest")),
        row("a node's status", Node("/status", json!({"status": {"phase": "Running"}})), ByRbac),
        row(
            "a node's end",
            Request(http::Method::DELETE, "/api/v1/nodes/node-0?dryRun=All", Json::Null),
            ByRbac,
        ),
        row(
            "secrets",
            Request(http::Method::GET, "/api/v1/namespaces/{namespace}/secrets", Json::Null),
            ByRbac,
        ),
    ]
}
