//! Objects and times, and what is seen in them.

mod ahead;
mod slots;
mod together;
mod unmanaged;
mod unreachable;
mod unreadable;
mod workloads;

use kube::Resource as _;
use std::sync::Arc;

use super::*;
use crate::deadlines::back_off;
use crate::decide::{self, Effect, Reason};
use crate::drain::DrainPlan;
use crate::objects::Readiness;
use crate::policy::Durations;
use crate::rules::{Limit, Rules, StepDurations};
use brupop_api::{BottlerocketShadow, Item, names};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A question to the clock.
type Says = fn(&crate::facts::TimeFacts) -> bool;

const NOW: &str = "2026-11-21T04:00:00Z";

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

fn node(name: &str, more: Value) -> Arc<WatchedNode> {
    let mut json = json!({
        "metadata": {"name": name, "uid": format!("node-{name}"),
            "labels": {names::UPDATER_INTERFACE_LABEL: names::UPDATER_INTERFACE_VERSION}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "boot-1", "osImage": "Bottlerocket OS 1.19.4 (aws-k8s-1.29)"}},
    });
    merge(&mut json, more);
    Arc::new(serde_json::from_value(json).unwrap())
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn shadow(name: &str, spec: &Value, status: &Value) -> Arc<Item<BottlerocketShadow>> {
    let json = json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": 3,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-n"}]},
        "spec": spec, "status": status,
    });
    Arc::new(serde_json::from_value(json).unwrap())
}

fn cluster(
    nodes: impl IntoIterator<Item = (&'static str, Value)>,
    shadows: impl IntoIterator<Item = (&'static str, Value, Value)>,
) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, more) in nodes {
        let agent =
            AgentPod { node: name.to_owned(), readiness: Some(Readiness { ready: true, since: None }) };
        let entry = cluster.entry(&shadow_name(name));
        entry.node = Some(node(name, more));
        entry.agents.insert("agent".to_owned(), agent);
    }
    for (name, spec, status) in shadows {
        cluster.entry(name).shadow = Some(shadow(name, &spec, &status));
    }
    cluster
}

fn observe_at<'a>(cluster: &'a Cluster, policy: &'a Policy, now: &'a str) -> Observed<'a> {
    observe_knowing(cluster, &Known::default(), policy, now)
}

/// What follows from the cluster alone.
fn known(cluster: &Cluster) -> Known {
    Known::of(cluster, NOW.parse().unwrap(), &Policy::default())
}

/// What is known where the pods of these nodes are, and none is left.
fn with_drains(names: impl IntoIterator<Item: ToString>) -> Known {
    let drains = names.into_iter().map(|name| (name.to_string(), KnownDrain::default())).collect();
    Known { drains, ..Known::default() }
}

fn observe_knowing<'a>(
    cluster: &'a Cluster,
    known: &Known,
    policy: &'a Policy,
    now: &'a str,
) -> Observed<'a> {
    let leader = Leader { term: 4, enforced: true, alone: true, own_node: Some("n") };
    let time = now.parse().unwrap();
    // Facts borrow from it, and tests are short.
    let mut prepared = known.clone();
    while !prepared.prepare_pools(cluster, time, policy) {}
    let known = Box::leak(Box::new(prepared));
    let pools = Box::leak(Box::new(pools_at(cluster, known, policy, time)));
    observe(cluster, known, pools, policy, &leader, Now { time, text: now })
}

#[test]
fn a_soak_begins_anew_after_a_not_ready() {
    let spec = json!({"state": "MonitoringUpdate", "state_transition_timestamp": "2026-11-21T03:58:00Z", "attempt": 7});
    let soaked = |node_since: &str, agent: Option<&str>| {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": node_since});
        let mut cluster = cluster(
            [("n", json!({"status": {"conditions": [ready]}}))],
            [("brs-n", spec.clone(), json!({"current_state": "MonitoringUpdate", "attempt": 7}))],
        );
        let readiness = agent.map(|since| Readiness { ready: true, since: Some(since.parse().unwrap()) });
        let agent = AgentPod { node: "n".to_owned(), readiness };
        cluster.entry("brs-n").agents.insert("agent".to_owned(), agent);
        let policy = policy();
        let observed = observe_at(&cluster, &policy, NOW);
        (observed.views[0].time.soak_over, observed.next.map(|next| next.to_string()))
    };
    let long_ago = "2026-11-21T03:00:00Z";
    assert!(soaked(long_ago, Some(long_ago)).0);
    assert_eq!(
        soaked("2026-11-21T03:59:30Z", Some(long_ago)),
        (false, Some("2026-11-21T04:00:30Z".to_owned())),
        "the node was away in between"
    );
    assert!(!soaked(long_ago, Some("2026-11-21T03:59:30Z")).0, "its agent was");
    assert!(!soaked(long_ago, None).0, "its agent is");
}

