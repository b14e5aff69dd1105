//! Objects and times, and what is seen in them.

mod ahead;
mod slots;
mod together;
mod unmanaged;
mod unreachable;
mod unreadable;
mod workloads;

use super::*;
use crate::deadlines::back_off;
use crate::decide::{self, Effect, Reason};
use crate::drain::DrainPlan;
use crate::policy::Durations;
use crate::rules::{Limit, Rules, StepDurations};
use crate::tests::world::*;
use brupop_api::names;
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// A question to the clock.
type Says = fn(&crate::facts::TimeFacts) -> bool;

fn policy() -> Policy {
    let seconds = SignedDuration::from_secs;
    let steps = StepDurations { exclusion: seconds(30), ..StepDurations::default() };
    Policy {
        default_pool: Rules::of_settings(Limit::Percent(50), vec![], steps, false),
        durations: Durations {
            stage: seconds(3600),
            reboot: seconds(1800),
            settle: seconds(600),
            back_off_base: seconds(120),
            min_node_age: seconds(0),
            ..Durations::default()
        },
        ..Policy::default()
    }
}

/// Where the steps take so long.
fn with_steps(steps: StepDurations) -> Policy {
    Policy { default_pool: Rules::of_settings(Limit::Percent(50), vec![], steps, false), ..policy() }
}

/// A node of this kind in mid-update, whose spec wants this state since then, and whose agent has reached that one.
fn updating(state: &str, since: &str, reached: &str, node: Value) -> Cluster {
    let spec = json!({"state": state, "state_transition_timestamp": since, "attempt": 7});
    cluster([("n", node)], [("brs-n", spec, json!({"current_state": reached, "attempt": 7}))])
}

/// A node that is watched since then.
fn watched(since: &str, node: Value) -> Cluster {
    updating("MonitoringUpdate", since, "MonitoringUpdate", node)
}

/// Later than [`NOW`] by so many seconds.
fn later(seconds: i64) -> String {
    (at(NOW) + SignedDuration::from_secs(seconds)).to_string()
}

/// When to look again.
fn next(observed: &Observed<'_>) -> Option<String> {
    observed.next.map(|next| next.to_string())
}

fn observe_at<'a>(cluster: &'a Cluster, policy: &'a Policy, now: &'a str) -> Observed<'a> {
    observe_knowing(cluster, &Known::default(), policy, now)
}

/// What is known where the pods of these nodes are, and none is left.
fn with_drains(names: impl IntoIterator<Item: ToString>) -> Known {
    let drains = names.into_iter().map(|name| (name.to_string(), KnownDrain::default())).collect();
    Known { drains, ..Known::default() }
}

#[test]
fn a_soak_begins_anew_after_a_not_ready() {
    let long_ago = "2026-11-21T03:00:00Z";
    let soaked = |node_since: &str, agent_since: Option<&str>| {
        let mut cluster = watched("2026-11-21T03:58:00Z", ready("True", Some(node_since)));
        put_agent(&mut cluster, "n", agent_since.is_some(), agent_since);
        let policy = policy();
        let observed = observe_at(&cluster, &policy, NOW);
        (observed.views[0].time.soak_over, next(&observed))
    };
    assert!(soaked(long_ago, Some(long_ago)).0);
    let away_in_between = soaked("2026-11-21T03:59:30Z", Some(long_ago));
    assert_eq!(away_in_between, (false, Some("2026-11-21T04:00:30Z".to_owned())));
    assert!(!soaked(long_ago, Some("2026-11-21T03:59:30Z")).0, "its agent was away");
    assert!(!soaked(long_ago, None).0, "its agent is");
}

#[test]
fn a_soak_begun_anew_has_its_time() {
    for (agent_since, overdue) in
        [(None, true), (Some("2026-11-21T03:59:30Z"), false), (Some("2026-11-21T03:30:00Z"), true)]
    {
        let mut cluster = watched("2026-11-21T03:30:00Z", json!({}));
        put_agent(&mut cluster, "n", agent_since.is_some(), agent_since);
        let policy = policy();
        assert_eq!(observe_at(&cluster, &policy, NOW).views[0].time.step_overdue, overdue, "{agent_since:?}");
    }
}

