//! After the reboot: workloads whose pods were evicted are waited for.

use super::versions;
use super::world::*;
use crate::status::EventText;
use crate::workloads::Evicted;

const CART: &str = "apps/v1/ReplicaSet/shop/cart";
const MISSING: Evicted<'static> = Evicted::Missing(CART);

#[test]
fn the_soak_ends_when_workloads_are_back() {
    for (evicted, overdue, verified, reason) in rows! {
        Evicted::Back, false, true => Reason::Finishing;
        Evicted::Back, true, true => Reason::Finishing;
        Evicted::Back, false, false => Reason::Monitoring;
        MISSING, false, false => Reason::Monitoring;
        MISSING, false, true => Reason::WorkloadsUnavailable(CART);
        MISSING, true, true => Reason::Finishing;
        Evicted::Unknown, false, true => Reason::Monitoring;
        Evicted::Unknown, true, true => Reason::Finishing;
    } {
        let mut view = NodeView {
            evicted,
            ..watched()
        };
        (view.time.verified, view.time.workloads_overdue) = (verified, overdue);
        let decision = decide(&fleet(), &view);
        assert_eq!(
            decision.reason, reason,
            "{evicted:?}, overdue: {overdue}, verified: {verified}"
        );
        let ends = reason == Reason::Finishing;
        assert_eq!(decision.step.is_some(), ends, "{reason:?}");
        assert!(!ends || next_state(&decision) == Some(Idle), "{reason:?}");
    }
}

#[test]
fn workloads_that_stay_away_end_the_update_as_updated() {
    let of = |evicted| {
        let view = NodeView {
            evicted,
            ..watched()
        }
        .with(|view| view.time.workloads_overdue = true);
        let decision = decide(&fleet(), &view);
        assert_eq!(failures_of(&decision), None, "{evicted:?}");
        assert_eq!(decision.step, Some(Step::Finish), "{evicted:?}");
        EventText::of_step(&view, Step::Finish).unwrap().reason
    };
    assert_eq!(of(MISSING), "UpdatedWithoutWorkloads");
    assert_eq!([Evicted::Back, Evicted::Unknown].map(of), ["Updated"; 2]);
    // Its slot is given back, and the version has been reached.
    let ledger = allocate(&fleet(), &[versions::over(None).rebooted(NEW)])
        .write
        .unwrap();
    assert_eq!(sets(&ledger, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(records_of(&ledger).unwrap()[0].succeeded, 1);
}

#[test]
fn given_up_in_service_keeps_no_slot() {
    let (shadow_uid, evicted_owners) = (UID.to_owned(), BTreeMap::from([(CART.to_owned(), 1)]));
    let owners = Marker {
        shadow_uid,
        attempt: 1,
        evicted_owners,
        ..Marker::default()
    };
    for (marker, ready, undone) in [
        (&owners, false, true),
        (&owners, true, true),
        (&DRAINED, false, false),
        (&DRAINED, true, true),
    ] {
        let view = updating(Idle, Idle)
            .marked_by(marker)
            .with_node(|node| node.readiness = Some(readiness(ready)));
        assert_eq!(
            decide(&fleet(), &view).step.is_some(),
            undone,
            "{marker:?}, Ready: {ready}"
        );
    }
}
