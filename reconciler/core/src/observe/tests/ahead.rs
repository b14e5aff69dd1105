//! Times that a leader whose clock was ahead has written count as now, until they are corrected.

use super::*;
use crate::facts::BetweenUpdates;

#[test]
fn a_step_that_began_ahead_begins_now() {
    let at = |transition: &str| {
        let spec =
            json!({"state": "MonitoringUpdate", "state_transition_timestamp": transition, "attempt": 7});
        let cluster = cluster(
            [("n", json!({}))],
            [("brs-n", spec, json!({"current_state": "MonitoringUpdate", "attempt": 7}))],
        );
        let policy = policy();
        let observed = observe_at(&cluster, &policy, NOW);
        let next = observed.next.map(|next| next.duration_since(NOW.parse().unwrap()));
        (observed.views[0].time.transition_ahead, next)
    };
    let soak = policy().default_pool.durations.soak;
    assert_eq!(at("2026-11-21T14:00:00Z"), (true, Some(soak)), "not ten hours later");
    assert_eq!(
        at("2026-11-21T04:00:30Z"),
        (false, Some(soak + SignedDuration::from_secs(30))),
        "clocks differ"
    );
    assert_eq!(at(NOW), (false, Some(soak)));
}

#[test]
fn a_pause_that_began_ahead_begins_now() {
    let at = |finished: &str| {
        let mut cluster = cluster([], []);
        let ledger = json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"lastFinished": finished}});
        cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
        let policy = Policy {
            durations: Durations { pause: SignedDuration::from_mins(10), ..policy().durations },
            ..policy()
        };
        observe_at(&cluster, &policy, NOW).fleet.between_updates
    };
    assert_eq!(at("2026-11-21T14:00:00Z"), BetweenUpdates::EndedAhead);
    assert_eq!(at("2026-11-21T03:59:00Z"), BetweenUpdates::Pausing);
    assert_eq!(at("2026-11-21T03:50:00Z"), BetweenUpdates::PauseIsOver);
}