#[test]
fn a_soak_begun_anew_has_its_time() {
    let spec = json!({"state": "MonitoringUpdate", "state_transition_timestamp": "2026-11-21T03:30:00Z", "attempt": 7});
    let overdue = |agent: Option<&str>| {
        let mut cluster = cluster(
            [("n", json!({}))],
            [("brs-n", spec.clone(), json!({"current_state": "MonitoringUpdate", "attempt": 7}))],
        );
        let readiness = agent.map(|since| Readiness { ready: true, since: Some(since.parse().unwrap()) });
        let agent = AgentPod { node: "n".to_owned(), readiness };
        cluster.entry("brs-n").agents.insert("agent".to_owned(), agent);
        observe_at(&cluster, &policy(), NOW).views[0].time.step_overdue
    };
    assert!(overdue(None), "nobody is well");
    assert!(!overdue(Some("2026-11-21T03:59:30Z")));
    assert!(overdue(Some("2026-11-21T03:30:00Z")));
}

#[test]
fn a_late_host_has_time_to_report() {
    let spec = json!({"state": "RebootedIntoUpdate", "state_transition_timestamp": "2026-11-21T03:00:00Z",
        "attempt": 7, "reboot_from_boot_id": "b"});
    let overdue = |ready: Value| {
        let status = json!({"current_state": "StagedAndPerformedUpdate", "attempt": 7});
        let node = json!({"status": {"conditions": [ready]}});
        let cluster = cluster([("n", node)], [("brs-n", spec.clone(), status)]);
        let policy = policy();
        let observed = observe_at(&cluster, &policy, NOW);
        (observed.views[0].time.step_overdue, observed.next.map(|next| next.to_string()))
    };
    let since = |since: &str| json!({"type": "Ready", "status": "True", "lastTransitionTime": since});
    assert!(overdue(json!({"type": "Ready", "status": "False"})).0, "it is away");
    assert!(overdue(since("2026-11-21T02:00:00Z")).0, "it has never gone");
    let back = overdue(since("2026-11-21T03:59:30Z"));
    assert_eq!(back, (false, Some("2026-11-21T04:09:30Z".to_owned())));
}

