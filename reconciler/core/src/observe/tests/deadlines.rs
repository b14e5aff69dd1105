//! The steps that have a deadline, and their durations.

use super::*;
use crate::cluster::Empty;
use crate::deadlines::back_off;
use brupop_api::shadow::LastFailure;
use proptest::prelude::*;

/// A question to the clock.
type Says = fn(&crate::facts::TimeFacts) -> bool;

#[test]
fn a_soak_begins_anew_after_a_not_ready() {
    let long_ago = "2026-11-21T03:00:00Z";
    let soaked = |node_since: &str, agent_since: Option<&str>| {
        let mut cluster = watched("2026-11-21T03:58:00Z", ready("True", Some(node_since)));
        put_agent(&mut cluster, "n", agent_since.is_some(), agent_since);
        let observed = observe_at(&cluster, &POLICY, NOW);
        (observed.views[0].time.verified, next(&observed))
    };
    assert!(soaked(long_ago, Some(long_ago)).0);
    let away_in_between = soaked("2026-11-21T03:59:30Z", Some(long_ago));
    assert_eq!(
        away_in_between,
        (false, Some("2026-11-21T04:00:30Z".to_owned()))
    );
    assert!(
        !soaked(long_ago, Some("2026-11-21T03:59:30Z")).0,
        "its agent was away"
    );
    assert!(!soaked(long_ago, None).0, "its agent is");
}

#[test]
fn a_soak_begun_anew_has_its_time() {
    for (agent_since, overdue) in [
        (None, true),
        (Some("2026-11-21T03:59:30Z"), false),
        (Some("2026-11-21T03:30:00Z"), true),
    ] {
        let mut cluster = watched("2026-11-21T03:30:00Z", json!({}));
        put_agent(&mut cluster, "n", agent_since.is_some(), agent_since);
        assert_eq!(
            observe_at(&cluster, &POLICY, NOW).views[0]
                .time
                .step_overdue,
            overdue,
            "{agent_since:?}"
        );
    }
}

#[test]
fn a_late_host_has_time_to_report() {
    let spec = json!({"state": "RebootedIntoUpdate", "state_transition_timestamp": "2026-11-21T03:00:00Z",
        "attempt": 7, "reboot_granted_boot_id": "b"});
    let overdue = |node: Value| {
        let status = json!({"current_state": "StagedAndPerformedUpdate", "attempt": 7});
        let cluster = cluster([("n", node)], [("brs-n", spec.clone(), status)]);
        let observed = observe_at(&cluster, &POLICY, NOW);
        (observed.views[0].time.step_overdue, next(&observed))
    };
    assert!(overdue(ready("False", None)).0, "it is away");
    assert!(
        overdue(ready("True", Some("2026-11-21T02:00:00Z"))).0,
        "it has never gone"
    );
    let back = overdue(ready("True", Some("2026-11-21T03:59:30Z")));
    assert_eq!(back, (false, Some("2026-11-21T04:09:30Z".to_owned())));
}

#[test]
fn the_clock_has_its_say_in_each_state() {
    let since = |state: &str| json!({"state": state, "state_transition_timestamp": NOW, "attempt": 2, "version": "2.0.0"});
    let reports =
        |state: &str| json!({"current_state": state, "attempt": 2, "current_version": "1.0.0"});
    let overdue: Says = |time| time.step_overdue;
    let soaked: Says = |time| time.verified;
    let backing_off: Says = |time| time.backing_off;
    let staged = "StagedAndPerformedUpdate";
    let silent = json!({"current_state": "Idle", "attempt": 1, "current_version": "1.0.0"});
    let mut failed = since("Idle");
    failed["last_failure"] = json!({"count": 3, "attempt": 2, "at": NOW, "reason": "FellBack"});
    let mut granted = since("RebootedIntoUpdate");
    granted["reboot_granted_boot_id"] = json!("boot-1");
    let failures = LastFailure {
        count: 3,
        ..LastFailure::default()
    };
    let thrice = back_off(SignedDuration::from_mins(2), &failures, "uid-brs-n").as_secs() + 1;
    for (what, spec, status, says, after) in rows! {
        "not taken up", since(staged), silent, overdue => 600;
        "staging", since(staged), reports("Idle"), overdue => 3600;
        "staged", since(staged), reports(staged), overdue => 3600 + 30 + 1800;
        "granted", granted, reports(staged), overdue => 1800;
        "grant withdrawn", since("RebootedIntoUpdate"), reports("Idle"), overdue => 1800 + 930;
        "soaking", since("MonitoringUpdate"), reports("MonitoringUpdate"), soaked => 60;
        "monitored", since("MonitoringUpdate"), reports("MonitoringUpdate"), overdue => 660;
        "not acknowledged", since("Idle"), reports("MonitoringUpdate"), overdue => 600;
        "failed thrice", failed, reports("Idle"), |time| !time.backing_off => thrice;
        "other target", since("Idle"), reports("Idle"), |time| !time.backing_off => 60;
    } {
        let cluster = cluster([("n", json!({}))], [("brs-n", spec, status)]);
        for (seconds, expected) in [(after - 1, false), (after, true)] {
            let now = later(seconds);
            let observed = observe_at(&cluster, &POLICY, &now);
            assert_eq!(
                says(&observed.views[0].time),
                expected,
                "{what} after {seconds} s"
            );
        }
    }
    let done = json!({"current_state": "Idle", "attempt": 2, "current_version": "2.0.0"});
    let cluster = cluster([("n", json!({}))], [("brs-n", since("Idle"), done)]);
    let observed = observe_at(&cluster, &POLICY, NOW);
    assert!(!backing_off(&observed.views[0].time), "it has succeeded");
    assert_eq!(observed.clock.next, None, "an idle fleet has no deadline");
}

