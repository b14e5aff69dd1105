//! Rows for the agent's own fields, and for their lengths.

use crate::actor::Actor::{Admin, Agent, OtherAgent, Reconciler};
use crate::row::Row;
use crate::row::Verdict::{Allowed, ByBoth, BySchema, ByWebhook};
use crate::situations::{
    at, conditions, done, explained, first_report, granted, idle, known, staged, staging,
    staging_known, status, through_status,
};
use serde_json::{Value, json};

const TIME: &str = "2026-01-01T00:00:00Z";

pub(super) fn own() -> Vec<Row> {
    let failed = || {
        (
            idle(),
            at_with(&json!({"crash_count": 2, "state_transition_failure_timestamp": TIME})),
        )
    };
    let targeted = || (idle(), at_with(&json!({"target_version": "1.20.0"})));
    rows! {
        "a first report": Agent, (idle(), Value::Null), first_report() => Allowed;
        "a first report beside conditions": Agent, (idle(), conditions("NoUpdate")), first_report() => Allowed;
        "nothing": Agent, known(), status(json!({})) => Allowed, stores_nothing: true;
        "a target": Agent, known(), status(json!({"target_version": "1.20.0"})) => Allowed;
        "no target any more": Agent, targeted(), status(json!({"target_version": null})) => Allowed;
        "another boot": Agent, known(), status(json!({"boot_id": "b2"})) => Allowed;
        "what it downloaded ahead of its turn, while Idle": Agent, known(), ahead() => Allowed;
        "what it downloaded ahead of its turn, no longer known to be whole": Agent, downloaded(),
            status(json!({"staged": null})) => Allowed;
        "what a given-up attempt had activated, deactivated and kept": Agent,
            (done(), crate::row::merged(&staged(), &json!({"staged": {"version": "1.20.0", "at": TIME}}))),
            status(json!({"current_state": "Idle", "staged": {"at": "2026-01-01T00:10:00Z", "prefetched": true}})) => Allowed;
        "what another node downloaded ahead": OtherAgent, known(), ahead() => ByBoth("agent-own-node");
        "what it staged": Agent, staging_known(), status(json!({"staged": {"version": "1.20.0", "at": TIME}}))
            => Allowed;
        "a failure counted": Agent, known(),
            status(json!({"crash_count": 1, "state_transition_failure_timestamp": TIME})) => Allowed;
        "what is wrong, in a word and a sentence": Agent, known(),
            status(json!({"problem": "RefreshFailed", "problem_since": TIME,
                "message": "refresh failed with exit status 1: no route"})) => Allowed;
        "nothing wrong any more": Agent,
            (idle(), at_with(&json!({"problem": "StepFailed", "problem_since": TIME, "message": "m"}))),
            status(json!({"problem": null, "problem_since": null, "message": null})) => Allowed;
        "what is wrong with another node's host": OtherAgent, known(), status(json!({"problem": "RefreshFailed"}))
            => ByBoth("agent-own-node");
        "failures reset": Agent, failed(),
            status(json!({"crash_count": 0, "state_transition_failure_timestamp": null})) => Allowed;
    }
}

/// An image that is downloaded and not activated.
fn ahead() -> crate::ask::Ask {
    status(json!({"staged": {"version": "1.20.0", "at": TIME, "prefetched": true}}))
}

fn downloaded() -> (Value, Value) {
    (
        idle(),
        at_with(&json!({"staged": {"version": "1.20.0", "at": TIME, "prefetched": true}})),
    )
}

fn at_with(fields: &Value) -> Value {
    crate::row::merged(&at("Idle"), fields)
}