#[test]
fn the_fleet_is_seen() {
    let mut cluster = cluster([("a", json!({})), ("b", json!({})), ("c", json!({})), ("n", json!({}))], []);
    let policy = policy();
    assert_eq!(observe_at(&cluster, &policy, NOW).fleet.ledger_term, None);
    let ledger = json!({"metadata": {}, "spec": {}, "status": {"term": 4, "slots": {"brs-a": {"uid": "u", "attempt": 1}}}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
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
    assert!(
        node.labelled
            && node.ready
            && node.unschedulable
            && node.tainted
            && node.paused
            && node.runs_this_process
    );
    assert!(!node.excluded && !node.update_now);
    assert_eq!((node.boot_id, node.version, node.zone), ("boot-1", Some("1.19.4"), Some("z1")));
    assert_eq!(node.marker.unwrap().attempt, 7);
    assert_eq!(view.shadow.unwrap().generation, 3);
    assert_eq!(view.owner_uid, Some("node-n"));
}

#[test]
fn only_nodes_ever_ours_are_looked_at() {
    let label = |value| json!({"metadata": {"labels": {names::UPDATER_INTERFACE_LABEL: value}}});
    let marked = json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: r#"{"shadow_uid":"u","attempt":1}"#},
        "labels": {names::UPDATER_INTERFACE_LABEL: "1.0.0"}}});
    let cluster = cluster(
        [("a", json!({})), ("b", label("1.0.0")), ("c", marked), ("d", label("1.0.0"))],
        [("brs-d", json!({"state": "Idle"}), json!({})), ("brs-gone", json!({"state": "Idle"}), json!({}))],
    );
    let policy = policy();
    let observed = observe_at(&cluster, &policy, NOW);
    let seen: Vec<&str> = observed.views.iter().map(|view| view.shadow_name).collect();
    assert_eq!(seen, ["brs-a", "brs-c", "brs-d", "brs-gone"]);
    assert!(observed.views[3].node.is_none());
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    let bad = json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: "?"}}});
    let cluster = cluster(
        [("a", json!({})), ("n", bad), ("o", json!({}))],
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
    let silent = json!({"current_state": "Idle", "attempt": 1, "current_version": "1.0.0"});
    let mut failed = since("Idle");
    failed["failures"] = json!({"count": 3, "attempt": 2, "at": NOW, "reason": "FellBack"});
    let mut granted = since("RebootedIntoUpdate");
    granted["reboot_from_boot_id"] = json!("boot-1");
    let thrice = back_off(SignedDuration::from_mins(2), 3, "uid-brs-n").as_secs() + 1;
    for (what, spec, status, says, after) in [
        ("not taken up", since("StagedAndPerformedUpdate"), silent, overdue, 600),
        ("staging", since("StagedAndPerformedUpdate"), reports("Idle"), overdue, 3600),
        (
            "staged",
            since("StagedAndPerformedUpdate"),
            reports("StagedAndPerformedUpdate"),
            overdue,
            3600 + 30 + 1800,
        ),
        ("granted", granted, reports("StagedAndPerformedUpdate"), overdue, 1800),
        ("grant withdrawn", since("RebootedIntoUpdate"), reports("Idle"), overdue, 1800 + 930),
        ("soaking", since("MonitoringUpdate"), reports("MonitoringUpdate"), soaked, 60),
        ("monitored", since("MonitoringUpdate"), reports("MonitoringUpdate"), overdue, 660),
        ("not acknowledged", since("Idle"), reports("MonitoringUpdate"), overdue, 600),
        ("failed thrice", failed, reports("Idle"), |time| !time.backing_off, thrice),
        ("other target", since("Idle"), reports("Idle"), |time| !time.backing_off, 60),
    ] {
        let cluster = cluster([("n", json!({}))], [("brs-n", spec, status)]);
        let start: Timestamp = NOW.parse().unwrap();
        let policy = policy();
        for (seconds, expected) in [(after - 1, false), (after, true)] {
            let now = (start + SignedDuration::from_secs(seconds)).to_string();
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
    let later =
        |seconds| (NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)).to_string();
    let now = || Some(NOW.to_owned());
    for (drained, pods_known, after) in [
        (None, true, 900),
        (None, false, 900 + 600),
        (now(), true, 900 + 600),
        (now(), false, 900 + 600),
        (Some(later(890)), true, 900 + 600),
    ] {
        let marker =
            json!({"shadow_uid": "uid-brs-n", "attempt": 2, "drain_started_at": NOW, "drained_at": drained});
        let annotations = json!({names::MARKER_ANNOTATION: marker.to_string()});
        let spec =
            json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": NOW, "attempt": 2});
        let cluster = cluster(
            [("n", json!({"metadata": {"annotations": annotations}}))],
            [("brs-n", spec, json!({"current_state": "StagedAndPerformedUpdate", "attempt": 2}))],
        );
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
        let start: Timestamp = NOW.parse().unwrap();
        let at = |seconds: i64| (start + SignedDuration::from_secs(seconds)).to_string();
        let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 2,
            "excluded_at": excluded.map(at), "drain_started_at": drain.map(at),
            "drained_at": drain.filter(|_| drained).map(at)}).to_string();
        let spec = json!({"state": State::ALL[state], "state_transition_timestamp": at(transition), "attempt": 2,
            "version": "2.0.0",
            "failures": failures.map(|(count, when)| json!({"count": count, "attempt": 2, "at": at(when), "reason": "X"}))});
        let status = json!({"current_state": State::ALL[reported], "attempt": echoed, "current_version": "1.0.0"});
        let cluster = cluster(
            [("n", json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: marker}}}))],
            [("brs-n", spec, status)],
        );
        let policy = policy();
        let facts = |seconds: i64| {
            let text = at(seconds);
            let observed = observe_at(&cluster, &policy, &text);
            (format!("{:?}", observed.views[0].time), observed.next)
        };
        let (before, next) = facts(now);
        // The first whole second at which it may: back-offs end within one.
        let whole = |span: SignedDuration| span.as_secs() + i64::from(span.subsec_nanos() > 0);
        let until = next.map_or(now + 1_000_000, |next| whole(next.duration_since(start)));
        prop_assert!(until > now);
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let between = now + ((until - 1 - now) as f64 * part) as i64;
        prop_assert_eq!(facts(between).0, before);
    }
}

