//! Objects and times, and what is seen in them.

mod ahead;
mod deadlines;
mod pools;
mod slots;
mod unmanaged;
mod unreachable;
mod unreadable;
mod workloads;

use super::*;
use crate::cluster::Watched as _;
use crate::decide::Reason;
use crate::drain::DrainPlan;
use crate::rules::{Rules, StepDurations};
use crate::status::Progress;
use crate::tests::world::*;
use brupop_api::names::{self, shadow_name};
use brupop_api::{Marker, pool::Limit};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

static POLICY: LazyLock<Policy> = LazyLock::new(policy);

fn policy() -> Policy {
    let seconds = SignedDuration::from_secs;
    let steps = StepDurations {
        exclusion: seconds(30),
        ..StepDurations::default()
    };
    Policy {
        default_pool: Rules::of_settings(Limit::Percent(50), vec![], steps),
        stage: seconds(3600),
        reboot: seconds(1800),
        settle: seconds(600),
        back_off_base: seconds(120),
        min_node_age: seconds(0),
        ..Policy::default()
    }
}

/// Returns where the steps take so long.
fn with_steps(steps: StepDurations) -> Policy {
    Policy {
        default_pool: Rules::of_settings(Limit::Percent(50), vec![], steps),
        ..policy()
    }
}

/// Returns where these times are so long.
fn with_times(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = policy();
    change(&mut policy);
    policy
}

/// A node of this kind in mid-update, whose spec wants this state since then, and whose agent has reached that one.
fn updating(state: &str, since: &str, reached: &str, node: Value) -> Cluster {
    let spec = json!({"state": state, "state_transition_timestamp": since, "attempt": 7});
    cluster(
        [("n", node)],
        [(
            "brs-n",
            spec,
            json!({"current_state": reached, "attempt": 7}),
        )],
    )
}

/// A node that is watched since then.
fn watched(since: &str, node: Value) -> Cluster {
    updating("MonitoringUpdate", since, "MonitoringUpdate", node)
}

fn next(observed: &Observed<'_>) -> Option<String> {
    observed.clock.next.map(|next| next.to_string())
}

fn observe_at<'a>(cluster: &Cluster, policy: &'a Policy, now: &'a str) -> Observed<'a> {
    observe_knowing(cluster, &LeaderState::default(), policy, now)
}

#[test]
fn only_nodes_ever_ours_are_looked_at() {
    let left_out = || opted("1.0.0");
    let marked = with(
        left_out(),
        &marked(json!({"shadow_uid": "u", "attempt": 1})),
    );
    let idle = || json!({"state": "Idle"});
    let cluster = cluster(
        [
            ("a", json!({})),
            ("b", left_out()),
            ("c", marked),
            ("d", left_out()),
        ],
        [
            ("brs-d", idle(), json!({})),
            ("brs-gone", idle(), json!({})),
        ],
    );
    let observed = observe_at(&cluster, &POLICY, NOW);
    let seen: Vec<&str> = observed.views.iter().map(|view| view.shadow_name).collect();
    assert_eq!(seen, ["brs-a", "brs-c", "brs-d", "brs-gone"]);
    assert!(observed.views[3].node.is_none());
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    let reported = json!({"current_version": "1.19.4", "boot_id": "boot-1"});
    let cluster = cluster(
        [
            ("a", json!({})),
            ("n", annotated(names::MARKER_ANNOTATION, "?")),
            ("o", json!({})),
        ],
        [
            ("brs-a", json!({"state": "Dreaming"}), json!({})),
            (
                "brs-n",
                json!({"state": "Idle", "attempt": 1}),
                reported.clone(),
            ),
            ("brs-o", json!({"state": "Idle"}), reported),
        ],
    );
    let mut observed = observe_at(&cluster, &POLICY, NOW);
    observed.fleet.ledger_term = Some(observed.fleet.term);
    let unreadable = observed.views.iter().map(NodeView::is_unreadable);
    assert_eq!(unreadable.collect::<Vec<_>>(), [true, true, false]);
    assert!(
        observed.views[1].node.unwrap().marker.is_some(),
        "the slot of an unread marker is kept"
    );
    assert!(observed.views[2].shadow.is_some());
    let decisions = observed.decide().nodes;
    assert_eq!(
        Progress::of_fleet(&observed, &decisions)
            .counts
            .updated_nodes,
        1,
        "what cannot be read does not count as up to date"
    );
    for left_alone in &decisions[..2] {
        assert!(left_alone.reason.is_not_understood() && left_alone.step.is_none());
    }
}

#[test]
fn a_name_that_is_too_long_is_told() {
    let name: &'static str = "n".repeat(names::NODE_NAME_MAX + 1).leak();
    let cluster = cluster([(name, json!({})), (&name[1..], json!({}))], []);
    let observed = observe_at(&cluster, &POLICY, NOW);
    assert_eq!(observed.too_long, [shadow_name(name)]);
    assert_eq!(observed.views.len(), 1);
}

