//! Every state after every other, by everybody. What is legal is written out by hand, from the protocol.

use crate::actor::Actor::{self, Admin, Agent, OtherAgent, Reconciler, Stray, Webhook};
use crate::row::Verdict::{self, Allowed, ByBoth, ByPolicy, ByRbac, BySchema, ByWebhook};
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

/// Every state, and none.
fn states() -> impl Iterator<Item = Option<&'static str>> {
    STATES.into_iter().map(Some).chain([None])
}

fn word(state: Option<&'static str>) -> &'static str {
    state.unwrap_or("nothing")
}

fn asking_for(state: &str) -> Value {
    merged(&staging(), &json!({"state": state}))
}

fn report(
    actor: Actor,
    goal: &str,
    from: Option<&'static str>,
    to: Option<&'static str>,
    verdict: Verdict,
) -> Row {
    let says = format!(
        "{actor:?}: {} becomes {} while {goal} is asked for",
        word(from),
        word(to)
    );
    let before = (
        asking_for(goal),
        merged(&at("Idle"), &json!({"current_state": from})),
    );
    let row = Row::new(
        says,
        actor,
        before,
        status(json!({"current_state": to})),
        verdict,
    );
    if from == to {
        row.stores_nothing()
    } else {
        row
    }
}

/// What an agent may report of its own node.
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
                rows.push(report(Agent, goal, from, to, verdict));
            }
        }
    }
    rows
}

/// Reports by everybody but the node's agent: only a person may make them.
pub(super) fn reports_of_others() -> Vec<Row> {
    let mut rows = Vec::new();
    for actor in [OtherAgent, Reconciler, Webhook, Stray, Admin] {
        for from in states() {
            for to in states() {
                let verdict = match actor {
                    OtherAgent => ByBoth("agent-own-node"),
                    Reconciler if from != to => ByPolicy("reconciler-own-fields"),
                    Webhook => ByRbac,
                    Stray => ByBoth("unknown-account"),
                    _ => Allowed,
                };
                let row = report(actor, "StagedAndPerformedUpdate", from, to, verdict);
                rows.push(if actor == Webhook {
                    row.behind(ByBoth("webhook-nothing"))
                } else {
                    row
                });
            }
        }
    }
    rows
}

/// How a spec moves: by the reconciler along the steps, by a person anyhow, by nobody else.
pub(super) fn moves() -> Vec<Row> {
    const NOT_TO_REACH: Verdict = BySchema("ErrorReset is a status");
    let mut rows = Vec::new();
    for actor in [Reconciler, Agent, Webhook, Stray, Admin] {
        for from in &STATES[..4] {
            for to in STATES {
                // An update begins with the next attempt.
                let attempt = if *from == "Idle" && to != "Idle" {
                    8
                } else {
                    7
                };
                let ask = spec(json!({"state": to, "attempt": attempt}));
                let says = format!("{actor:?}: the spec moves from {from} to {to}");
                let legal = *from == to || MOVES.contains(&(*from, to));
                let rule = match actor {
                    Reconciler => "reconciler-transition",
                    Agent => "agent-status-only",
                    Webhook => "webhook-nothing",
                    Stray => "unknown-account",
                    _ => "outsider",
                };
                let row =
                    |verdict| Row::new(says, actor, (asking_for(from), at("Idle")), ask, verdict);
                let row = match actor {
                    Reconciler | Admin if to == "ErrorReset" => row(NOT_TO_REACH).alone(rule),
                    Admin => row(Allowed),
                    Reconciler if legal => row(Allowed),
                    Reconciler => row(ByWebhook(rule)),
                    _ if to == "ErrorReset" => row(ByRbac).behind(NOT_TO_REACH).alone(rule),
                    _ => row(ByRbac).behind(ByBoth(rule)),
                };
                rows.push(if *from == to && row.verdict == Allowed {
                    row.stores_nothing()
                } else {
                    row
                });
            }
        }
    }
    rows
}