#[test]
fn a_late_host_has_time_to_report() {
    let spec = json!({"state": "RebootedIntoUpdate", "state_transition_timestamp": "2026-11-21T03:00:00Z",
        "attempt": 7, "reboot_from_boot_id": "b"});
    let overdue = |node: Value| {
        let status = json!({"current_state": "StagedAndPerformedUpdate", "attempt": 7});
        let cluster = cluster([("n", node)], [("brs-n", spec.clone(), status)]);
        let policy = policy();
        let observed = observe_at(&cluster, &policy, NOW);
        (observed.views[0].time.step_overdue, next(&observed))
    };
    assert!(overdue(ready("False", None)).0, "it is away");
    assert!(overdue(ready("True", Some("2026-11-21T02:00:00Z"))).0, "it has never gone");
    let back = overdue(ready("True", Some("2026-11-21T03:59:30Z")));
    assert_eq!(back, (false, Some("2026-11-21T04:09:30Z".to_owned())));
}

#[test]
fn the_fleet_is_seen() {
    let mut cluster = cluster([("a", json!({})), ("b", json!({})), ("c", json!({})), ("n", json!({}))], []);
    let policy = policy();
    assert_eq!(observe_at(&cluster, &policy, NOW).fleet.ledger_term, None);
    put_ledger(&mut cluster, json!({}), json!({"slots": {"brs-a": {"uid": "u", "attempt": 1}}}));
    let fleet = observe_at(&cluster, &policy, NOW).fleet;
    assert_eq!((fleet.term, fleet.ledger_term, fleet.default_pool.limit), (4, Some(4), 2));
    assert_eq!(fleet.slots["brs-a"].attempt, 1);
}

#[test]
fn a_node_is_seen_with_its_shadow() {
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "tainted": true}).to_string();
    let more = json!({
        "metadata": {"annotations": {names::MARKER_ANNOTATION: marker, names::PAUSE_ANNOTATION: ""},
            "labels": {"topology.kubernetes.io/zone": "z1"}},
        "spec": {"unschedulable": true, "taints": [{"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"}]},
    });
    let cluster = cluster([("n", more)], [("brs-n", json!({"state": "Idle"}), json!({}))]);
    let policy = policy();
    let observed = observe_at(&cluster, &policy, NOW);
    let [view] = observed.views.as_slice() else { panic!("one node") };
    let node = view.node.unwrap();
    assert!(node.labelled && node.ready && node.unschedulable && node.tainted && node.paused);
    assert!(node.runs_this_process);
    assert!(!node.excluded && !node.update_now);
    assert_eq!((node.boot_id, node.version, node.zone), ("boot-1", Some("1.19.4"), Some("z1")));
    assert_eq!(node.marker.unwrap().attempt, 7);
    assert_eq!(view.shadow.unwrap().generation, 3);
    assert_eq!(view.owner_uid, Some("node-n"));
}

