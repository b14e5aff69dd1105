//! Nodes that must not be out of service together.

use super::*;
use crate::cluster::Watched as _;

/// Nodes of these zones whose hosts have staged their updates, each with a slot, in a pool that keeps zones apart.
fn staged(nodes: &[(&'static str, Value)]) -> Cluster {
    let spec = json!({"state": "StagedAndPerformedUpdate", "state_transition_timestamp": NOW, "version": "1.20.0",
        "attempt": 1, "baseline_boot_id": "boot-1"});
    let status = json!({"current_state": "StagedAndPerformedUpdate", "current_version": "1.19.4",
        "target_version": "1.20.0", "attempt": 1, "boot_id": "boot-1"});
    let mut cluster = cluster(nodes.iter().cloned(), []);
    let mut slots = json!({});
    for (node, _) in nodes {
        let name = shadow_name(node);
        slots[&name] = json!({"uid": format!("uid-{name}"), "attempt": 1, "since": NOW, "pool": "db"});
        let mut shadow = json!(shadow(&name, &spec, &status).ok().unwrap());
        shadow["metadata"]["ownerReferences"] = json!([]);
        cluster.entry(&name).shadow = Some(Arc::new(serde_json::from_value(shadow).unwrap()));
    }
    let ledger = json!({"metadata": {"uid": "f"}, "spec": {"maxUnavailable": 3}, "status": {"term": 4, "slots": slots}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
    cluster
}

/// The reasons, by what is decided for all nodes at once.
fn reasons(cluster: &Cluster) -> Vec<String> {
    let policy = with_steps(StepDurations::default());
    let known = Known { drains: with_drains(cluster.entries.keys()).drains, ..known(cluster) };
    let observed = observe_knowing(cluster, &known, &policy, NOW);
    decide::fleet(&observed).nodes.iter().map(|decision| format!("{:?}", decision.reason)).collect()
}

#[test]
fn zones_that_are_ready_together_are_left_in_their_order() {
    let of = |zone: &str| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
    let (goes, given_up) = ("Cordoning".to_owned(), "Aborting(PoolClosed)".to_owned());
    for (zones, mode, first) in [
        (["y", "x", "y"], "OneAtATime", [false, true, false]),
        (["y", "x", "x"], "OneAtATime", [false, true, true]),
        (["y", "y", "y"], "OneAtATime", [true; 3]),
        (["y", "x", "y"], "Spread", [true; 3]),
    ] {
        let mut cluster = staged(&[("a", of(zones[0])), ("b", of(zones[1])), ("c", of(zones[2]))]);
        let spec = json!({"nodeSelector": {}, "maxUnavailable": 3, "topology": {"mode": mode}});
        let pool = json!({"metadata": {"name": "db", "uid": "p", "generation": 1}, "spec": spec});
        serde_json::from_value::<Item<crate::pool::Pool>>(pool).unwrap().put(&mut cluster);
        let expected = first.map(|first| if first { goes.clone() } else { given_up.clone() });
        assert_eq!(reasons(&cluster), expected, "{zones:?} {mode}");
    }
}

#[test]
fn one_node_of_the_control_plane_is_cordoned_at_a_time() {
    let member = |more: Value| {
        let mut node = json!({"metadata": {"labels": {names::CONTROL_PLANE_LABEL: ""}}});
        merge(&mut node, more);
        node
    };
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let cordoned = json!({"spec": {"unschedulable": true}});
    let not_opted_in = json!({"metadata": {"labels": {names::UPDATER_INTERFACE_LABEL: "none"}}});
    let changes = json!({"shadow_uid": "u", "attempt": 1, "cordoned_at": NOW}).to_string();
    let marked = json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: changes}}});
    let both = |mut one: Value, other: Value| {
        merge(&mut one, other);
        one
    };
    let (goes, given_up) = ("Cordoning", "Aborting(ControlPlaneBusy)");
    for (what, first, second, third, expected) in [
        ("in the order of names", json!({}), json!({}), json!({}), [goes, given_up]),
        ("not Ready", json!({}), json!({}), not_ready.clone(), [given_up; 2]),
        ("cordoned", json!({}), json!({}), cordoned.clone(), [given_up; 2]),
        ("marked", json!({}), json!({}), marked, [given_up; 2]),
        ("not Ready, left out", json!({}), json!({}), both(not_opted_in.clone(), not_ready), [given_up; 2]),
        (
            "cordoned, left out",
            json!({}),
            json!({}),
            both(not_opted_in.clone(), cordoned.clone()),
            [given_up; 2],
        ),
        ("left out", json!({}), json!({}), not_opted_in, [goes, given_up]),
        ("itself cordoned", json!({}), cordoned, json!({}), [given_up, goes]),
    ] {
        let mut cluster = staged(&[("a", member(first)), ("b", member(second)), ("worker", json!({}))]);
        cluster.entry("brs-c").node = Some(node("c", member(third)));
        let reasons = reasons(&cluster);
        let ours = [&*reasons[0], reasons.iter().map(|reason| &**reason).nth(1).unwrap()];
        assert_eq!(ours, expected, "{what}");
        assert_eq!(reasons.last().unwrap(), goes, "{what}: a worker goes on");
    }
}

#[test]
fn who_waits_for_the_control_plane_is_told_for_whom() {
    let member = json!({"metadata": {"labels": {names::CONTROL_PLANE_LABEL: ""}}});
    let mut left_out = member.clone();
    merge(
        &mut left_out,
        json!({"metadata": {"labels": {names::UPDATER_INTERFACE_LABEL: "none"}}, "spec": {"unschedulable": true}}),
    );
    let status = json!({"current_state": "Idle", "current_version": "1.19.4", "target_version": "1.20.0", "boot_id": "boot-1"});
    let mut cluster =
        cluster([("left-out", left_out), ("n", member)], [("brs-n", json!({"state": "Idle"}), status)]);
    let ledger = json!({"metadata": {}, "spec": {"maxUnavailable": 3}, "status": {"term": 4}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
    let policy = policy();
    let observed = observe_at(&cluster, &policy, NOW);
    let decided = decide::fleet(&observed);
    assert_eq!(decided.nodes[0].reason, Reason::ControlPlaneBusy("left-out"));
    assert_eq!(decided.slots.preflight, [0_usize; 0], "it is not next");
}
