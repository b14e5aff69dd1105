//! By which way: every verb and sub-resource, every kind of body.

use crate::actor::Actor::{self, Admin, Agent, Reconciler, Stray, Webhook};
use crate::ask::{Ask, Way};
use crate::row::Verdict::{Allowed, ByBoth, ByRbac, ByServer, ByWebhook};
use crate::row::{Row, Verdict};
use crate::situations::{
    at, conditions, explained, idle, known, message, missing, object, staged, staging, status,
    through_status,
};
use serde_json::{Value, json};

const NO_SUCH_VERSION: Verdict = ByServer(404, "page not found");
const NO_SUCH_OBJECT: Verdict = ByServer(404, "\"brs-node-0\" not found");

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
    let failing = json!([{"op": "test", "path": "/spec/state", "value": "MonitoringUpdate"},
        {"op": "add", "path": "/status/message", "value": "m"}]);
    let removed = || json!([{"op": "remove", "path": "/status"}]);
    let condition =
        json!([{"op": "replace", "path": "/status/conditions/0/reason", "value": "Fine"}]);
    let metadata = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "replace", "path": "/spec/state", "value": "MonitoringUpdate"}]);
    let scale = json!({"spec": {"replicas": 1}});
    rows! {
        "the status by JSON patch, as agents send it": Agent, known(), by(Way::JsonPatch, "status", tested) => Allowed;
        "the status by JSON patch, with a test that fails": Agent, known(), by(Way::JsonPatch, "status", failing)
            => ByServer(422, "the server rejected our request due to an error in our request");
        "the status by server-side apply": Agent, known(), by(Way::Apply, "status", news()) => Allowed;
        "the status by server-side apply, tried": Agent, known(), by(Way::Apply, "status", news()) => Allowed, dry();
        "the status by PUT": Agent, known(), by(Way::Put, "status", news()) => ByRbac, behind(Allowed);
        "a condition by JSON patch": Agent, before(), by(Way::JsonPatch, "status", condition)
            => ByBoth("agent-own-fields");
        "a condition by server-side apply": Agent, known(), by(Way::Apply, "status", json!({"status": conditions("Fine")}))
            => ByBoth("agent-own-fields");
        "a condition by PUT": Agent, known(), by(Way::Put, "status", json!({"status": conditions("Fine")}))
            => ByRbac, behind(ByBoth("agent-own-fields"));
        "spec and metadata by JSON patch of the status": Agent, known(), by(Way::JsonPatch, "status", metadata)
            => Allowed, stores_nothing();
        "spec by server-side apply of the status": Agent, known(), by(Way::Apply, "status", json!({"spec": {"attempt": 9}}))
            => Allowed, stores_nothing();
        "the whole status removed, with what the reconciler said in it": Agent, before(),
            through_status(json!({"status": null})) => ByBoth("agent-own-fields");
        "the same by JSON patch": Agent, before(), by(Way::JsonPatch, "status", removed()) => ByBoth("agent-own-fields");
        "the same by PUT": Agent, before(), by(Way::Put, "status", json!({"status": null}))
            => ByRbac, behind(ByBoth("agent-own-fields"));
        "the whole status removed, an attempt ahead of the spec in it": Agent, known(), through_status(json!({"status": null}))
            => ByWebhook("agent-transition");
        "the whole status removed, the state in it": Agent, (idle(), json!({"current_state": "Idle"})),
            by(Way::JsonPatch, "status", removed()) => ByWebhook("agent-transition");
        "the object by merge patch": Agent, known(), by(Way::Merge, "", news()) => ByRbac, behind(behind());
        "the object by JSON patch": Agent, known(), by(Way::JsonPatch, "", json!([])) => ByRbac, behind(behind());
        "the object by PUT": Agent, known(), by(Way::Put, "", news()) => ByRbac, behind(behind());
        "the object by server-side apply": Agent, known(), by(Way::Apply, "", json!({"spec": idle()}))
            => ByRbac, behind(behind());
        "the object's finalizers": Agent, known(), object(json!({"metadata": {"finalizers": ["a.b/c"]}}))
            => ByRbac, behind(behind());
        "the object's owners": Agent, known(), object(json!({"metadata": {"ownerReferences": null}}))
            => ByRbac, behind(behind());
        "a sub-resource that is not, by merge patch": Agent, known(), by(Way::Merge, "scale", scale.clone())
            => ByRbac, behind(NO_SUCH_OBJECT), alone("agent-status-only");
        "a sub-resource that is not, by JSON patch": Agent, known(), by(Way::JsonPatch, "scale", json!([]))
            => ByRbac, behind(NO_SUCH_OBJECT), alone("agent-status-only");
        "a sub-resource that is not, by server-side apply": Agent, known(), by(Way::Apply, "scale", scale.clone())
            => ByRbac, behind(NO_SUCH_OBJECT), alone("agent-status-only");
        "a sub-resource that is not, by PUT": Agent, known(), by(Way::Put, "scale", scale)
            => ByRbac, behind(NO_SUCH_OBJECT), alone("agent-status-only");
        "a shadow created": Agent, missing(), Ask::Create(json!({})) => ByRbac, behind(behind());
        "a shadow created, tried": Agent, missing(), Ask::Create(json!({})) => ByRbac, behind(behind()), dry();
        "a shadow created under a generated name": Agent, missing(), generated() => ByRbac, behind(behind());
        "a shadow created by server-side apply": Agent, missing(), Ask::ApplyNew("", json!({"spec": idle()}))
            => ByRbac, behind(behind());
        "a shadow created by server-side apply of its status": Agent, missing(), Ask::ApplyNew("status", news())
            => NO_SUCH_OBJECT, alone("agent-status-only");
        "its own shadow deleted": Agent, known(), Ask::Delete => ByRbac, behind(behind());
        "its own shadow deleted, tried": Agent, known(), Ask::Delete => ByRbac, behind(behind()), dry();
        "all shadows deleted": Agent, known(), Ask::DeleteAll => ByRbac, behind(behind());
        "all shadows deleted, tried": Agent, known(), Ask::DeleteAll => ByRbac, behind(behind()), dry();
        "the status, as v1": Agent, known(), message() => NO_SUCH_VERSION, of_version("v1"), alone("unknown-kind");
        "the status, as v3": Agent, known(), message() => NO_SUCH_VERSION, of_version("v3"), alone("unknown-kind");
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
        "conditions by PUT": Reconciler, known(), by(Way::Put, "status", condition()) => ByRbac, behind(Allowed);
        "the object by PUT, by the reconciler": Reconciler, known(), by(Way::Put, "", json!({"spec": {"attempt": 8}}))
            => ByRbac, behind(Allowed);
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
        "a sub-resource that is not, by the reconciler": Reconciler, known(), by(Way::Merge, "scale", json!({}))
            => ByRbac, behind(NO_SUCH_OBJECT), alone("unknown-request");
        "a shadow deleted": Reconciler, known(), Ask::Delete => Allowed;
        "a shadow deleted, tried": Reconciler, known(), Ask::Delete => Allowed, dry();
        "all shadows deleted, by the reconciler": Reconciler, known(), Ask::DeleteAll => ByRbac, behind(Allowed);
        "the spec, as v3, by the reconciler": Reconciler, known(), object(json!({"spec": {"attempt": 8}}))
            => NO_SUCH_VERSION, of_version("v3"), alone("unknown-kind");
        "the spec, as v1, by a person": Admin, known(), object(json!({"spec": {"attempt": 8}}))
            => NO_SUCH_VERSION, of_version("v1"), alone("unknown-kind");
        "a shadow deleted, by a person": Admin, known(), Ask::Delete => Allowed;
        "a shadow created, by a person": Admin, missing(), Ask::Create(json!({})) => Allowed;
    };
    for (actor, rule) in [(Webhook, "webhook-nothing"), (Stray, "unknown-account")] {
        rows.extend(every_way(actor, rule));
    }
    rows
}