#[test]
fn only_nodes_ever_ours_are_looked_at() {
    let left_out = || opted("1.0.0");
    let marked = with(left_out(), &marked(json!({"shadow_uid": "u", "attempt": 1})));
    let idle = || json!({"state": "Idle"});
    let cluster = cluster(
        [("a", json!({})), ("b", left_out()), ("c", marked), ("d", left_out())],
        [("brs-d", idle(), json!({})), ("brs-gone", idle(), json!({}))],
    );
    let policy = policy();
    let observed = observe_at(&cluster, &policy, NOW);
    let seen: Vec<&str> = observed.views.iter().map(|view| view.shadow_name).collect();
    assert_eq!(seen, ["brs-a", "brs-c", "brs-d", "brs-gone"]);
    assert!(observed.views[3].node.is_none());
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    let cluster = cluster(
        [("a", json!({})), ("n", annotated(names::MARKER_ANNOTATION, "?")), ("o", json!({}))],
        [
            ("brs-a", json!({"state": "Dreaming"}), json!({})),
            ("brs-n", json!({"state": "Idle", "attempt": 1}), json!({"current_version": "1.19.4"})),
            ("brs-o", json!({"state": "Idle"}), json!({"current_version": "1.19.4"})),
        ],
    );
    let policy = policy();
    let mut observed = observe_at(&cluster, &policy, NOW);
    observed.fleet.ledger_term = Some(observed.fleet.term);
    assert_eq!(observed.unreadable.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert!(observed.unreadable[&0].starts_with("the shadow cannot be read"), "{:?}", observed.unreadable);
    assert!(observed.views[1].node.unwrap().marker.is_some(), "the slot of an unread marker is kept");
    assert!(observed.views[2].shadow.is_some());
    // The marker that stands for it names nothing, so it would be removed, if not for this.
    let node = |at: usize| decide::node(&observed.fleet, &observed.views[at]).effect;
    assert!(matches!(node(1), Some(Effect::Write(_))), "{:?}", node(1));
    let decide::FleetDecision { nodes: decisions, counts, .. } = decide::fleet(&observed);
    assert_eq!(counts.updated, 1, "what cannot be read does not count as up to date");
    for left_alone in &decisions[..2] {
        assert!(matches!(left_alone.reason, Reason::NotUnderstood(_)) && left_alone.effect.is_none());
    }
}

#[test]
fn a_name_that_is_too_long_is_told() {
    let name: &'static str = "n".repeat(names::NODE_NAME_MAX + 1).leak();
    let cluster = cluster([(name, json!({})), (&name[1..], json!({}))], []);
    let policy = policy();
    let observed = observe_at(&cluster, &policy, NOW);
    assert_eq!(observed.too_long, [shadow_name(name)]);
    assert_eq!(observed.views.len(), 1);
}

#[test]
fn what_keeps_a_fleet_from_starting_has_an_order() {
    assert_eq!(starts(true, false), Starts::Paused);
    assert_eq!(starts(false, false), Starts::AdmissionNotEnforced);
    assert_eq!(starts(false, true), Starts::Open);
}

#[test]
fn the_clock_has_its_say_in_each_state() {
    let since = |state: &str| json!({"state": state, "state_transition_timestamp": NOW, "attempt": 2, "version": "2.0.0"});
    let reports = |state: &str| json!({"current_state": state, "attempt": 2, "current_version": "1.0.0"});
    let overdue: Says = |time| time.step_overdue;
    let soaked: Says = |time| time.soak_over;
    let backing_off: Says = |time| time.backing_off;
    let staged = "StagedAndPerformedUpdate";
    let silent = json!({"current_state": "Idle", "attempt": 1, "current_version": "1.0.0"});
    let mut failed = since("Idle");
    failed["failures"] = json!({"count": 3, "attempt": 2, "at": NOW, "reason": "FellBack"});
    let mut granted = since("RebootedIntoUpdate");
    granted["reboot_from_boot_id"] = json!("boot-1");
    let thrice = back_off(SignedDuration::from_mins(2), 3, "uid-brs-n").as_secs() + 1;
    for (what, spec, status, says, after) in [
        ("not taken up", since(staged), silent, overdue, 600),
        ("staging", since(staged), reports("Idle"), overdue, 3600),
        ("staged", since(staged), reports(staged), overdue, 3600 + 30 + 1800),
        ("granted", granted, reports(staged), overdue, 1800),
        ("grant withdrawn", since("RebootedIntoUpdate"), reports("Idle"), overdue, 1800 + 930),
        ("soaking", since("MonitoringUpdate"), reports("MonitoringUpdate"), soaked, 60),
        ("monitored", since("MonitoringUpdate"), reports("MonitoringUpdate"), overdue, 660),
        ("not acknowledged", since("Idle"), reports("MonitoringUpdate"), overdue, 600),
        ("failed thrice", failed, reports("Idle"), |time| !time.backing_off, thrice),
        ("other target", since("Idle"), reports("Idle"), |time| !time.backing_off, 60),
    ] {
        let cluster = cluster([("n", json!({}))], [("brs-n", spec, status)]);
        let policy = policy();
        for (seconds, expected) in [(after - 1, false), (after, true)] {
            let now = later(seconds);
            let observed = observe_at(&cluster, &policy, &now);
            assert_eq!(says(&observed.views[0].time), expected, "{what} after {seconds} s");
        }
    }
    let done = json!({"current_state": "Idle", "attempt": 2, "current_version": "2.0.0"});
    let cluster = cluster([("n", json!({}))], [("brs-n", since("Idle"), done)]);
    let policy = policy();
    let observed = observe_at(&cluster, &policy, NOW);
    assert!(!backing_off(&observed.views[0].time), "a success is not waited after");
    assert_eq!(observed.next, None, "an idle fleet has no deadline");
}

#[test]
fn a_drain_and_its_grant_have_their_times() {
    let now = || Some(NOW.to_owned());
    for (drained, pods_known, after) in [
        (None, true, 900),
        (None, false, 900 + 600),
        (now(), true, 900 + 600),
        (now(), false, 900 + 600),
        (Some(later(890)), true, 900 + 600),
    ] {
        let marker =
            json!({"shadow_uid": "uid-brs-n", "attempt": 7, "drain_started_at": NOW, "drained_at": drained});
        let staged = "StagedAndPerformedUpdate";
        let cluster = updating(staged, NOW, staged, marked(marker));
        let known = with_drains(pods_known.then_some("brs-n"));
        let policy = policy();
        for (seconds, expected) in [(after - 1, false), (after, true)] {
            let now = later(seconds);
            let observed = observe_knowing(&cluster, &known, &policy, &now);
            let overdue = observed.views[0].time.drain_overdue;
            assert_eq!(overdue, expected, "{drained:?}, {pods_known}, after {seconds} s");
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
            "failures": failures.map(|(count, when)| json!({"count": count, "attempt": 2, "at": later(when), "reason": "X"}))});
        let status = json!({"current_state": State::ALL[reported], "attempt": echoed, "current_version": "1.0.0"});
        let cluster = cluster([("n", marked(marker))], [("brs-n", spec, status)]);
        let policy = policy();
        let facts = |seconds: i64| {
            let text = later(seconds);
            let observed = observe_at(&cluster, &policy, &text);
            (format!("{:?}", observed.views[0].time), observed.next)
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
fn a_pool_that_keeps_zones_apart_says_which_one_is_busy() {
    use crate::cluster::Watched as _;
    let of = |zone: &str, is_ready: &str| {
        with(ready(is_ready, None), &labels(json!({"tier": "db", "topology.kubernetes.io/zone": zone})))
    };
    let nodes = [("a", of("x", "True")), ("b", of("x", "False")), ("c", of("y", "True")), ("d", json!({}))];
    let shadows =
        ["brs-a", "brs-b", "brs-c", "brs-d"].map(|name| (name, json!({"state": "Idle"}), json!({})));
    for (mode, expected) in [("OneAtATime", [None, None, Some("x"), None]), ("Spread", [None; 4])] {
        let mut cluster = cluster(nodes.clone(), shadows.clone());
        let spec = json!({"nodeSelector": {"matchLabels": {"tier": "db"}}, "topology": {"mode": mode}});
        pool("db", spec).put(&mut cluster);
        let (known, policy) = (known(&cluster), policy());
        let observed = observe_knowing(&cluster, &known, &policy, NOW);
        assert_eq!(observed.views.iter().map(|view| view.busy_zone).collect::<Vec<_>>(), expected, "{mode}");
    }
}

#[test]
fn somebody_elses_cordon_takes_a_place_for_an_hour() {
    let marker = |cordoned: Option<&str>| {
        marked(json!({"shadow_uid": "uid-brs-n", "attempt": 7, "cordoned_at": cordoned}))
    };
    let (theirs, ours) = (marker(None), marker(Some(NOW)));
    let tainted = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    let since = |at: &str| json!([{"key": "node.kubernetes.io/unschedulable", "timeAdded": at}]);
    for (marker, unschedulable, taints, now, counts) in [
        (&theirs, true, json!([]), NOW, true),
        (&theirs, true, json!([]), "2026-11-21T04:59:59Z", true),
        (&theirs, true, json!([]), "2026-11-21T05:00:00Z", false),
        (&theirs, false, json!([]), NOW, false),
        (&ours, true, json!([]), NOW, false),
        (&theirs, true, tainted, NOW, false),
        (&theirs, true, since(NOW), NOW, true),
        // Another leader has seen it for weeks.
        (&theirs, true, since("2026-11-01T04:00:00Z"), NOW, false),
    ] {
        let node = with(json!({"spec": {"unschedulable": unschedulable, "taints": taints}}), marker);
        let cluster = cluster([("n", node)], [("brs-n", json!({"state": "Idle"}), json!({}))]);
        let mut known = Known::default();
        known.note_cordons(&cluster, at(NOW));
        let policy = Policy {
            durations: Durations { others_cordon: SignedDuration::from_hours(1), ..policy().durations },
            ..policy()
        };
        let observed = observe_knowing(&cluster, &known, &policy, now);
        assert_eq!(observed.views[0].time.cordoned_lately, counts, "{unschedulable} {marker} {now}");
        if counts {
            assert_eq!(next(&observed).as_deref(), Some("2026-11-21T05:00:00Z"));
        }
    }
}

#[test]
fn an_empty_node_has_two_minutes_for_its_volumes() {
    let started = "2026-11-21T03:44:00Z";
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "drain_started_at": started});
    let time = |since: Option<&str>| {
        let cluster =
            cluster([("n", marked(marker.clone()))], [("brs-n", json!({"state": "Idle"}), json!({}))]);
        let drain = KnownDrain { empty_since: since.map(at), ..KnownDrain::default() };
        let known = Known { drains: [("brs-n".to_owned(), drain)].into(), ..Known::default() };
        let policy = policy();
        let observed = observe_knowing(&cluster, &known, &policy, NOW);
        let time = &observed.views[0].time;
        (time.volumes_overdue, time.drain_overdue, next(&observed))
    };
    assert_eq!(time(None), (false, true, None), "the drain took 15 minutes, and the node is not empty");
    let waits = (false, false, Some("2026-11-21T04:00:01Z".to_owned()));
    assert_eq!(time(Some("2026-11-21T03:58:01Z")), waits, "that counts against no deadline");
    assert!(time(Some("2026-11-21T03:58:00Z")).0);
}

/// It leads since just now, half a minute after the drain's deadline.
#[test]
fn a_new_leader_looks_at_the_pods_before_it_gives_a_drain_up() {
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "cordoned_at": "2026-11-21T03:44:30Z",
        "drain_started_at": "2026-11-21T03:44:30Z"});
    let node =
        json!({"spec": {"unschedulable": true}, "status": {"volumesInUse": ["kubernetes.io/csi/ebs^vol-1"]}});
    let node = with(node, &marked(marker));
    let spec = json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": "2026-11-21T03:30:00Z",
        "attempt": 7, "version": "1.20.0", "baseline_boot_id": "boot-1"});
    let status =
        json!({"current_state": "StagedAndPerformedUpdate", "attempt": 7, "target_version": "1.20.0"});
    let mut cluster = cluster([("n", node)], [("brs-n", spec, status)]);
    let slot = json!({"uid": "uid-brs-n", "attempt": 7, "since": "2026-11-21T03:30:00Z"});
    put_ledger(&mut cluster, json!({}), json!({"slots": {"brs-n": slot}}));
    let policy = policy();
    let reason = |known: &Known, now: &str| {
        let observed = observe_knowing(&cluster, known, &policy, now);
        decide::fleet(&observed).nodes[0].reason.as_str()
    };
    let nothing = Known::default();
    assert_eq!(reason(&nothing, NOW), "Draining", "the pods are not known");
    assert_eq!(reason(&nothing, "2026-11-21T04:09:29Z"), "Draining");
    assert_eq!(reason(&nothing, "2026-11-21T04:09:30Z"), "Aborting", "they should be");
    let known = |plan| {
        let mut known = Known::default();
        known.note_drains([("brs-n".to_owned(), Arc::new(plan), None)].into_iter(), at(NOW));
        known
    };
    let empty = known(DrainPlan::default());
    assert_eq!(reason(&empty, NOW), "VolumesInUse");
    assert_eq!(reason(&empty, "2026-11-21T04:01:59Z"), "VolumesInUse", "for two minutes");
    assert_eq!(reason(&empty, "2026-11-21T04:02:00Z"), "Draining", "its reboot is granted");
    let evict = vec![crate::drain::PodKey { namespace: "shop".into(), name: "cart".into(), uid: "c".into() }];
    let full = known(DrainPlan { evict, ..DrainPlan::default() });
    assert_eq!(reason(&full, NOW), "Aborting", "what the drain fails on is known, too");
}
