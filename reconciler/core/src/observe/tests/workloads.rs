//! Workloads whose pods were evicted: who is waited for, and for how long.

use super::*;
use crate::facts::NodeView;
use crate::workloads::Evicted;
use brupop_api::marker::Before;

const CART: &str = "apps/v1/ReplicaSet/shop/cart";

/// What an update evicted, of this owner.
fn evicted(owners: &[&str]) -> Marker {
    let evicted_owners = owners.iter().map(|&owner| owner.to_owned()).collect();
    Marker { shadow_uid: "uid-brs-n".to_owned(), attempt: 7, evicted_owners, ..Marker::default() }
}

/// What `see` finds of a node that is watched since two minutes, if its slot was taken then.
fn seen<T>(
    since: Option<&str>,
    found: Evicted<'_>,
    now: &str,
    policy: &Policy,
    see: impl Fn(&NodeView<'_>) -> T,
) -> T {
    let marker = annotated(names::MARKER_ANNOTATION, evicted(&[CART]).render());
    let mut cluster = watched("2026-11-21T03:58:00Z", marker);
    let slot = json!({"uid": "uid-brs-n", "attempt": 7, "since": since});
    put_ledger(&mut cluster, json!({}), json!({"slots": {"brs-n": slot}}));
    let monitored = BTreeMap::from([("brs-n".to_owned(), vec![])]);
    let mut known = Known::default();
    known.note_evicted(&monitored, |_| found);
    see(&observe_knowing(&cluster, &known, policy, now).views[0])
}

#[test]
fn what_was_evicted_is_missing_until_seen() {
    let since = Some("2026-11-21T03:50:00Z");
    let not_at_all =
        || with_steps(StepDurations { workloads: SignedDuration::ZERO, ..StepDurations::default() });
    let missing = Evicted::Missing { owner: CART, changed: false };
    let changed = Evicted::Missing { owner: CART, changed: true };
    for (what, since, found, policy, expected) in [
        ("not looked at", since, Evicted::Unknown, policy(), Evicted::Unknown),
        ("looked at", since, Evicted::Back, policy(), Evicted::Back),
        ("one is missing", since, missing, policy(), missing),
        ("one is missing, and was changed", since, changed, policy(), changed),
        ("nobody wants to wait", since, missing, not_at_all(), Evicted::Back),
        ("emptied by an earlier version", None, missing, policy(), Evicted::Back),
    ] {
        seen(since, found, NOW, &policy, |seen| assert_eq!(seen.evicted, expected, "{what}"));
    }
}

#[test]
fn owners_matter_while_their_node_is_watched() {
    let monitored = |policy: Policy, owners: &[&str], state: &str| {
        let owners_before = vec![Before { available: 2, revision: None }];
        let marker = Marker { owners_before, ..evicted(owners) }.render();
        let nodes = [("n", annotated(names::MARKER_ANNOTATION, marker)), ("unmarked", json!({}))];
        let spec = json!({"state": state});
        let shadows = [("brs-n", spec.clone(), json!({})), ("brs-unmarked", spec, json!({}))];
        let cluster = cluster(nodes, shadows);
        known(&cluster).monitored(&cluster, &RulesByOwner::new(&cluster, &policy))
    };
    let expected = Some(Before { available: 2, revision: None });
    let expected = BTreeMap::from([("brs-n".to_owned(), vec![(CART.to_owned(), expected)])]);
    assert_eq!(monitored(policy(), &[CART], "MonitoringUpdate"), expected);
    assert_eq!(monitored(policy(), &[CART], "RebootedIntoUpdate"), BTreeMap::new());
    let unchecked = with_steps(StepDurations { workloads: SignedDuration::ZERO, ..StepDurations::default() });
    assert_eq!(monitored(unchecked, &[CART], "MonitoringUpdate"), BTreeMap::new());
}

#[test]
fn a_slot_tells_how_long_it_lasted() {
    let seconds = |since| seen(since, Evicted::Back, NOW, &POLICY, |seen| seen.time.slot_seconds);
    assert_eq!(seconds(Some("2026-11-21T03:50:00Z")), Some(600));
    assert_eq!(seconds(Some("2026-11-21T04:00:01Z")), Some(0), "by a clock that goes ahead");
    assert_eq!(seconds(None), None);
}

#[test]
fn only_the_workloads_deadline_ends_their_wait() {
    // Watched since 03:58 for a minute; 15 more for workloads, and 10 for a node that is not well.
    let times = |now| {
        let see = |seen: &NodeView<'_>| (seen.time.workloads_overdue, seen.time.step_overdue);
        let missing = Evicted::Missing { owner: CART, changed: false };
        seen(Some("2026-11-21T03:50:00Z"), missing, now, &POLICY, see)
    };
    assert_eq!(times("2026-11-21T04:13:59Z"), (false, false));
    assert_eq!(times("2026-11-21T04:14:00Z"), (true, false));
    assert_eq!(times("2026-11-21T04:24:00Z"), (true, true));
}

/// Anyone who drains another node takes pods from the same workloads.
#[test]
fn a_node_that_somebody_drains_is_not_in_service() {
    let (not_ready, left_out) = (ready("False", None), opted("none"));
    let cordoned = json!({"spec": {"unschedulable": true}});
    let tainted = json!({"spec": {"taints": [{"key": names::LEAVING_TAINTS[0], "effect": "NoSchedule"}]}});
    for (what, other, expected) in [
        ("it is well", json!({}), true),
        ("it is not Ready", not_ready.clone(), false),
        ("nobody minds others that are not Ready", with(not_ready, &left_out), true),
        ("a person has cordoned it", cordoned.clone(), false),
        ("it is not opted in, and cordoned", with(cordoned, &left_out), false),
        ("an autoscaler removes it", with(tainted, &left_out), false),
    ] {
        let cluster = cluster([("n", json!({})), ("o", other)], []);
        assert_eq!(observe_at(&cluster, &POLICY, NOW).fleet.all_in_service, expected, "{what}");
    }
}
