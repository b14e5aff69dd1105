//! Nodes and agents that are away in mid-update: for how long that is borne.

use super::*;

/// Is the step overdue at this time, if it began at 03:00, and the node or its agent is away since 03:59?
fn overdue(state: &str, reached: &str, node_away: bool, now: &str) -> bool {
    let away = "2026-11-21T03:59:00Z";
    let ready = json!({"type": "Ready", "status": if node_away { "False" } else { "True" }, "lastTransitionTime": away});
    let spec = json!({"state": state, "state_transition_timestamp": "2026-11-21T03:00:00Z", "attempt": 7,
        "baseline_boot_id": "boot-1"});
    let mut snapshot = snapshot(
        [("n", json!({"status": {"conditions": [ready]}}))],
        [("brs-n", spec, json!({"current_state": reached, "attempt": 7}))],
    );
    let (ready_since, away_since) = (None, Some(away.parse().unwrap()));
    let agent = AgentPod { node: "n".to_owned(), ready_since, away_since };
    snapshot.agents.insert("brs-n".to_owned(), agent);
    let durations = Durations { stage: SignedDuration::from_hours(4), ..durations() };
    observe_at(&snapshot, &durations, now).situations[0].time.step_overdue
}

#[test]
fn who_is_away_is_waited_for_from_then_on_and_no_longer_than_for_what_takes_moments() {
    for (state, reached) in [
        ("StagedAndPerformedUpdate", "Idle"),
        ("StagedAndPerformedUpdate", "StagedAndPerformedUpdate"),
        ("MonitoringUpdate", "MonitoringUpdate"),
    ] {
        for node_away in [false, true] {
            assert!(
                !overdue(state, reached, node_away, "2026-11-21T04:08:59Z"),
                "{state} {reached} {node_away}"
            );
            assert!(
                overdue(state, reached, node_away, "2026-11-21T04:09:00Z"),
                "{state} {reached} {node_away}"
            );
        }
    }
}
