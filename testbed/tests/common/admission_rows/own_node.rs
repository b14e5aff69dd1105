//! An agent writes the status of its own node's shadow, and nothing else.

use super::*;

/// Whose shadow, by whose token.
pub fn whose() -> Vec<Row> {
    let report = || json!({"current_state": "Idle", "current_version": "1.19.4", "boot_id": "b1"});
    let message = || json!({"message": "looked for updates"});
    let other_uid = "00000000-0000-4000-8000-000000000000";
    vec![
        ("an agent's first report", Agent, idle(), Json::Null, status(report()), Allowed),
        (
            "an agent's report beside conditions",
            Agent,
            idle(),
            conditions("NoUpdate"),
            status(report()),
            Allowed,
        ),
        ("an agent's news", Agent, idle(), at("Idle"), status(message()), Allowed),
        (
            "an agent's news, as it sends it",
            Agent,
            idle(),
            at("Idle"),
            Status(
                json!([{"op": "test", "path": "/spec/state", "value": "Idle"}, {"op": "add", "path": "/status/message", "value": "m"}]),
            ),
            Allowed,
        ),
        (
            "an agent's news, tried",
            Agent,
            idle(),
            at("Idle"),
            DryStatus(json!({"status": message()})),
            Allowed,
        ),
        (
            "another node's shadow",
            Agent,
            idle(),
            at("Idle"),
            StatusOf(json!({"status": message()})),
            ByBoth("agent-own-node"),
        ),
        ("another node's agent", OtherAgent, idle(), at("Idle"), status(message()), ByBoth("agent-own-node")),
        (
            "another node's agent, tried",
            OtherAgent,
            idle(),
            at("Idle"),
            DryStatus(json!({"status": message()})),
            ByBoth("agent-own-node"),
        ),
        (
            "a token bound to nothing",
            Unbound,
            idle(),
            at("Idle"),
            status(message()),
            ByBoth("agent-identity"),
        ),
        ("a token of another namespace", Elsewhere, idle(), at("Idle"), status(message()), ByRbac),
        (
            "an account with the agents' role",
            Stray,
            idle(),
            at("Idle"),
            status(message()),
            ByWebhook("unknown-account"),
        ),
        ("the webhook's own account", Webhook, idle(), at("Idle"), status(message()), ByRbac),
        (
            "the shadow of a Node that had this name before",
            Agent,
            idle(),
            json!({"owner": other_uid}),
            status(report()),
            ByBoth("agent-node-uid"),
        ),
    ]
}

/// What of it. The API server drops what is not status before anybody is asked.
pub fn what() -> Vec<Row> {
    let other_owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "00000000-0000-4000-8000-000000000000"}]}});
    vec![
        (
            "a condition of its own",
            Agent,
            idle(),
            at("Idle"),
            status(conditions("Fine")),
            ByBoth("agent-own-fields"),
        ),
        (
            "the reconciler's condition, changed",
            Agent,
            idle(),
            explained(),
            status(conditions("Fine")),
            ByBoth("agent-own-fields"),
        ),
        (
            "the whole status removed",
            Agent,
            idle(),
            explained(),
            Status(json!({"status": null})),
            ByBoth("agent-own-fields"),
        ),
        (
            "a spec through the status",
            Agent,
            idle(),
            at("Idle"),
            Status(json!({"spec": {"state": "MonitoringUpdate", "reboot_from_boot_id": "b1"}})),
            Allowed,
        ),
        (
            "owner, finalizer and label through the status",
            Agent,
            idle(),
            at("Idle"),
            Status(merged(
                &other_owner,
                &json!({"metadata": {"finalizers": ["a.b/c"], "labels": {"a": "b"}}}),
            )),
            Allowed,
        ),
        (
            "5,000 characters",
            Agent,
            idle(),
            at("Idle"),
            status(json!({"message": "m".repeat(5000)})),
            BySchema("status.message: Too long"),
        ),
    ]
}

/// By which way.
pub fn how() -> Vec<Row> {
    let message = || json!({"message": "looked for updates"});
    vec![
        ("the spec", Agent, idle(), at("Idle"), spec(json!({"reboot_from_boot_id": "b1"})), ByRbac),
        ("the status by PUT", Agent, idle(), at("Idle"), Put(json!({"status": message()})), ByRbac),
        ("a shadow of its own making", Agent, idle(), Json::Null, Create(json!({})), ByRbac),
        ("its own shadow's end", Agent, idle(), at("Idle"), Delete, ByRbac),
        ("the end of all shadows", Agent, idle(), at("Idle"), DeleteAll, ByRbac),
        (
            "its node, uncordoned",
            Agent,
            idle(),
            at("Idle"),
            Node("", json!({"spec": {"unschedulable": null}})),
            ByRbac,
        ),
        (
            "the fleet's pause",
            Agent,
            idle(),
            at("Idle"),
            Request(
                http::Method::PATCH,
                "/apis/brupop.bottlerocket.aws/v1alpha1/namespaces/{namespace}/bottlerocketfleets/fleet",
                json!({"spec": {"paused": true}}),
            ),
            ByRbac,
        ),
        (
            "a person's hand on the spec",
            Admin,
            staging(),
            at("Idle"),
            spec(json!({"state": "Idle"})),
            Allowed,
        ),
        ("a person's hand on the status", Admin, idle(), at("Idle"), state("ErrorReset"), Allowed),
    ]
}
