//! An agent patches the status of its own shadow.

use super::*;
use Rule::*;

/// (what it says, spec, status before, the agent's merge patch of the status, the rule)
type Row = (&'static str, Value, Value, Value, Rule);

fn run(rows: Vec<Row>) {
    for (says, spec, status, change, expected) in rows {
        let (old, new) = (shadow(&spec, &status), shadow(&spec, &changed(&status, &change)));
        check(says, update(AGENT, "status", &old, &new), expected);
    }
}

fn idle() -> Value {
    json!({"state": "Idle"})
}

fn staging() -> Value {
    json!({"state": "StagedAndPerformedUpdate", "version": "1.1.0", "attempt": 7, "leader_term": 2, "baseline_boot_id": "b1"})
}

fn rebooting() -> Value {
    json!({"state": "RebootedIntoUpdate", "version": "1.1.0", "attempt": 7, "leader_term": 2, "baseline_boot_id": "b1"})
}

fn granted() -> Value {
    changed(&rebooting(), &json!({"reboot_from_boot_id": "b1"}))
}

fn monitoring() -> Value {
    json!({"state": "MonitoringUpdate", "version": "1.1.0", "attempt": 7, "leader_term": 2})
}

fn at(state: &str) -> Value {
    json!({"current_state": state, "current_version": "1.0.0", "attempt": 7, "boot_id": "b1"})
}

fn claimed() -> Value {
    changed(&at("StagedAndPerformedUpdate"), &json!({"reboot_requested": "b1"}))
}

#[test]
fn fields() {
    let conditions = json!([{"type": "Progressing", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let known = at("Idle");
    let with_conditions = changed(&known, &json!({"conditions": conditions}));
    run(vec![
        (
            "a first report",
            idle(),
            Value::Null,
            json!({"current_state": "Idle", "current_version": "1.0.0", "boot_id": "b1"}),
            AgentReport,
        ),
        (
            "a first report beside conditions",
            idle(),
            json!({"conditions": conditions}),
            json!({"current_state": "Idle", "current_version": "1.0.0"}),
            AgentReport,
        ),
        ("nothing", idle(), known.clone(), json!({}), AgentReport),
        ("nothing, said as null", idle(), known.clone(), json!({"message": null}), AgentReport),
        ("the version that runs", idle(), known.clone(), json!({"current_version": "1.0.1"}), AgentReport),
        ("another target", idle(), known.clone(), json!({"target_version": "1.1.0"}), AgentReport),
        (
            "no target any more",
            idle(),
            changed(&known, &json!({"target_version": "1.1.0"})),
            json!({"target_version": null}),
            AgentReport,
        ),
        ("another boot", idle(), known.clone(), json!({"boot_id": "b2"}), AgentReport),
        ("a message", idle(), known.clone(), json!({"message": "looked for updates"}), AgentReport),
        (
            "what it staged",
            staging(),
            known.clone(),
            json!({"staged": {"version": "1.1.0", "at": "2026-01-01T00:00:00Z"}}),
            AgentReport,
        ),
        (
            "failures, reset",
            idle(),
            changed(
                &known,
                &json!({"crash_count": 2, "state_transition_failure_timestamp": "2026-01-01T00:00:00Z"}),
            ),
            json!({"crash_count": 0, "state_transition_failure_timestamp": null}),
            AgentReport,
        ),
        ("a condition of its own", idle(), known.clone(), json!({"conditions": conditions}), AgentOwnFields),
        (
            "another's condition, changed",
            idle(),
            with_conditions.clone(),
            json!({"conditions": []}),
            AgentOwnFields,
        ),
        (
            "all conditions, removed",
            idle(),
            with_conditions.clone(),
            json!({"conditions": null, "message": "m"}),
            AgentOwnFields,
        ),
        ("a field that nobody knows", idle(), known.clone(), json!({"owner": "me"}), AgentOwnFields),
        ("a state that is not", staging(), known.clone(), json!({"current_state": "Done"}), Unreadable),
        ("an attempt that is no number", staging(), known.clone(), json!({"attempt": "7"}), Unreadable),
        (
            "a staged image that is no object",
            staging(),
            known.clone(),
            json!({"staged": "1.1.0"}),
            Unreadable,
        ),
    ]);
}

#[test]
fn attempts() {
    let known = at("Idle");
    run(vec![
        (
            "the echo of a new attempt",
            changed(&staging(), &json!({"attempt": 8})),
            known.clone(),
            json!({"attempt": 8}),
            AgentReport,
        ),
        (
            "the echo of the first attempt",
            staging(),
            json!({"current_state": "Idle"}),
            json!({"attempt": 7}),
            AgentReport,
        ),
        (
            "an attempt that was missed, late",
            changed(&staging(), &json!({"attempt": 9})),
            known.clone(),
            json!({"attempt": 8}),
            AgentReport,
        ),
        ("ahead of the spec", staging(), known.clone(), json!({"attempt": 8}), AgentAttempt),
        (
            "an attempt where there was none",
            idle(),
            json!({"current_state": "Idle"}),
            json!({"attempt": 1}),
            AgentAttempt,
        ),
        ("backwards", staging(), known.clone(), json!({"attempt": 6}), AgentAttempt),
        ("forgotten", staging(), known.clone(), json!({"attempt": null}), AgentAttempt),
        (
            "forgotten together with everything",
            staging(),
            known.clone(),
            json!({"attempt": null, "current_state": null, "current_version": null, "boot_id": null}),
            AgentAttempt,
        ),
        (
            "a step of a stale attempt",
            changed(&staging(), &json!({"attempt": 8})),
            known.clone(),
            json!({"current_state": "StagedAndPerformedUpdate"}),
            AgentAttempt,
        ),
        (
            "a failure of a stale attempt",
            changed(&staging(), &json!({"attempt": 8})),
            known.clone(),
            json!({"current_state": "ErrorReset"}),
            AgentAttempt,
        ),
        (
            "echo and step at once",
            changed(&staging(), &json!({"attempt": 8})),
            known.clone(),
            json!({"attempt": 8, "current_state": "StagedAndPerformedUpdate"}),
            AgentReport,
        ),
        (
            "back to Idle of an attempt it never saw",
            json!({"state": "Idle", "attempt": 9}),
            at("StagedAndPerformedUpdate"),
            json!({"current_state": "Idle"}),
            AgentReport,
        ),
        (
            "an upstream shadow without attempts",
            json!({"state": "MonitoringUpdate"}),
            json!({"current_state": "RebootedIntoUpdate"}),
            json!({"current_state": "MonitoringUpdate"}),
            AgentReport,
        ),
    ]);
}

#[test]
fn transitions() {
    const STATES: [&str; 5] =
        ["Idle", "StagedAndPerformedUpdate", "RebootedIntoUpdate", "MonitoringUpdate", "ErrorReset"];
    for spec in [idle(), staging(), rebooting(), monitoring()] {
        let spec = changed(&spec, &json!({"attempt": 7}));
        let goal = spec["state"].as_str().unwrap().to_owned();
        for from in STATES.into_iter().map(Some).chain([None]) {
            for to in STATES.into_iter().map(Some).chain([None]) {
                let (before, after) =
                    (changed(&at("Idle"), &json!({"current_state": from})), json!({"current_state": to}));
                let legal = from == to || to == Some(&goal) || (to == Some("ErrorReset") && goal != "Idle");
                let expected = if legal { AgentReport } else { AgentTransition };
                let says = format!("{from:?} becomes {to:?} while the spec asks for {goal}");
                let (old, new) = (shadow(&spec, &before), shadow(&spec, &changed(&before, &after)));
                check(&says, update(AGENT, "status", &old, &new), expected);
            }
        }
    }
}

#[test]
fn claims() {
    let staged = at("StagedAndPerformedUpdate");
    let claim = json!({"reboot_requested": "b1"});
    run(vec![
        ("the granted boot", granted(), staged.clone(), claim.clone(), AgentReport),
        ("before the grant", rebooting(), staged.clone(), claim.clone(), AgentClaim),
        ("while staging", staging(), staged.clone(), claim.clone(), AgentClaim),
        ("while Idle", idle(), json!({"current_state": "Idle", "boot_id": "b1"}), claim.clone(), AgentClaim),
        ("after the update", monitoring(), at("RebootedIntoUpdate"), claim.clone(), AgentClaim),
        (
            "a grant left over from a step that was aborted",
            changed(&granted(), &json!({"state": "Idle"})),
            staged.clone(),
            claim.clone(),
            AgentClaim,
        ),
        (
            "another boot than was granted",
            granted(),
            changed(&staged, &json!({"boot_id": "b2"})),
            json!({"reboot_requested": "b2"}),
            AgentClaim,
        ),
        (
            "the granted boot, from another boot",
            granted(),
            changed(&staged, &json!({"boot_id": "b2"})),
            claim.clone(),
            AgentClaim,
        ),
        (
            "the granted boot, from a boot not said",
            granted(),
            changed(&staged, &json!({"boot_id": null})),
            claim.clone(),
            AgentClaim,
        ),
        (
            "at a stale attempt",
            granted(),
            changed(&staged, &json!({"attempt": 6})),
            claim.clone(),
            AgentClaim,
        ),
    ]);
}

#[test]
fn claims_withdrawn() {
    let unclaim = json!({"reboot_requested": null});
    run(vec![
        (
            "again, for a later grant",
            changed(&granted(), &json!({"reboot_from_boot_id": "b2"})),
            changed(&claimed(), &json!({"boot_id": "b2"})),
            json!({"reboot_requested": "b2"}),
            AgentReport,
        ),
        (
            "withdrawn together with a failure",
            granted(),
            claimed(),
            changed(&unclaim, &json!({"current_state": "ErrorReset"})),
            AgentReport,
        ),
        ("withdrawn while the reboot may still come", granted(), claimed(), unclaim.clone(), AgentClaim),
        (
            "withdrawn from a boot not said",
            granted(),
            claimed(),
            json!({"boot_id": null, "reboot_requested": null}),
            AgentClaim,
        ),
        (
            "withdrawn from another boot",
            granted(),
            changed(&claimed(), &json!({"boot_id": "b2"})),
            unclaim.clone(),
            AgentReport,
        ),
        (
            "withdrawn from the new boot, having said so at once",
            granted(),
            claimed(),
            json!({"boot_id": "b2", "reboot_requested": null, "current_state": "RebootedIntoUpdate"}),
            AgentReport,
        ),
        (
            "cleared once Idle",
            json!({"state": "Idle", "attempt": 7}),
            claimed(),
            json!({"reboot_requested": null, "current_state": "Idle"}),
            AgentReport,
        ),
        (
            "cleared by the next attempt",
            changed(&staging(), &json!({"attempt": 8})),
            claimed(),
            json!({"reboot_requested": null, "attempt": 8}),
            AgentReport,
        ),
        (
            "kept, the new boot said",
            granted(),
            claimed(),
            json!({"boot_id": "b2", "current_state": "RebootedIntoUpdate", "current_version": "1.1.0"}),
            AgentReport,
        ),
        (
            "kept, fallen back",
            granted(),
            claimed(),
            json!({"boot_id": "b2", "current_state": "ErrorReset", "crash_count": 1}),
            AgentReport,
        ),
    ]);
}
