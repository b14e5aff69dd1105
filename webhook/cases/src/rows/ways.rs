//! Rows for every verb and sub-resource.

use crate::actor::Actor::{self, Admin, Agent, Reconciler, Stray, Webhook};
use crate::ask::{Ask, Way};
use crate::row::Row;
use crate::row::Verdict::{Allowed, ByBoth, ByPolicy, ByRbac, ByWebhook};
use crate::situations::{
    at, conditions, explained, idle, known, missing, staged, staging, through_status,
};
use serde_json::{Value, json};

fn by(way: Way, sub_resource: &'static str, body: Value) -> Ask {
    Ask::Update {
        sub_resource,
        way,
        body,
    }
}

fn news() -> Value {
    json!({"status": {"message": "looked for updates"}})
}

fn generated() -> Ask {
    Ask::Create(json!({"metadata": {"name": null, "generateName": "brs-"}}))
}

/// An agent patches `/status`. The rest it has no right to, and with the right it would be refused.
pub(super) fn of_agents() -> Vec<Row> {
    let behind = || ByBoth("agent-status-only");
    let before = || (idle(), explained());
    let tested = json!([
        {"op": "test", "path": "/spec/state", "value": "Idle"},
        {"op": "test", "path": "/metadata/name", "value": "brs-node-0"},
        {"op": "add", "path": "/status/message", "value": "m"}]);
    let removed = || json!([{"op": "remove", "path": "/status"}]);
    let condition =
        json!([{"op": "replace", "path": "/status/conditions/0/reason", "value": "Fine"}]);
    let metadata = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "replace", "path": "/spec/state", "value": "MonitoringUpdate"}]);
    rows! {
        "the status by JSON patch, as agents send it": Agent, known(), by(Way::JsonPatch, "status", tested) => Allowed;
        "the status by server-side apply": Agent, known(), by(Way::Apply, "status", news())
            => ByPolicy("agent-field-manager");
        "the status by PUT": Agent, known(), by(Way::Put, "status", news()) => ByRbac, behind: Some(Allowed);
        "a condition by JSON patch": Agent, before(), by(Way::JsonPatch, "status", condition)
            => ByBoth("agent-own-fields");
        "a condition by server-side apply": Agent, known(), by(Way::Apply, "status", json!({"status": conditions("Fine")}))
            => ByBoth("agent-own-fields");
        "spec and metadata by JSON patch of the status": Agent, known(), by(Way::JsonPatch, "status", metadata)
            => Allowed, stores_nothing: true;
        "spec by server-side apply of the status": Agent, known(), by(Way::Apply, "status", json!({"spec": {"attempt": 9}}))
            => ByPolicy("agent-field-manager"), stores_nothing: true;
        "the whole status removed, with what the reconciler said in it": Agent, before(),
            through_status(json!({"status": null})) => ByBoth("agent-own-fields");
        "the same by JSON patch": Agent, before(), by(Way::JsonPatch, "status", removed()) => ByBoth("agent-own-fields");
        "the whole status removed, an attempt ahead of the spec in it": Agent, known(), through_status(json!({"status": null}))
            => ByWebhook("agent-transition");
        "the whole status removed, the state in it": Agent, (idle(), json!({"current_state": "Idle"})),
            by(Way::JsonPatch, "status", removed()) => ByWebhook("agent-transition");
        "the object by merge patch": Agent, known(), by(Way::Merge, "", news()) => ByRbac, behind: Some(behind());
        "a shadow created": Agent, missing(), Ask::Create(json!({})) => ByRbac, behind: Some(behind());
        "a shadow created under a generated name": Agent, missing(), generated() => ByRbac, behind: Some(behind());
        "its own shadow deleted": Agent, known(), Ask::Delete => ByRbac, behind: Some(behind());
        "all shadows deleted": Agent, known(), Ask::DeleteAll => ByRbac, behind: Some(behind());
    }
}

/// The ways of everybody but the agents.
pub(super) fn of_others() -> Vec<Row> {
    let condition = || json!({"status": conditions("NoUpdate")});
    let mut rows = rows! {
        "conditions by server-side apply, as the reconciler sends them": Reconciler, known(),
            by(Way::Apply, "status", condition()) => Allowed;
        "conditions by server-side apply, before any report": Reconciler, (idle(), Value::Null),
            by(Way::Apply, "status", condition()) => Allowed;
        "conditions by merge patch": Reconciler, known(), by(Way::Merge, "status", condition()) => Allowed;
        "conditions by PUT": Reconciler, known(), by(Way::Put, "status", condition()) => ByRbac, behind: Some(Allowed);
        "the object by PUT, by the reconciler": Reconciler, known(), by(Way::Put, "", json!({"spec": {"attempt": 8}}))
            => ByRbac, behind: Some(Allowed);
        "the spec by server-side apply, by the reconciler": Reconciler, known(),
            by(Way::Apply, "", json!({"spec": {"state": "Idle", "attempt": 8}})) => Allowed;
        "the grant by JSON patch, as the reconciler sends it": Reconciler, (staging(), staged()),
            by(Way::JsonPatch, "", json!([
                {"op": "test", "path": "/status/current_state", "value": "StagedAndPerformedUpdate"},
                {"op": "test", "path": "/spec/state", "value": "StagedAndPerformedUpdate"},
                {"op": "replace", "path": "/spec/state", "value": "RebootedIntoUpdate"},
                {"op": "add", "path": "/spec/reboot_granted_boot_id", "value": "b1"}])) => Allowed;
        "a step left out by JSON patch": Reconciler, (json!({"state": "Idle", "attempt": 7}), at("Idle")),
            by(Way::JsonPatch, "", json!([{"op": "replace", "path": "/spec/state", "value": "MonitoringUpdate"}]))
            => ByWebhook("reconciler-transition");
        "a shadow deleted": Reconciler, known(), Ask::Delete => Allowed;
        "all shadows deleted, by the reconciler": Reconciler, known(), Ask::DeleteAll => ByRbac, behind: Some(Allowed);
        "a shadow deleted, by a person": Admin, known(), Ask::Delete => Allowed;
        "a shadow created, by a person": Admin, missing(), Ask::Create(json!({})) => Allowed;
    };
    for (actor, rule) in [(Webhook, "webhook-nothing"), (Stray, "unknown-account")] {
        rows.extend(every_way(actor, rule));
    }
    rows
}

/// Returns rows in which an actor without rights on shadows is refused, whatever the verb.
fn every_way(actor: Actor, rule: &'static str) -> Vec<Row> {
    let asks = [
        ("the status by PUT", by(Way::Put, "status", news())),
        (
            "the object by merge patch",
            by(Way::Merge, "", json!({"spec": {"attempt": 8}})),
        ),
        (
            "the object by server-side apply",
            by(Way::Apply, "", json!({"spec": idle()})),
        ),
        ("a shadow created", Ask::Create(json!({}))),
        ("a shadow deleted", Ask::Delete),
        ("all shadows deleted", Ask::DeleteAll),
    ];
    let row = |(says, ask): (&str, Ask)| {
        let before = if ask.creates() { missing() } else { known() };
        let row = Row::new(format!("{actor:?}: {says}"), actor, before, ask, ByRbac);
        Row {
            behind: Some(ByBoth(rule)),
            ..row
        }
    };
    asks.into_iter().map(row).collect()
}
