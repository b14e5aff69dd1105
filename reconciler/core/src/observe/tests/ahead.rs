//! Times that a leader whose clock was ahead has written count as now, until they are corrected.

use super::*;
use crate::facts::BetweenUpdates;

#[test]
fn a_step_that_began_ahead_begins_now() {
    let seen = |transition: &str| {
        let cluster = watched(transition, json!({}));
        let observed = observe_at(&cluster, &POLICY, NOW);
        let next = observed.next.map(|next| next.duration_since(at(NOW)));
        (observed.views[0].time.transition_ahead, next)
    };
    let soak = policy().default_pool.durations.soak;
    assert_eq!(seen("2026-11-21T14:00:00Z"), (true, Some(soak)), "not ten hours later");
    let clocks_differ = (false, Some(soak + SignedDuration::from_secs(30)));
    assert_eq!(seen("2026-11-21T04:00:30Z"), clocks_differ);
    assert_eq!(seen(NOW), (false, Some(soak)));
}

#[test]
fn a_pause_that_began_ahead_begins_now() {
    let seen = |finished: &str| {
        let mut cluster = cluster([], []);
        put_ledger(&mut cluster, json!({}), json!({"lastFinished": finished}));
        let policy = with_times(|times| times.pause = SignedDuration::from_mins(10));
        observe_at(&cluster, &policy, NOW).fleet.between_updates
    };
    assert_eq!(seen("2026-11-21T14:00:00Z"), BetweenUpdates::EndedAhead);
    assert_eq!(seen("2026-11-21T03:59:00Z"), BetweenUpdates::Pausing);
    assert_eq!(seen("2026-11-21T03:50:00Z"), BetweenUpdates::PauseIsOver);
}