/// Returns what is not an agent's. Through `/status` the API server drops what is no status, and what the schema does not know.
pub(super) fn foreign() -> Vec<Row> {
    let two = json!([
        {"type": "Progressing", "status": "False", "reason": "NoUpdate", "message": "", "lastTransitionTime": TIME},
        {"type": "Ready", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": TIME}]);
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "node-0",
        "uid": "00000000-0000-4000-8000-000000000000"}]);
    let before = || (idle(), explained());
    rows! {
        "a condition of its own": Agent, known(), status(conditions("Fine")) => ByBoth("agent-own-fields");
        "the reconciler's condition, changed": Agent, before(), status(conditions("Fine")) => ByBoth("agent-own-fields");
        "a condition beside the reconciler's": Agent, before(), status(json!({"conditions": two}))
            => ByBoth("agent-own-fields");
        "all conditions, emptied": Agent, before(), status(json!({"conditions": []})) => ByBoth("agent-own-fields");
        "all conditions, removed beside news": Agent, before(), status(json!({"conditions": null, "message": "m"}))
            => ByBoth("agent-own-fields");
        "a pool of its choice": Agent, known(), status(json!({"pool": "canary"})) => ByBoth("agent-own-fields");
        "its pool, removed beside news": Agent, (idle(), at_with(&json!({"pool": "web"}))),
            status(json!({"pool": null, "message": "m"})) => ByBoth("agent-own-fields");
        "the reconciler's condition, said again": Agent, before(), status(conditions("NoUpdate"))
            => Allowed, stores_nothing: true;
        "a spec through the status": Agent, known(),
            through_status(json!({"spec": {"state": "MonitoringUpdate", "reboot_granted_boot_id": "b1"}}))
            => Allowed, stores_nothing: true;
        "a label through the status": Agent, known(), through_status(json!({"metadata": {"labels": {"a": "b"}}}))
            => Allowed, stores_nothing: true;
        "an annotation through the status": Agent, known(),
            through_status(json!({"metadata": {"annotations": {"a": "b"}}})) => Allowed, stores_nothing: true;
        "a finalizer through the status": Agent, known(),
            through_status(json!({"metadata": {"finalizers": ["a.b/c"]}})) => Allowed, stores_nothing: true;
        "another owner through the status": Agent, known(),
            through_status(json!({"metadata": {"ownerReferences": owner}})) => Allowed, stores_nothing: true;
        "no owner through the status": Agent, known(),
            through_status(json!({"metadata": {"ownerReferences": null}})) => Allowed, stores_nothing: true;
        "a spec through the status, by the reconciler": Reconciler, known(),
            through_status(json!({"spec": {"attempt": 9}})) => Allowed, stores_nothing: true;
        "a spec through the status, by a person": Admin, known(),
            through_status(json!({"spec": {"attempt": 9}})) => Allowed, stores_nothing: true;
        "a field that nobody knows": Agent, known(), status(json!({"owner": "me"})) => Allowed, stores_nothing: true;
        "a field that nobody knows, below another": Agent, (staging(), at_with(&json!({"staged": {"version": "1.20.0", "at": TIME}}))),
            status(json!({"staged": {"by": "me"}})) => Allowed, stores_nothing: true;
        "a field that nobody knows, beside spec and status": Agent, known(), through_status(json!({"data": {"a": "b"}}))
            => Allowed, stores_nothing: true;
    }
}

/// Returns what the schema refuses. The webhook would take the words, and could not read the rest.
pub(super) fn limits() -> Vec<Row> {
    let unreadable = || ByWebhook("unreadable");
    rows! {
        "a message of 1,024 characters of four bytes": Agent, known(), status(json!({"message": "🦀".repeat(1024)}))
            => Allowed;
        "a message near the limit of a request": Agent, known(), status(json!({"message": "1".repeat(2_900_000)}))
            => BySchema("Too long"), alone: Some("agent-report");
        "a message of two lines": Agent, known(), status(json!({"message": "said\nallowed"}))
            => BySchema("should match"), alone: Some("agent-report");
        "a message with escapes in place of all that": Agent, known(),
            status(json!({"message": r"said\nallowed \u{1b}[2J\u{202e} «é»"})) => Allowed;
        "a claim of two lines": Agent, (granted(), staged()), status(json!({"reboot_claimed_boot_id": "b1\n"}))
            => BySchema("should match"), behind: Some(ByWebhook("agent-claim"));
        "a crash count below zero": Agent, known(), status(json!({"crash_count": -1}))
            => BySchema("should be greater than or equal to 0"), behind: Some(unreadable());
        "a problem that nobody knows": Agent, known(), status(json!({"problem": "Sulking"}))
            => BySchema("Unsupported value"), alone: Some("agent-report");
        "a state that is not": Agent, staging_known(), status(json!({"current_state": "Done"}))
            => BySchema("Unsupported value"), behind: Some(unreadable());
        "a staged image that is no object": Agent, staging_known(), status(json!({"staged": "1.20.0"}))
            => BySchema("status.staged"), behind: Some(unreadable());
        "a status that is a list": Agent, known(), status(json!([1])) => BySchema("status"), behind: Some(ByBoth("agent-own-fields"));
        "a status that is a word": Agent, known(), status(json!("Idle")) => BySchema("status"), behind: Some(ByBoth("agent-own-fields"));
    }
}