#[test]
fn a_pool_that_keeps_zones_apart_says_which_one_is_busy() {
    let of = |zone: &str, is_ready: &str| {
        with(
            ready(is_ready, None),
            &labels(json!({"tier": "db", "topology.kubernetes.io/zone": zone})),
        )
    };
    let nodes = [
        ("a", of("x", "True")),
        ("b", of("x", "False")),
        ("c", of("y", "True")),
        ("d", json!({})),
    ];
    let shadows = ["brs-a", "brs-b", "brs-c", "brs-d"]
        .map(|name| (name, json!({"state": "Idle"}), json!({})));
    for (mode, expected) in [
        ("OneAtATime", [None, None, Some("x"), None]),
        ("Spread", [None; 4]),
    ] {
        let mut cluster = cluster(nodes.clone(), shadows.clone());
        let spec =
            json!({"nodeSelector": {"matchLabels": {"tier": "db"}}, "topology": {"mode": mode}});
        pool("db", spec).put(&mut cluster);
        let observed = observe_knowing(&cluster, &known(&cluster), &POLICY, NOW);
        assert_eq!(
            observed
                .views
                .iter()
                .map(|view| view.busy_zone)
                .collect::<Vec<_>>(),
            expected,
            "{mode}"
        );
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
        let node = with(
            json!({"spec": {"unschedulable": unschedulable, "taints": taints}}),
            marker,
        );
        let mut cluster = cluster(
            [("n", node)],
            [("brs-n", json!({"state": "Idle"}), json!({}))],
        );
        prepare(&mut cluster);
        let policy = with_times(|times| times.others_cordon = SignedDuration::from_hours(1));
        let observed = observe_at(&cluster, &policy, now);
        assert_eq!(
            observed.views[0].time.cordoned_lately, counts,
            "{unschedulable} {marker} {now}"
        );
        if counts {
            assert_eq!(next(&observed).as_deref(), Some("2026-11-21T05:00:00Z"));
        }
    }
}

/// It leads since just now, half a minute after the drain's deadline.
#[test]
fn a_new_leader_looks_at_the_pods_before_it_gives_a_drain_up() {
    let marker = json!({"shadow_uid": "uid-brs-n", "attempt": 7, "cordoned_at": "2026-11-21T03:44:30Z",
        "drain_started_at": "2026-11-21T03:44:30Z"});
    let node = json!({"spec": {"unschedulable": true}, "status": {"volumesInUse": ["kubernetes.io/csi/ebs^vol-1"]}});
    let node = with(node, &marked(marker));
    let spec = json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": "2026-11-21T03:30:00Z",
        "attempt": 7, "version": "1.20.0", "baseline_boot_id": "boot-1"});
    let status = json!({"current_state": "StagedAndPerformedUpdate", "attempt": 7, "target_version": "1.20.0"});
    let mut cluster = cluster([("n", node)], [("brs-n", spec, status)]);
    let slot = json!({"uid": "uid-brs-n", "attempt": 7, "since": "2026-11-21T03:30:00Z"});
    put_ledger(&mut cluster, json!({}), json!({"slots": {"brs-n": slot}}));
    let reason = |cluster: &Cluster, now: &str| {
        let observed = observe_at(cluster, &POLICY, now);
        observed.decide().nodes[0].reason.as_str()
    };
    let nothing = cluster.clone();
    assert_eq!(reason(&nothing, NOW), "Draining", "the pods are not known");
    assert_eq!(reason(&nothing, "2026-11-21T04:09:29Z"), "Draining");
    assert_eq!(
        reason(&nothing, "2026-11-21T04:09:30Z"),
        "Aborting",
        "they should be"
    );
    let known = |plan| {
        let mut cluster = cluster.clone();
        let drain = Some((Arc::new(plan), None));
        cluster.record("brs-n").record_drain(drain, at(NOW));
        cluster
    };
    let empty = known(DrainPlan::default());
    assert_eq!(reason(&empty, NOW), "Draining");
    assert_eq!(
        reason(&empty, "2026-11-21T04:00:29Z"),
        "Draining",
        "for a minute after the drain's time"
    );
    assert_eq!(
        reason(&empty, "2026-11-21T04:00:30Z"),
        "Draining",
        "its reboot is granted"
    );
    let evict = vec![crate::drain::PodKey {
        namespace: "shop".into(),
        name: "cart".into(),
        uid: "c".into(),
    }];
    let full = known(DrainPlan {
        evict,
        ..DrainPlan::default()
    });
    assert_eq!(reason(&full, NOW), "Aborting", "its obstacle is known");
}