#[test]
fn a_pool_that_keeps_zones_apart_says_which_one_is_busy() {
    use crate::cluster::Watched as _;
    let of = |zone: &str, ready: &str| {
        json!({"metadata": {"labels": {"tier": "db", "topology.kubernetes.io/zone": zone}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    let nodes = [("a", of("x", "True")), ("b", of("x", "False")), ("c", of("y", "True")), ("d", json!({}))];
    let shadows =
        ["brs-a", "brs-b", "brs-c", "brs-d"].map(|name| (name, json!({"state": "Idle"}), json!({})));
    for (mode, expected) in [("OneAtATime", [None, None, Some("x"), None]), ("Spread", [None; 4])] {
        let mut cluster = cluster(nodes.clone(), shadows.clone());
        let spec = json!({"nodeSelector": {"matchLabels": {"tier": "db"}}, "topology": {"mode": mode}});
        let pool = json!({"metadata": {"name": "db", "uid": "p", "generation": 1}, "spec": spec});
        serde_json::from_value::<Item<crate::pool::Pool>>(pool).unwrap().put(&mut cluster);
        let (known, policy) = (known(&cluster), policy());
        let observed = observe_knowing(&cluster, &known, &policy, NOW);
        assert_eq!(observed.views.iter().map(|view| view.busy_zone).collect::<Vec<_>>(), expected, "{mode}");
    }
}

#[test]
fn somebody_elses_cordon_takes_a_place_for_an_hour() {
    let marker = |cordoned: Option<&str>| {
        let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "cordoned_at": cordoned});
        json!({names::MARKER_ANNOTATION: marker.to_string()})
    };
    let (theirs, ours) = (marker(None), marker(Some(NOW)));
    let tainted = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    let since = |at: &str| json!([{"key": "node.kubernetes.io/unschedulable", "timeAdded": at}]);
    for (annotations, unschedulable, taints, now, counts) in [
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
        let spec = json!({"unschedulable": unschedulable, "taints": taints});
        let node = json!({"metadata": {"annotations": annotations}, "spec": spec});
        let cluster = cluster([("n", node)], [("brs-n", json!({"state": "Idle"}), json!({}))]);
        let mut known = Known::default();
        known.note_cordons(&cluster, NOW.parse().unwrap());
        let policy = Policy {
            durations: Durations { others_cordon: SignedDuration::from_hours(1), ..policy().durations },
            ..policy()
        };
        let observed = observe_knowing(&cluster, &known, &policy, now);
        assert_eq!(observed.views[0].time.cordoned_lately, counts, "{unschedulable} {annotations} {now}");
        if counts {
            assert!(observed.next.is_some_and(|next| next.to_string() == "2026-11-21T05:00:00Z"));
        }
    }
}

#[test]
fn an_empty_node_has_two_minutes_for_its_volumes() {
    let started = "2026-11-21T03:44:00Z";
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "drain_started_at": started}).to_string();
    let node = json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: marker}}});
    let time = |since: Option<&str>| {
        let cluster = cluster([("n", node.clone())], [("brs-n", json!({"state": "Idle"}), json!({}))]);
        let drain =
            KnownDrain { empty_since: since.map(|since| since.parse().unwrap()), ..KnownDrain::default() };
        let known = Known { drains: [("brs-n".to_owned(), drain)].into(), ..Known::default() };
        let policy = policy();
        let observed = observe_knowing(&cluster, &known, &policy, NOW);
        (
            observed.views[0].time.volumes_overdue,
            observed.views[0].time.drain_overdue,
            observed.next.map(|next| next.to_string()),
        )
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
    let node = json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: marker.to_string()}},
        "spec": {"unschedulable": true}, "status": {"volumesInUse": ["kubernetes.io/csi/ebs^vol-1"]}});
    let spec = json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": "2026-11-21T03:30:00Z",
        "attempt": 7, "version": "1.20.0", "baseline_boot_id": "boot-1"});
    let status =
        json!({"current_state": "StagedAndPerformedUpdate", "attempt": 7, "target_version": "1.20.0"});
    let mut cluster = cluster([("n", node)], [("brs-n", spec, status)]);
    let slot = json!({"uid": "uid-brs-n", "attempt": 7, "since": "2026-11-21T03:30:00Z"});
    let ledger =
        json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"term": 4, "slots": {"brs-n": slot}}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
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
        known.note_drains([("brs-n".to_owned(), Arc::new(plan), None)].into_iter(), NOW.parse().unwrap());
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
