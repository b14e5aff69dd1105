//! After the reboot: workloads whose pods were evicted are waited for.

use super::versions;
use super::world::*;
use crate::workloads::Evicted;

const CART: &str = "apps/v1/ReplicaSet/shop/cart";
const MISSING: Evicted<'static> = Evicted::Missing { owner: CART, changed: false };
const CHANGED: Evicted<'static> = Evicted::Missing { owner: CART, changed: true };

#[test]
fn the_soak_ends_when_workloads_are_back() {
    for (evicted, overdue, soak_over, reason) in [
        (Evicted::Back, false, true, Reason::Finishing),
        (Evicted::Back, true, true, Reason::Finishing),
        (Evicted::Back, false, false, Reason::Monitoring),
        (MISSING, false, false, Reason::Monitoring),
        (MISSING, false, true, Reason::WorkloadsUnavailable(CART)),
        (MISSING, true, true, Reason::Aborting(Abort::WorkloadsUnavailable)),
        (CHANGED, false, false, Reason::Monitoring),
        (CHANGED, false, true, Reason::WorkloadsUnavailable(CART)),
        (CHANGED, true, true, Reason::Aborting(Abort::WorkloadsChanged)),
        (Evicted::Unknown, false, true, Reason::Monitoring),
        (Evicted::Unknown, true, true, Reason::Finishing),
    ] {
        let mut view = NodeView { evicted, ..watched() };
        (view.time.soak_over, view.time.workloads_overdue) = (soak_over, overdue);
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, reason, "{evicted:?}, overdue: {overdue}, soak over: {soak_over}");
        let ends = matches!(reason, Reason::Finishing | Reason::Aborting(_));
        assert_eq!(decision.effect.is_some(), ends, "{reason:?}");
        assert!(!ends || next_state(&decision) == Some(Idle), "{reason:?}");
    }
}

#[test]
fn other_updates_excuse_a_missing_workload() {
    let view = NodeView { evicted: MISSING, ..watched() }.with(|view| view.time.workloads_overdue = true);
    let mut slots = SLOT.clone();
    slots.extend(slot("brs-other", "other", 1));
    for among in [FleetFacts { slots: &slots, ..fleet() }, FleetFacts { all_in_service: false, ..fleet() }] {
        let decision = decide(&among, &view).reason;
        assert_eq!(decision, Reason::Aborting(Abort::WorkloadsUnavailableAmongOthers));
        let changed = NodeView { evicted: CHANGED, ..view };
        assert_eq!(decide(&among, &changed).reason, Reason::Aborting(Abort::WorkloadsChanged));
    }
    assert!(Abort::WorkloadsUnavailableAmongOthers.is_failure());
}

/// It says neither that the version is bad nor that it is good.
#[test]
fn a_changed_workload_counts_neither_for_nor_against_the_version() {
    let changed = versions::failures(Abort::WorkloadsChanged.as_str());
    let view = versions::over(Some(&changed)).rebooted(NEW);
    let ledger = slots(&fleet(), &[view]).write.unwrap();
    assert_eq!(sets(&ledger, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(sets(&ledger, Field::VersionRecord(NEW)), None);
    let view = NodeView { evicted: CHANGED, ..watched() }.with(|view| view.time.workloads_overdue = true);
    assert!(failures_of(&decide(&fleet(), &view)).is_some());
}

#[test]
fn a_node_without_label_waits_for_none() {
    let view = NodeView { evicted: MISSING, ..watched() }.with_node(|node| node.labelled = false);
    assert_eq!(decide(&fleet(), &view).reason, Reason::Aborting(Abort::NotLabelled));
}

#[test]
fn given_up_in_service_keeps_no_slot() {
    let (shadow_uid, evicted_owners) = (UID.to_owned(), vec![CART.to_owned()]);
    let owners = Marker { shadow_uid, attempt: 1, evicted_owners, ..Marker::default() };
    for (marker, ready, undone) in
        [(&owners, false, true), (&owners, true, true), (&DRAINED, false, false), (&DRAINED, true, true)]
    {
        let view = updating(Idle, Idle).marked_by(marker).with_node(|node| node.ready = ready);
        assert_eq!(decide(&fleet(), &view).effect.is_some(), undone, "{marker:?}, Ready: {ready}");
    }
}
