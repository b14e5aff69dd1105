//! Every state after every other. What is legal is written out by hand, from the protocol.

use crate::actor::Actor::{Agent, Reconciler};
use crate::row::Verdict::{Allowed, BySchema, ByWebhook};
use crate::row::{Row, merged};
use crate::situations::{at, spec, staging, status};
use serde_json::{Value, json};

const STATES: [&str; 5] = [
    "Idle",
    "StagedAndPerformedUpdate",
    "RebootedIntoUpdate",
    "MonitoringUpdate",
    "ErrorReset",
];

/// (what the spec asks for, what an agent may report then)
const REPORTS: [(&str, &str); 7] = [
    ("Idle", "Idle"),
    ("StagedAndPerformedUpdate", "StagedAndPerformedUpdate"),
    ("StagedAndPerformedUpdate", "ErrorReset"),
    ("RebootedIntoUpdate", "RebootedIntoUpdate"),
    ("RebootedIntoUpdate", "ErrorReset"),
    ("MonitoringUpdate", "MonitoringUpdate"),
    ("MonitoringUpdate", "ErrorReset"),
];

/// The steps of a spec: to the next, and back to Idle from each.
const MOVES: [(&str, &str); 6] = [
    ("Idle", "StagedAndPerformedUpdate"),
    ("StagedAndPerformedUpdate", "RebootedIntoUpdate"),
    ("RebootedIntoUpdate", "MonitoringUpdate"),
    ("StagedAndPerformedUpdate", "Idle"),
    ("RebootedIntoUpdate", "Idle"),
    ("MonitoringUpdate", "Idle"),
];

fn states() -> impl Iterator<Item = Option<&'static str>> {
    STATES.into_iter().map(Some).chain([None])
}

fn word(state: Option<&'static str>) -> &'static str {
    state.unwrap_or("nothing")
}

fn asking_for(state: &str) -> Value {
    merged(&staging(), &json!({"state": state}))
}

/// Returns what an agent may report of its own node.
pub(super) fn reports() -> Vec<Row> {
    let mut rows = Vec::new();
    for goal in &STATES[..4] {
        for from in states() {
            for to in states() {
                let legal = from == to || to.is_some_and(|to| REPORTS.contains(&(*goal, to)));
                let verdict = if legal {
                    Allowed
                } else {
                    ByWebhook("agent-transition")
                };
                let says = format!(
                    "{} becomes {} while {goal} is asked for",
                    word(from),
                    word(to)
                );
                let before = merged(&at("Idle"), &json!({"current_state": from}));
                let ask = status(json!({"current_state": to}));
                let row = Row::new(says, Agent, (asking_for(goal), before), ask, verdict);
                rows.push(Row {
                    stores_nothing: from == to,
                    ..row
                });
            }
        }
    }
    rows
}

/// Returns how the reconciler moves a spec: along the steps.
pub(super) fn moves() -> Vec<Row> {
    let mut rows = Vec::new();
    for from in &STATES[..4] {
        for to in STATES {
            // An update begins with the next attempt.
            let attempt = if *from == "Idle" && to != "Idle" {
                8
            } else {
                7
            };
            let ask = spec(json!({"state": to, "attempt": attempt}));
            let says = format!("the spec moves from {from} to {to}");
            let transition = "reconciler-transition";
            let (verdict, alone) = if to == "ErrorReset" {
                (BySchema("ErrorReset is a status"), Some(transition))
            } else if *from == to || MOVES.contains(&(*from, to)) {
                (Allowed, None)
            } else {
                (ByWebhook(transition), None)
            };
            let row = Row::new(
                says,
                Reconciler,
                (asking_for(from), at("Idle")),
                ask,
                verdict,
            );
            rows.push(Row {
                alone,
                stores_nothing: *from == to,
                ..row
            });
        }
    }
    rows
}
