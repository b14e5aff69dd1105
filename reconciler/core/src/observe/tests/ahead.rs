//! Times that are ahead count as the moment at which this leader first saw them.

use brupop_api::shadow::LastFailure;

use super::*;
use crate::cluster::Watched as _;
use crate::objects::Ahead;

/// A time two hours after [`NOW`].
const AHEAD: &str = "2026-11-21T06:00:00Z";

/// Observes the cluster this many seconds after [`NOW`], after these passes.
fn seen<'a>(
    cluster: &Cluster,
    policy: &'a Policy,
    seconds: i64,
    ahead: &mut Ahead,
) -> Observed<'a> {
    let known = LeaderState {
        ahead: ahead.clone(),
        ..LeaderState::default()
    };
    let observed = observe_knowing(cluster, &known, policy, Box::leak(Box::new(later(seconds))));
    *ahead = observed.clock.ahead.clone();
    observed
}

#[test]
fn readiness_two_hours_ahead_keeps_no_slot_and_fails_no_node() {
    for (node, agent) in [(AHEAD, NOW), (NOW, AHEAD), (AHEAD, AHEAD)] {
        let mut cluster = watched(NOW, ready("True", Some(node)));
        put_agent(&mut cluster, "n", true, Some(agent));
        put_ledger(
            &mut cluster,
            json!({}),
            json!({"slots": {"brs-n": {"uid": "uid-brs-n", "attempt": 7, "since": NOW}}}),
        );
        let mut ahead = Ahead::default();
        for (seconds, soaked) in [
            (0, false),
            (59, false),
            (60, true),
            (7200, true),
            (9000, true),
        ] {
            let observed = seen(&cluster, &POLICY, seconds, &mut ahead);
            let time = observed.views[0].time;
            assert_eq!(time.verified, soaked, "{node} {agent} {seconds}");
            assert!(
                soaked || !time.step_overdue && next(&observed) == Some(later(60)),
                "{node} {agent} {seconds}"
            );
        }
    }
}

/// Each field: what is waited for since its time, and for how many seconds.
#[test]
fn every_time_ahead_counts_from_its_first_sight() {
    type Over = fn(&Observed<'_>) -> bool;
    let staged = "StagedAndPerformedUpdate";
    let spec = |of: Value| {
        with(
            json!({"state": staged, "attempt": 7, "version": NEW, "state_transition_timestamp": AHEAD}),
            &of,
        )
    };
    let status = |of: Value| {
        with(
            json!({"current_state": staged, "attempt": 7, "current_version": OLD}),
            &of,
        )
    };
    let node = |marker: Value| {
        marked(with(
            json!({"shadow_uid": "uid-brs-n", "attempt": 7}),
            &marker,
        ))
    };
    let of_node = |marker: Value| {
        cluster(
            [("n", node(marker))],
            [("brs-n", spec(json!({})), status(json!({})))],
        )
    };
    let of_shadow =
        |s: Value, t: Value| cluster([("n", json!({}))], [("brs-n", spec(s), status(t))]);
    let of_ledger = |ledger: Value| {
        let mut cluster = of_shadow(json!({}), json!({}));
        pool(
            "web",
            json!({"dependsOn": [{"pool": "first", "soak": "600s"}], "versions": {"minAge": "600s"}}),
        )
        .put(&mut cluster);
        pool(
            "first",
            json!({"nodeSelector": {"matchLabels": {"a": "b"}}}),
        )
        .put(&mut cluster);
        put_ledger(&mut cluster, json!({}), ledger);
        cluster
    };
    let failed = json!({"state": "Idle", "last_failure": {"count": 1, "attempt": 7, "at": AHEAD, "reason": "FellBack"}});
    let failures = LastFailure {
        count: 1,
        reason: "FellBack".to_owned(),
        ..LastFailure::default()
    };
    let back_off = crate::deadlines::back_off(SignedDuration::from_mins(2), &failures, "uid-brs-n")
        .as_secs()
        + 1;
    let silent = json!({"problem": "HostUnreachable", "message": "m", "problem_since": AHEAD});
    let slot = json!({"slots": {"brs-n": {"uid": "uid-brs-n", "attempt": 7, "since": AHEAD}}});
    let done = json!({"donePools": [{"pool": "first", "version": NEW, "since": AHEAD}]});
    for (what, cluster, over, seconds) in [
        (
            "transition",
            of_shadow(json!({}), json!({"attempt": 6})),
            (|it| it.views[0].time.step_overdue) as Over,
            600,
        ),
        (
            "failure",
            of_shadow(failed, json!({})),
            |it| !it.views[0].time.backing_off,
            back_off,
        ),
        (
            "problem",
            of_shadow(json!({}), silent),
            |it| it.views[0].time.cannot_update,
            600,
        ),
        (
            "exclusion",
            of_node(json!({"excluded_at": AHEAD})),
            |it| it.views[0].time.exclusion_over,
            30,
        ),
        (
            "drain",
            of_node(json!({"drain_started_at": AHEAD})),
            |it| it.views[0].time.drain_overdue,
            900,
        ),
        (
            "slot",
            of_ledger(slot),
            |it| it.views[0].time.slot_seconds >= Some(600),
            600,
        ),
        (
            "age",
            of_ledger(json!({"versions": [{"version": NEW, "variant": "v", "reportedAt": AHEAD}]})),
            |it| it.fleet.pools[1].ripens((NEW, "v")).is_none(),
            600,
        ),
        (
            "soak of a pool",
            of_ledger(done),
            |it| it.fleet.pools[1].waits_for(NEW).is_none(),
            600,
        ),
    ] {
        let mut ahead = Ahead::default();
        for (seconds, expected) in [
            (0, false),
            (seconds - 1, false),
            (seconds, true),
            (7200, true),
            (7201, true),
        ] {
            let observed = seen(&cluster, &POLICY, seconds, &mut ahead);
            assert_eq!(over(&observed), expected, "{what} after {seconds} s");
        }
        assert!(
            !over(&seen(&cluster, &POLICY, 7199, &mut Ahead::default())),
            "{what}: a new leader counts anew"
        );
    }
}
