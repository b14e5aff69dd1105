//! Specs and statuses as they occur in an update, and the usual changes.

use crate::ask::{Ask, Way};
use crate::row::merged;
use serde_json::{Map, Value, json};

pub(crate) fn idle() -> Value {
    json!({"state": "Idle"})
}

pub(crate) fn staging() -> Value {
    json!({"state": "StagedAndPerformedUpdate", "version": "1.20.0", "attempt": 7, "leader_term": 2, "baseline_boot_id": "b1"})
}

pub(crate) fn rebooting() -> Value {
    merged(&staging(), &json!({"state": "RebootedIntoUpdate"}))
}

pub(crate) fn granted() -> Value {
    merged(&rebooting(), &json!({"reboot_granted_boot_id": "b1"}))
}

pub(crate) fn monitoring() -> Value {
    merged(&staging(), &json!({"state": "MonitoringUpdate"}))
}

/// A shadow that is Idle after attempt 7.
pub(crate) fn done() -> Value {
    merged(&staging(), &json!({"state": "Idle"}))
}

pub(crate) fn at(state: &str) -> Value {
    json!({"current_state": state, "current_version": "1.19.4", "attempt": 7, "boot_id": "b1"})
}

pub(crate) fn staged() -> Value {
    at("StagedAndPerformedUpdate")
}

pub(crate) fn claimed() -> Value {
    merged(&staged(), &json!({"reboot_claimed_boot_id": "b1"}))
}

/// The claim is spent: it is of an earlier boot.
pub(crate) fn claimed_before() -> Value {
    merged(&staged(), &json!({"reboot_claimed_boot_id": "b0"}))
}

pub(crate) fn conditions(reason: &str) -> Value {
    json!({"conditions": [{"type": "Progressing", "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

pub(crate) fn explained() -> Value {
    merged(&at("Idle"), &conditions("NoUpdate"))
}

fn half(name: &str, fields: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), fields)]))
}

/// A merge patch of the status, through `/status`.
pub(crate) fn status(fields: Value) -> Ask {
    through_status(half("status", fields))
}

/// A merge patch of the whole object, through `/status`.
pub(crate) fn through_status(body: Value) -> Ask {
    Ask::Update {
        sub_resource: "status",
        way: Way::Merge,
        body,
    }
}

/// A merge patch of the status' message.
pub(crate) fn message() -> Ask {
    status(json!({"message": "looked for updates"}))
}

/// A merge patch of the reported state.
pub(crate) fn state(state: &str) -> Ask {
    status(json!({"current_state": state}))
}

/// A merge patch of the spec.
pub(crate) fn spec(fields: Value) -> Ask {
    object(half("spec", fields))
}

/// A merge patch of the object.
pub(crate) fn object(body: Value) -> Ask {
    Ask::Update {
        sub_resource: "",
        way: Way::Merge,
        body,
    }
}

/// Nothing is asked for, and the agent has reported.
pub(crate) fn known() -> (Value, Value) {
    (idle(), at("Idle"))
}

/// An update is asked for, and the agent has not begun.
pub(crate) fn staging_known() -> (Value, Value) {
    (staging(), at("Idle"))
}

/// Returns what a shadow that is not there would be made from.
pub(crate) fn missing() -> (Value, Value) {
    (idle(), Value::Null)
}

pub(crate) fn first_report() -> Ask {
    status(json!({"current_state": "Idle", "current_version": "1.19.4", "boot_id": "b1"}))
}