/// Who has no business with shadows is refused whatever the way.
fn every_way(actor: Actor, rule: &'static str) -> Vec<Row> {
    let asks = [
        ("the status by PUT", by(Way::Put, "status", news())),
        (
            "the object by merge patch",
            by(Way::Merge, "", json!({"spec": {"attempt": 8}})),
        ),
        (
            "the object by JSON patch",
            by(Way::JsonPatch, "", json!([])),
        ),
        (
            "the object by server-side apply",
            by(Way::Apply, "", json!({"spec": idle()})),
        ),
        ("a shadow deleted", Ask::Delete),
        ("all shadows deleted", Ask::DeleteAll),
    ];
    let creations = [
        ("a shadow created", Ask::Create(json!({}))),
        ("a shadow created under a generated name", generated()),
        (
            "a shadow created by server-side apply",
            Ask::ApplyNew("", json!({"spec": idle()})),
        ),
    ];
    let row = |before: (Value, Value), (says, ask): (&str, Ask)| {
        Row::new(format!("{actor:?}: {says}"), actor, before, ask, ByRbac).behind(ByBoth(rule))
    };
    let asks = asks.into_iter().map(|ask| row(known(), ask));
    asks.chain(creations.into_iter().map(|ask| row(missing(), ask)))
        .collect()
}

/// Bodies that are huge or deep.
pub(super) fn bodies() -> Vec<Row> {
    let deep = |levels: usize| {
        Ask::Text(format!(
            r#"{{"status":{{"unknown":{}1{}}}}}"#,
            r#"{"a":"#.repeat(levels),
            "}".repeat(levels)
        ))
    };
    let many: serde_json::Map<_, _> = (0..50)
        .map(|n| (format!("unknown_{n}"), json!("x".repeat(32_000))))
        .collect();
    rows! {
        "100 levels of what nobody knows": Agent, known(), deep(100) => Allowed, stores_nothing();
        "1,000 levels of what nobody knows": Agent, known(), deep(1000) => Allowed, stores_nothing();
        "10,000 levels": Agent, known(), deep(10_000) => ByServer(400, "exceeded max depth");
        "1.6 MB of fields that nobody knows": Agent, known(), status(Value::Object(many))
            => Allowed, stores_nothing();
        "no JSON at all": Agent, known(), Ask::Text("status: {".to_owned()) => ByServer(400, "invalid");
        "an empty body": Agent, known(), Ask::Text(String::new()) => ByServer(400, "");
    }
}