/// Nodes that could begin, or whose hosts have staged their updates, each with a slot.
fn with_updates(nodes: &[(&str, Value)], is_staged: bool) -> Cluster {
    let (mut spec, mut status) = (json!({"state": "Idle"}), json!({"current_state": "Idle"}));
    if is_staged {
        spec = json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": NOW, "version": NEW,
            "attempt": 1, "baseline_boot_id": "boot-1"});
        status = json!({"current_state": "StagedAndPerformedUpdate", "attempt": 1});
    }
    let reported = json!({"current_version": OLD, "target_version": NEW, "boot_id": "boot-1"});
    let names: Vec<_> = nodes.iter().map(|(node, _)| shadow_name(node)).collect();
    let shadow = |name| (name, spec.clone(), with(status.clone(), &reported));
    let shadows: Vec<_> = names.iter().map(|name| shadow(name.as_str())).collect();
    let mut cluster = cluster(nodes.iter().cloned(), shadows);
    let slot = |name: &String| json!({"uid": format!("uid-{name}"), "attempt": 1, "since": NOW, "pool": "db"});
    let slots = names
        .iter()
        .filter(|_| is_staged)
        .map(|name| (name, slot(name)));
    let slots: BTreeMap<_, _> = slots.collect();
    let versions = json!([{"version": NEW, "variant": "aws-k8s-1.29", "succeeded": 3}]);
    put_ledger(
        &mut cluster,
        json!({"maxUnavailable": 3}),
        json!({"slots": slots, "versions": versions}),
    );
    know_pods(
        &mut cluster,
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    cluster
}

/// Whether each of these nodes is cordoned, or gives up; and the nodes that get slots.
fn cordoned(cluster: &Cluster) -> (Vec<bool>, Vec<usize>) {
    let policy = Policy {
        default_pool: Rules::of_settings(Limit::Unlimited, vec![], StepDurations::default()),
        ..policy()
    };
    let decided = observe_at(cluster, &policy, NOW);
    let decided = decided.decide();
    let reasons = decided.nodes.iter().map(|it| format!("{:?}", it.reason));
    (reasons.map(|it| it == "Cordoning").collect(), decided.taken)
}

#[test]
fn zones_that_are_ready_together_are_left_in_their_order() {
    for (zones, mode, first) in [
        (["y", "x", "y"], "OneAtATime", [false, true, false]),
        (["y", "x", "x"], "OneAtATime", [false, true, true]),
        (["y", "y", "y"], "OneAtATime", [true; 3]),
        (["y", "x", "y"], "Spread", [true; 3]),
    ] {
        let zone = |at: usize| labels(json!({"topology.kubernetes.io/zone": zones[at]}));
        let mut cluster = with_updates(&[("a", zone(0)), ("b", zone(1)), ("c", zone(2))], true);
        let spec = json!({"maxUnavailable": 3, "topology": {"mode": mode}});
        pool("db", spec).put(&mut cluster);
        assert_eq!(cordoned(&cluster).0, first, "{zones:?} {mode}");
    }
}

#[test]
fn one_node_of_the_control_plane_is_cordoned_at_a_time() {
    let member = |more: &Value| with(labels(json!({names::CONTROL_PLANE_LABEL: ""})), more);
    let (none, not_ready, left_out) = (json!({}), ready("False", None), opted("none"));
    let away = json!({"spec": {"unschedulable": true}});
    let marked = marked(json!({"shadow_uid": "u", "attempt": 1, "cordoned_at": NOW}));
    for (what, second, third, first_two) in rows! {
        "in the order of names", &none, none.clone() => [true, false];
        "not Ready", &none, not_ready.clone() => [false; 2];
        "cordoned", &none, away.clone() => [false; 2];
        "marked", &none, marked => [false; 2];
        "not Ready, left out", &none, with(left_out.clone(), &not_ready) => [false; 2];
        "cordoned, left out", &none, with(left_out.clone(), &away) => [false; 2];
        "left out", &none, left_out => [true, false];
        "itself cordoned", &away, none.clone() => [false, true];
    } {
        let nodes = [
            ("a", member(&none)),
            ("b", member(second)),
            ("worker", none.clone()),
        ];
        let mut cluster = with_updates(&nodes, true);
        node("c", member(&third)).put(&mut cluster);
        let cordoned = cordoned(&cluster).0;
        assert_eq!(
            (&cordoned[..2], cordoned.last()),
            (&first_two[..], Some(&true)),
            "{what}"
        );
    }
    // Nor do two begin in one pass.
    let two = with_updates(&[("a", member(&none)), ("b", member(&none))], false);
    assert_eq!(cordoned(&two).1, [0]);
}

#[test]
fn who_waits_for_the_control_plane_is_told_for_whom() {
    let member = labels(json!({names::CONTROL_PLANE_LABEL: ""}));
    let left_out = with(
        with(member.clone(), &opted("none")),
        &json!({"spec": {"unschedulable": true}}),
    );
    let status = json!({"current_state": "Idle", "current_version": "1.19.4", "target_version": "1.20.0", "boot_id": "boot-1"});
    let mut cluster = cluster(
        [("left-out", left_out), ("n", member)],
        [("brs-n", json!({"state": "Idle"}), status)],
    );
    put_ledger(&mut cluster, json!({"maxUnavailable": 3}), json!({}));
    let observed = observe_at(&cluster, &POLICY, NOW);
    let decided = observed.decide();
    assert_eq!(
        decided.nodes[0].reason,
        Reason::ControlPlaneBusy("left-out")
    );
    assert_eq!(decided.preflight, [0_usize; 0], "it is not next");
}
