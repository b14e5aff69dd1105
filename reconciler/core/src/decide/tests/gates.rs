//! A pool whose gates are closed.

use super::first_pools::rules;
use super::world::*;
use super::zones;
use crate::rules::{GateState, Rules};
use crate::workloads::Evicted;

const CLOSED: Option<(GateState, &'static str)> = Some((GateState::Closed, "quiet"));
const UNKNOWN: Option<(GateState, &'static str)> = Some((GateState::Unknown, "quiet"));
const AWAITED: Option<(GateState, &'static str)> = Some((GateState::Awaited, "quiet"));

static GATED: LazyLock<Rules> = LazyLock::new(|| {
    let prometheus = json!({"source": "main", "query": "ALERTS"});
    rules(&json!({"gates": [{"name": "quiet", "prometheus": prometheus}]}))
});

fn pool(gate: Option<(GateState, &'static str)>) -> PoolFacts<'static> {
    PoolFacts {
        gate,
        rules: Some(&GATED),
        ..zones::pool("web")
    }
}

#[test]
fn nothing_begins_however_it_is_asked_for() {
    for (gate, asked_for, reason) in [
        (None, false, None),
        (CLOSED, false, Some(Reason::GateClosed("quiet"))),
        (CLOSED, true, Some(Reason::GateClosed("quiet"))),
        (UNKNOWN, false, Some(Reason::GateUnknown("quiet"))),
        (UNKNOWN, true, Some(Reason::GateUnknown("quiet"))),
        (AWAITED, false, Some(Reason::GateUnknown("quiet"))),
        (AWAITED, true, Some(Reason::GateUnknown("quiet"))),
    ] {
        let pools = [pool(gate)];
        let fleet = FleetFacts {
            pools: &pools,
            ..without_slots()
        };
        let view = idle()
            .in_pool(0)
            .with_node(|node| node.update_now = asked_for);
        assert_eq!(
            allocate(&fleet, &[view]).taken.is_empty(),
            reason.is_some(),
            "{gate:?}"
        );
        if let Some(reason) = reason {
            assert_eq!(decide(&fleet, &view).reason, reason);
            assert!(
                reason.waits_for_turn() && reason.message().contains("the gate quiet of its pool")
            );
        }
        // A node with a slot that has not begun gives it back, unless it waits.
        let with_slot = decide(
            &FleetFacts {
                slots: &SLOT,
                ..fleet
            },
            &view,
        );
        assert_eq!(
            with_slot.reason == Reason::StagingBegins(NEW),
            reason.is_none(),
            "{gate:?}"
        );
        assert_eq!(with_slot.step.is_none(), gate == AWAITED, "{gate:?}");
    }
}

/// Before its cordon an update is given up, or waits for a new leader to ask. After its reboot it ends once all is well.
#[test]
fn what_has_begun_is_held_where_it_may_wait() {
    use Reason::Finishing;
    let (cordoning, draining) = (Reason::Cordoning, Reason::Draining);
    let (returning, monitoring) = (Reason::ReturningToService, Reason::Monitoring);
    let (closed, unknown) = (Reason::GateClosed("quiet"), Reason::GateUnknown("quiet"));
    let (given_up, fell_back) = (
        Reason::Aborting(Abort::PoolClosed),
        Reason::Aborting(Abort::FellBack),
    );
    let back = updating(RebootedIntoUpdate, RebootedIntoUpdate)
        .with_shadow(|shadow| shadow.spec.reboot_granted_boot_id = Some(FIRST_BOOT.into()))
        .rebooted(NEW);
    let late = |evicted, step_overdue| {
        let times = TimeFacts {
            workloads_overdue: true,
            step_overdue,
            ..watched().time
        };
        NodeView {
            evicted,
            time: times,
            ..watched()
        }
    };
    let cart = Evicted::Missing("apps/v1/ReplicaSet/shop/cart");
    for (what, view, by_gate) in rows! {
        "staged", staged() => [cordoning, given_up, given_up, unknown];
        "cordoned", staged().marked_by(&CORDONED) => [draining; 4];
        "back", back.marked_by(&DRAINED) => [returning; 4];
        "back in service", back => [monitoring; 4];
        "watched, and late", late(Evicted::Back, true) => [Finishing, closed, unknown, unknown];
        "workloads not seen", late(Evicted::Unknown, true) => [Finishing, closed, unknown, unknown];
        "a workload is missing", late(cart, false) => [Finishing, closed, unknown, unknown];
        "fell back", watched().with_node(|node| node.version = Some(OLD.into())) => [fell_back; 4];
    } {
        for (gate, reason) in [None, CLOSED, UNKNOWN, AWAITED].into_iter().zip(by_gate) {
            let pools = [pool(gate)];
            let decision = decide(
                &FleetFacts {
                    pools: &pools,
                    ..fleet()
                },
                &view.in_pool(0),
            );
            assert_eq!(decision.reason, reason, "{what}, {gate:?}");
            assert_eq!(
                decision.step.is_none(),
                reason == closed || reason == unknown,
                "{what}, {gate:?}"
            );
            // It is another pool's.
            let decision = decide(
                &FleetFacts {
                    pools: &pools,
                    ..fleet()
                },
                &view,
            );
            assert_eq!(decision.reason, by_gate[0], "{what}, {gate:?}, in no pool");
        }
    }
    assert!(!Abort::PoolClosed.is_failure());
    let pools = [PoolFacts {
        starts: Starts::Paused,
        ..pool(AWAITED)
    }];
    assert_eq!(
        decide(
            &FleetFacts {
                pools: &pools,
                ..fleet()
            },
            &staged().in_pool(0)
        )
        .reason,
        given_up
    );
}

#[test]
fn gates_matter_where_something_is_to_be_updated() {
    let up_to_date = idle()
        .in_pool(0)
        .with_shadow(|shadow| shadow.status.target_version = None);
    let left_out = idle().in_pool(0).with_node(|node| node.labelled = false);
    let under_way = watched()
        .in_pool(0)
        .with_shadow(|shadow| shadow.status.target_version = None);
    let gated = [pool(None), zones::pool("db")];
    let none = [zones::pool("web")];
    for (what, pools, slots, view, matter) in rows! {
        "an update to be had", &gated[..], &NO_SLOTS, idle().in_pool(0) => true;
        "none", &gated, &NO_SLOTS, up_to_date => false;
        "none, but one is under way", &gated, &*SLOT, under_way => true;
        "none any more", &gated, &NO_SLOTS, under_way => false;
        "a node that is left out", &gated, &NO_SLOTS, left_out => false;
        "an update of a pool without gates", &none, &NO_SLOTS, idle().in_pool(0) => false;
        "an update of another pool without gates", &gated, &NO_SLOTS, idle().in_pool(1) => false;
        "an update of no pool", &gated, &NO_SLOTS, idle() => false;
    } {
        let fleet = FleetFacts {
            slots,
            pools,
            ..fleet()
        };
        let expected = matter.then_some(0).into_iter().collect();
        assert_eq!(
            crate::gates::matter(&fleet, &[view.with_slot_of(&fleet)]),
            expected,
            "{what}"
        );
    }
}