#[test]
fn the_clock_has_its_say_of_each_node() {
    let now = || ready("False", Some(NOW));
    let marked = |times: Value| marked(with(json!({"shadow_uid": "u", "attempt": 2}), &times));
    let kept = json!({"kept_since": NOW, "do_not_disrupt": true});
    let excluded = json!({"excluded_at": NOW});
    let policy = with_times(|policy| policy.min_node_age = SignedDuration::from_mins(2));
    let staged = "StagedAndPerformedUpdate";
    let wanted = json!({"state": staged, "state_transition_timestamp": NOW, "attempt": 2});
    let idle = json!({"state": "Idle", "state_transition_timestamp": NOW});
    let four_hours = 4 * 3600;
    for (what, node, spec, says, after) in rows! {
        "missing", Some(now()), &idle, (|time| time.missing) as Says => 240;
        "lost", Some(now()), &idle, |time| time.lost => 600;
        "kept", Some(marked(kept)), &idle, |time| time.kept_for_long => four_hours;
        "excluded", Some(marked(excluded)), &idle, |time| time.exclusion_over => 30;
        "old", Some(json!({"metadata": {"creationTimestamp": NOW}})), &idle, |time| !time.young => 120;
        "removed", None, &idle, |time| !time.removed_soon => four_hours;
        "on trial", Some(json!({})), &wanted, |time| time.trial_overdue => 600;
    } {
        let nodes = node.into_iter().map(|node| ("n", node));
        let cluster = cluster(nodes, [("brs-n", spec.clone(), json!({}))]);
        for (seconds, expected) in [(after - 1, false), (after, true)] {
            let now = later(seconds);
            let time = observe_at(&cluster, &policy, &now).views[0].time;
            assert_eq!(says(&time), expected, "{what} after {seconds} s");
        }
    }
    let begun = json!({"excluded_at": NOW, "drain_started_at": NOW});
    let mut cluster = cluster([("n", marked(begun))], [("brs-n", idle.clone(), json!({}))]);
    put_agent(&mut cluster, "n", false, Some("2026-11-21T03:00:00Z"));
    let time = observe_at(&cluster, &policy, NOW).views[0].time;
    assert!(time.exclusion_over, "a drain has begun");
    assert!(!time.lost && !time.missing, "only its agent is away");
    assert!(!time.removed_soon, "it is there");
}

#[test]
fn retry_ends_the_back_off_after_its_attempt_only() {
    let idle = |attempt: u64, failed: Option<u64>| {
        let failures = failed.map(
            |attempt| json!({"count": 9, "attempt": attempt, "at": NOW, "reason": "FellBack"}),
        );
        json!({"state": "Idle", "state_transition_timestamp": NOW, "attempt": attempt, "version": "2.0.0",
            "last_failure": failures})
    };
    let status = json!({"current_state": "Idle", "attempt": 5, "current_version": "1.0.0"});
    for (says, spec, retry, backs_off, past) in rows! {
        "nobody asks", idle(5, Some(5)), None, true => false;
        "its attempt failed", idle(5, Some(5)), Some("5"), false => false;
        "a failed retry backs off again", idle(6, Some(6)), Some("5"), true => true;
        "a slot was given back since", idle(6, Some(5)), Some("6"), false => false;
        "it was given up", idle(5, None), Some("5"), false => false;
        "given up since", idle(6, None), Some("5"), true => true;
        "an attempt that comes", idle(5, Some(5)), Some("6"), true => false;
        "any number", idle(5, Some(5)), Some("18446744073709551616"), true => false;
        "no number", idle(5, Some(5)), Some("true"), true => false;
        "a number as nobody writes it", idle(5, Some(5)), Some("05"), true => false;
    } {
        let node = retry.map_or(json!({}), |retry| annotated(names::RETRY_ANNOTATION, retry));
        let cluster = cluster([("n", node)], [("brs-n", spec, status.clone())]);
        let observed = observe_at(&cluster, &POLICY, NOW);
        let view = &observed.views[0];
        assert_eq!(view.time.backing_off, backs_off, "{says}");
        assert_eq!(view.past_retry().is_some(), past, "{says}");
    }
}

