//! Nodes that must not be out of service together.

use super::*;
use crate::cluster::KnownDrain;
use crate::cluster::Watched as _;

/// Nodes of these zones whose hosts have staged their updates, each with a slot, in a pool that keeps zones apart.
fn staged(nodes: &[(&str, Value)]) -> Cluster {
    let spec = json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": NOW, "version": "1.20.0",
        "attempt": 1, "baseline_boot_id": "boot-1"});
    let status = json!({"current_state": "StagedAndPerformedUpdate", "current_version": "1.19.4",
        "target_version": "1.20.0", "attempt": 1, "boot_id": "boot-1"});
    let names: Vec<String> = nodes.iter().map(|(node, _)| shadow_name(node)).collect();
    let shadows = names
        .iter()
        .map(|name| (name.as_str(), spec.clone(), status.clone()));
    let mut cluster = cluster(nodes.iter().cloned(), shadows);
    let slot = |name: &String| json!({"uid": format!("uid-{name}"), "attempt": 1, "since": NOW, "pool": "db"});
    let slots: BTreeMap<_, _> = names.iter().map(|name| (name, slot(name))).collect();
    put_ledger(
        &mut cluster,
        json!({"maxUnavailable": 3}),
        json!({"slots": slots}),
    );
    cluster
}

/// The reasons, by what is decided for all nodes at once.
fn reasons(cluster: &Cluster) -> Vec<String> {
    let policy = with_steps(StepDurations::default());
    let mut cluster = cluster.clone();
    for record in cluster.records.values_mut() {
        record.led.drain = Some(KnownDrain::default());
    }
    let observed = observe_at(&cluster, &policy, NOW);
    observed
        .decide()
        .nodes
        .iter()
        .map(|decision| format!("{:?}", decision.reason))
        .collect()
}

#[test]
fn zones_that_are_ready_together_are_left_in_their_order() {
    let of = |zone: &str| labels(json!({"topology.kubernetes.io/zone": zone}));
    let (goes, given_up) = (
        "Draining(Cordons)".to_owned(),
        "Aborting(PoolClosed)".to_owned(),
    );
    for (zones, mode, first) in [
        (["y", "x", "y"], "OneAtATime", [false, true, false]),
        (["y", "x", "x"], "OneAtATime", [false, true, true]),
        (["y", "y", "y"], "OneAtATime", [true; 3]),
        (["y", "x", "y"], "Spread", [true; 3]),
    ] {
        let mut cluster = staged(&[
            ("a", of(zones[0])),
            ("b", of(zones[1])),
            ("c", of(zones[2])),
        ]);
        pool(
            "db",
            json!({"maxUnavailable": 3, "topology": {"mode": mode}}),
        )
        .put(&mut cluster);
        let expected = first.map(|first| {
            if first {
                goes.clone()
            } else {
                given_up.clone()
            }
        });
        assert_eq!(reasons(&cluster), expected, "{zones:?} {mode}");
    }
}

#[test]
fn one_node_of_the_control_plane_is_cordoned_at_a_time() {
    let member = |more: Value| with(labels(json!({names::CONTROL_PLANE_LABEL: ""})), &more);
    let (not_ready, left_out) = (ready("False", None), opted("none"));
    let cordoned = json!({"spec": {"unschedulable": true}});
    let marked = marked(json!({"shadow_uid": "u", "attempt": 1, "cordoned_at": NOW}));
    let (goes, given_up) = ("Draining(Cordons)", "Aborting(PoolClosed)");
    for (what, first, second, third, expected) in [
        (
            "in the order of names",
            json!({}),
            json!({}),
            json!({}),
            [goes, given_up],
        ),
        (
            "not Ready",
            json!({}),
            json!({}),
            not_ready.clone(),
            [given_up; 2],
        ),
        (
            "cordoned",
            json!({}),
            json!({}),
            cordoned.clone(),
            [given_up; 2],
        ),
        ("marked", json!({}), json!({}), marked, [given_up; 2]),
        (
            "not Ready, left out",
            json!({}),
            json!({}),
            with(left_out.clone(), &not_ready),
            [given_up; 2],
        ),
        (
            "cordoned, left out",
            json!({}),
            json!({}),
            with(left_out.clone(), &cordoned),
            [given_up; 2],
        ),
        ("left out", json!({}), json!({}), left_out, [goes, given_up]),
        (
            "itself cordoned",
            json!({}),
            cordoned,
            json!({}),
            [given_up, goes],
        ),
    ] {
        let mut cluster = staged(&[
            ("a", member(first)),
            ("b", member(second)),
            ("worker", json!({})),
        ]);
        node("c", member(third)).put(&mut cluster);
        let reasons = reasons(&cluster);
        assert_eq!(reasons[..2], expected, "{what}");
        assert_eq!(reasons.last().unwrap(), goes, "{what}: a worker goes on");
    }
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
    assert_eq!(decided.allocation.preflight, [0_usize; 0], "it is not next");
}
