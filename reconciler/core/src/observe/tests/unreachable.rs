//! Nodes and agents that are away in mid-update: for how long that is borne.

use super::*;

/// Whether the step is overdue at this time, if it began at 03:30 and the node or its agent has been away since 03:59.
fn overdue(state: &str, reached: &str, node_away: bool, now: &str) -> bool {
    let away = "2026-11-21T03:59:00Z";
    let node = ready(if node_away { "False" } else { "True" }, Some(away));
    let spec = json!({"state": state, "state_transition_timestamp": "2026-11-21T03:30:00Z", "attempt": 7,
        "baseline_boot_id": "boot-1"});
    let mut cluster = cluster(
        [("n", node)],
        [(
            "brs-n",
            spec,
            json!({"current_state": reached, "attempt": 7}),
        )],
    );
    put_agent(&mut cluster, "n", false, Some(away));
    let policy = with_times(|times| times.stage = SignedDuration::from_hours(4));
    observe_at(&cluster, &policy, now).views[0]
        .time
        .step_overdue
}

/// Each spell is too short to count, so without a bound on all of them the slot would be kept for ever.
#[test]
fn a_flapping_node_is_overdue_in_the_end() {
    let overdue = |now: &str| {
        [("True", 10), ("False", 100)].map(|(status, seconds)| {
            let changed = (at(now) - SignedDuration::from_secs(seconds)).to_string();
            let cluster = watched("2026-11-21T03:00:00Z", ready(status, Some(&changed)));
            observe_at(&cluster, &POLICY, now).views[0]
                .time
                .step_overdue
        })
    };
    assert_eq!(overdue("2026-11-21T03:15:00Z"), [false, false]);
    assert_eq!(overdue("2026-11-21T06:00:00Z"), [true, true]);
}

/// Nobody knows the time for which a node was watched because of gates: only an absence that lasts is a failure then.
#[test]
fn a_node_that_a_gate_held_may_be_away_for_a_moment() {
    let overdue = |seconds_away: i64, state| {
        let now = "2026-11-22T06:00:00Z";
        let changed = (at(now) - SignedDuration::from_secs(seconds_away)).to_string();
        let mut cluster = watched("2026-11-21T03:00:00Z", ready("False", Some(&changed)));
        let known = slots::gated(&mut cluster, state);
        observe_knowing(&cluster, &known, &POLICY, now).views[0]
            .time
            .step_overdue
    };
    for state in GateState::ALL {
        assert_eq!(
            (overdue(100, state), overdue(600, state)),
            (false, true),
            "{state:?}"
        );
    }
}

#[test]
fn an_absence_is_waited_for_once() {
    for (state, reached) in [
        ("StagedAndPerformedUpdate", "Idle"),
        ("StagedAndPerformedUpdate", "StagedAndPerformedUpdate"),
        ("MonitoringUpdate", "MonitoringUpdate"),
    ] {
        for node_away in [false, true] {
            for (now, expected) in [
                ("2026-11-21T04:08:59Z", false),
                ("2026-11-21T04:09:00Z", true),
            ] {
                let found = overdue(state, reached, node_away, now);
                assert_eq!(found, expected, "{state} {reached} {node_away} {now}");
            }
        }
    }
}

/// Only the agent's own word counts, and only what it has said without another word between.
#[test]
fn a_host_that_cannot_update_is_told_by_its_agent() {
    let fails_at = |now: &str, state: &str, change: Value| {
        let spec = json!({"state": state, "state_transition_timestamp": "2026-11-21T03:30:00Z", "attempt": 7,
            "reboot_granted_boot_id": "boot-1"});
        let status = json!({"current_state": "Idle", "attempt": 7, "problem": "HostUnreachable",
            "problem_since": "2026-11-21T00:30:00Z"});
        let status = with(status, &change);
        let cluster = cluster([("n", json!({}))], [("brs-n", spec, status)]);
        let policy = with_times(|times| times.stage = SignedDuration::from_hours(4));
        observe_at(&cluster, &policy, now).views[0]
            .time
            .cannot_update
    };
    for (state, change, expected) in rows! {
        "StagedAndPerformedUpdate", json!({}) => true;
        "RebootedIntoUpdate", json!({"problem": "RefreshFailed"}) => true;
        "RebootedIntoUpdate", json!({"reboot_claimed_boot_id": "boot-1"}) => false;
        "MonitoringUpdate", json!({}) => false;
        "StagedAndPerformedUpdate", json!({"problem": "PrefetchFailed"}) => false;
        "StagedAndPerformedUpdate", json!({"problem_since": "2026-11-21T03:31:00Z"}) => false;
        "StagedAndPerformedUpdate", json!({"problem_since": null}) => false;
    } {
        let fails = ["2026-11-21T03:39:59Z", "2026-11-21T03:40:00Z"]
            .map(|now| fails_at(now, state, change.clone()));
        assert_eq!(fails, [false, expected], "{state} {change}");
    }
}
