//! After the reboot: workloads whose pods were evicted are waited for.

use State::{Idle, MonitoringUpdate};

use super::world::*;
use super::*;
use crate::decide::{Abort, Reason, node as decide};
use crate::facts::{FleetFacts, NodeView};
use crate::workloads::Evicted;

const CART: &str = "apps/v1/ReplicaSet/shop/cart";
const MISSING: Evicted<'static> = Evicted::Missing { owner: CART, changed: false };
const CHANGED: Evicted<'static> = Evicted::Missing { owner: CART, changed: true };

/// In service with the new version, and watched.
fn watched() -> NodeView<'static> {
    let mut view = updating(MonitoringUpdate, MonitoringUpdate);
    rebooted(&mut view, NEW);
    view
}

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
        let mut view = watched();
        view.evicted = evicted;
        view.time.soak_over = soak_over;
        view.time.workloads_overdue = overdue;
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, reason, "{evicted:?}, overdue: {overdue}, soak over: {soak_over}");
        let ends = matches!(reason, Reason::Finishing | Reason::Aborting(_));
        assert_eq!(decision.effect.is_some(), ends, "{reason:?}");
        if ends {
            assert_eq!(next_state(&decision), Some(Idle));
        }
    }
}

#[test]
fn a_missing_workload_counts_against_the_version() {
    assert!(Reason::WorkloadsUnavailable(CART).message().contains(CART));
    assert!(Abort::WorkloadsUnavailable.is_failure());
    assert!(Abort::is_corroborated(Abort::WorkloadsUnavailable.as_str()));
}

#[test]
fn other_updates_excuse_a_missing_workload() {
    let mut view = watched();
    view.evicted = MISSING;
    view.time.workloads_overdue = true;
    let mut slots = SLOT.clone();
    slots.extend(slot("brs-other", "other", 1));
    for among in [FleetFacts { slots: &slots, ..fleet() }, FleetFacts { all_in_service: false, ..fleet() }] {
        let decision = decide(&among, &view).reason;
        assert_eq!(decision, Reason::Aborting(Abort::WorkloadsUnavailableAmongOthers));
        let changed = NodeView { evicted: CHANGED, ..view };
        assert_eq!(decide(&among, &changed).reason, Reason::Aborting(Abort::WorkloadsChanged));
    }
    assert!(Abort::WorkloadsUnavailableAmongOthers.is_failure());
    assert!(!Abort::is_corroborated(Abort::WorkloadsUnavailableAmongOthers.as_str()));
}

/// It says neither that the version is bad nor that it is good.
#[test]
fn a_changed_workload_counts_neither_for_nor_against_the_version() {
    assert!(!Abort::is_corroborated(Abort::WorkloadsChanged.as_str()));
    let changed = versions::failures(Abort::WorkloadsChanged.as_str());
    let mut view = versions::over(Some(&changed));
    rebooted(&mut view, NEW);
    let ledger = crate::decide::slots(&fleet(), &[view]).write.unwrap();
    assert_eq!(sets(&ledger, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(sets(&ledger, Field::VersionRecord(NEW)), None);
    let mut view = watched();
    (view.evicted, view.time.workloads_overdue) = (CHANGED, true);
    assert!(sets(write(&decide(&fleet(), &view)), Field::SpecFailures).is_some());
}

#[test]
fn a_node_without_label_waits_for_none() {
    let mut view = watched();
    view.evicted = MISSING;
    node(&mut view, |node| node.labelled = false);
    assert_eq!(decide(&fleet(), &view).reason, Reason::Aborting(Abort::NotLabelled));
}

#[test]
fn given_up_in_service_keeps_no_slot() {
    let (shadow_uid, evicted_owners) = (UID.to_owned(), vec![CART.to_owned()]);
    let owners =
        brupop_api::Marker { shadow_uid, attempt: 1, evicted_owners, ..brupop_api::Marker::default() };
    let rebooting = marker(1, true);
    for (marker, ready, undone) in
        [(&owners, false, true), (&owners, true, true), (&rebooting, false, false), (&rebooting, true, true)]
    {
        let mut view = updating(Idle, Idle);
        marked(&mut view, marker);
        node(&mut view, |node| node.ready = ready);
        assert_eq!(decide(&fleet(), &view).effect.is_some(), undone, "{marker:?}, Ready: {ready}");
    }
}