#[test]
fn a_drain_and_its_grant_have_their_times() {
    let now = || Some(NOW.to_owned());
    for (drained, pods_known, cordoned, after) in rows! {
        None, true, true => 900;
        None, false, true => 900 + 600;
        now(), true, true => 900 + 600;
        now(), false, true => 900 + 600;
        Some(later(890)), true, true => 900 + 600;
        now(), true, false => 900;
        now(), false, false => 900;
    } {
        let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "drain_started_at": NOW, "drained_at": drained});
        let staged = "StagedAndPerformedUpdate";
        let mut node = marked(marker);
        node["spec"] = json!({"unschedulable": cordoned});
        let mut cluster = updating(staged, NOW, staged, node);
        if pods_known {
            know_pods(&mut cluster, &["brs-n"]);
        }
        for (seconds, expected) in [(after - 1, false), (after, true)] {
            let now = later(seconds);
            let observed = observe_at(&cluster, &POLICY, &now);
            let overdue = observed.views[0].time.drain_overdue;
            assert_eq!(
                overdue, expected,
                "{drained:?}, {pods_known}, {cordoned}, after {seconds} s"
            );
        }
    }
}

proptest! {
    /// Nothing changes between now and `next` by the clock alone, and at `next` something does or was waited for.
    #[test]
    fn no_fact_changes_before_the_deadline(
        state in 0_usize..4,
        reported in 0_usize..5,
        echoed in 1_u64..=2,
        transition in 0_i64..10_000,
        excluded in proptest::option::of(0_i64..10_000),
        drain in proptest::option::of(0_i64..10_000),
        drained in any::<bool>(),
        failures in proptest::option::of((1_u64..8, 0_i64..10_000)),
        now in 0_i64..20_000,
        part in 0.0_f64..1.0,
    ) {
        use brupop_api::State;
        let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 2,
            "excluded_at": excluded.map(later), "drain_started_at": drain.map(later),
            "drained_at": drain.filter(|_| drained).map(later)});
        let spec = json!({"state": State::ALL[state], "state_transition_timestamp": later(transition), "attempt": 2,
            "version": "2.0.0",
            "last_failure": failures.map(|(count, when)| json!({"count": count, "attempt": 2, "at": later(when), "reason": "X"}))});
        let status = json!({"current_state": State::ALL[reported], "attempt": echoed, "current_version": "1.0.0"});
        let cluster = cluster([("n", marked(marker))], [("brs-n", spec, status)]);
        let facts = |seconds: i64| {
            let text = later(seconds);
            let observed = observe_at(&cluster, &POLICY, &text);
            (format!("{:?}", observed.views[0].time), observed.clock.next)
        };
        let (before, next) = facts(now);
        // The first whole second at which it may: back-offs end within one.
        let whole = |span: SignedDuration| span.as_secs() + i64::from(span.subsec_nanos() > 0);
        let until = next.map_or(now + 1_000_000, |next| whole(next.duration_since(at(NOW))));
        prop_assert!(until > now);
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let between = now + ((until - 1 - now) as f64 * part) as i64;
        prop_assert_eq!(facts(between).0, before);
    }
}

#[test]
fn an_empty_node_waits_a_minute_after_the_last_volume_that_went() {
    let started = "2026-11-21T03:44:30Z";
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "drain_started_at": started});
    let time = |since: Option<&str>| {
        let mut cluster = cluster(
            [("n", marked(marker.clone()))],
            [("brs-n", json!({"state": "Idle"}), json!({}))],
        );
        let empty = since.map(|since| Empty {
            since: at(since),
            volumes: 1,
        });
        cluster.record("brs-n").led.empty = empty;
        let observed = observe_at(&cluster, &POLICY, NOW);
        let time = &observed.views[0].time;
        (time.volumes_overdue, time.drain_overdue, next(&observed))
    };
    assert_eq!(
        time(None),
        (false, true, None),
        "the drain took 15 minutes, and the node is not empty"
    );
    let waits = (false, false, Some("2026-11-21T04:00:30Z".to_owned()));
    assert_eq!(
        time(Some("2026-11-21T03:59:59Z")),
        waits,
        "until a minute after the drain's time"
    );
    assert!(time(Some("2026-11-21T03:59:00Z")).0, "none went since");
}
