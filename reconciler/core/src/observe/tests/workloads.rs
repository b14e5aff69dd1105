//! Workloads whose pods were evicted: who is waited for, and for how long.

use super::*;
use crate::facts::NodeView;
use crate::workloads::Evicted;

const CART: &str = "apps/v1/ReplicaSet/shop/cart";

/// What an update evicted, of this owner.
fn evicted(owners: &[&str]) -> Marker {
    let evicted_owners = owners.iter().map(|&owner| (owner.to_owned(), 2)).collect();
    Marker {
        shadow_uid: "uid-brs-n".to_owned(),
        attempt: 7,
        evicted_owners,
        ..Marker::default()
    }
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
    let monitored = BTreeMap::from([("brs-n".to_owned(), BTreeMap::new())]);
    let mut known = Known::default();
    known.note_evicted(&monitored, |_, _| found);
    see(&observe_knowing(&cluster, &known, policy, now).views[0])
}

#[test]
fn what_was_evicted_is_missing_until_seen() {
    let since = Some("2026-11-21T03:50:00Z");
    let not_at_all = || {
        with_steps(StepDurations {
            workloads: SignedDuration::ZERO,
            ..StepDurations::default()
        })
    };
    let missing = Evicted::Missing(CART);
    for (what, found, policy, expected) in [
        (
            "not looked at",
            Evicted::Unknown,
            policy(),
            Evicted::Unknown,
        ),
        ("looked at", Evicted::Back, policy(), Evicted::Back),
        ("one is missing", missing, policy(), missing),
        ("nobody wants to wait", missing, not_at_all(), Evicted::Back),
    ] {
        seen(since, found, NOW, &policy, |seen| {
            assert_eq!(seen.evicted, expected, "{what}");
        });
    }
}

#[test]
fn owners_matter_while_their_node_is_watched() {
    let monitored = |policy: Policy, owners: &[&str], state: &str| {
        let marker = evicted(owners).render();
        let nodes = [
            ("n", annotated(names::MARKER_ANNOTATION, marker)),
            ("unmarked", json!({})),
        ];
        let spec = json!({"state": state});
        let shadows = [
            ("brs-n", spec.clone(), json!({})),
            ("brs-unmarked", spec, json!({})),
        ];
        let cluster = cluster(nodes, shadows);
        known(&cluster).monitored(&cluster, &RulesByOwner::new(&cluster, &policy))
    };
    let expected = BTreeMap::from([("brs-n".to_owned(), BTreeMap::from([(CART.to_owned(), 2)]))]);
    assert_eq!(monitored(policy(), &[CART], "MonitoringUpdate"), expected);
    assert_eq!(
        monitored(policy(), &[CART], "RebootedIntoUpdate"),
        BTreeMap::new()
    );
    let unchecked = with_steps(StepDurations {
        workloads: SignedDuration::ZERO,
        ..StepDurations::default()
    });
    assert_eq!(
        monitored(unchecked, &[CART], "MonitoringUpdate"),
        BTreeMap::new()
    );
}

#[test]
fn a_slot_tells_how_long_it_lasted() {
    let seconds = |since| {
        seen(since, Evicted::Back, NOW, &POLICY, |seen| {
            seen.time.slot_seconds
        })
    };
    assert_eq!(seconds(Some("2026-11-21T03:50:00Z")), Some(600));
    assert_eq!(
        seconds(Some("2026-11-21T04:00:01Z")),
        Some(0),
        "by a clock that goes ahead"
    );
    assert_eq!(seconds(None), None);
}

#[test]
fn only_the_workloads_deadline_ends_their_wait() {
    // Watched since 03:58 for a minute; 15 more for workloads, and 10 for a node that is not well.
    let times = |now| {
        let see = |seen: &NodeView<'_>| (seen.time.workloads_overdue, seen.time.step_overdue);
        let missing = Evicted::Missing(CART);
        seen(Some("2026-11-21T03:50:00Z"), missing, now, &POLICY, see)
    };
    assert_eq!(times("2026-11-21T04:13:59Z"), (false, false));
    assert_eq!(times("2026-11-21T04:14:00Z"), (true, false));
    assert_eq!(times("2026-11-21T04:24:00Z"), (true, true));
}
