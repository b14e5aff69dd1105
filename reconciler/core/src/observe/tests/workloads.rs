//! Workloads whose pods were evicted: who is waited for, and for how long.

use super::*;
use crate::facts::NodeView;
use crate::workloads::{Evicted, Scale, Scales};

const CART: &str = "apps/v1/ReplicaSet/shop/cart";

/// Returns what `see` finds of a node that has been watched for two minutes. Its slot was taken at `since`. A workload of its
/// pods had two pods available, and has `available` when it is read.
fn seen<T>(
    since: Option<&str>,
    available: Option<u32>,
    now: &str,
    policy: &Policy,
    see: impl Fn(&NodeView<'_>) -> T,
) -> T {
    let marker = Marker {
        shadow_uid: "uid-brs-n".to_owned(),
        attempt: 7,
        evicted_owners: BTreeMap::from([(CART.to_owned(), 2)]),
        ..Marker::default()
    };
    let marker = annotated(names::MARKER_ANNOTATION, marker.render());
    let mut cluster = watched("2026-11-21T03:58:00Z", marker);
    let slot = json!({"uid": "uid-brs-n", "attempt": 7, "since": since});
    put_ledger(&mut cluster, json!({}), json!({"slots": {"brs-n": slot}}));
    cluster.record("brs-n").led.scales = available.map(|available| {
        let (is_leaving, wanted) = (false, 2);
        let scale = Scale {
            is_leaving,
            wanted,
            available,
        };
        Scales::from([(CART.to_owned(), Some(scale))])
    });
    see(&observe_at(&cluster, policy, now).views[0])
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
    for (what, available, policy, expected) in [
        ("not read", None, policy(), Evicted::Unknown),
        ("all are there", Some(2), policy(), Evicted::Back),
        ("one is missing", Some(1), policy(), missing),
        ("nobody wants to wait", Some(1), not_at_all(), Evicted::Back),
    ] {
        seen(since, available, NOW, &policy, |seen| {
            assert_eq!(seen.evicted, expected, "{what}");
        });
    }
}

#[test]
fn a_slot_tells_how_long_it_lasted() {
    let seconds = |since| seen(since, Some(2), NOW, &POLICY, |seen| seen.time.slot_seconds);
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
        seen(Some("2026-11-21T03:50:00Z"), Some(1), now, &POLICY, see)
    };
    assert_eq!(times("2026-11-21T04:13:59Z"), (false, false));
    assert_eq!(times("2026-11-21T04:14:00Z"), (true, false));
    assert_eq!(times("2026-11-21T04:24:00Z"), (true, true));
}
