//! A pool whose gates are closed.

use State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};

use super::world::*;
use super::*;
use crate::decide::{Abort, Reason, node as decide, slots};
use crate::facts::{ClosedGate, FleetFacts, NodeView, PoolFacts, Steering};
use crate::window::Starts;
use crate::workloads::Evicted;

const CLOSED: Option<ClosedGate<'static>> = Some(ClosedGate::Closed("quiet"));
const UNKNOWN: Option<ClosedGate<'static>> = Some(ClosedGate::Unknown("quiet"));
const AWAITED: Option<ClosedGate<'static>> = Some(ClosedGate::Awaited("quiet"));

fn pool(gate: Option<ClosedGate<'static>>) -> PoolFacts<'static> {
    PoolFacts { has_gates: true, gate, ..zones::pool("web") }
}

fn of_pool(mut view: NodeView<'static>) -> NodeView<'static> {
    view.steering = Steering::Pool(0);
    view
}

/// Staged, and not cordoned.
fn staged() -> NodeView<'static> {
    of_pool(updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate))
}

/// In service with the new version, and watched.
fn watched() -> NodeView<'static> {
    let mut view = of_pool(updating(MonitoringUpdate, MonitoringUpdate));
    rebooted(&mut view, NEW);
    view
}

#[test]
fn nothing_begins_whoever_asks_for_it() {
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
        let fleet = FleetFacts { pools: &pools, ..without_slots() };
        let mut view = of_pool(idle());
        node(&mut view, |node| node.update_now = asked_for);
        assert_eq!(slots(&fleet, &[view]).taken.is_empty(), reason.is_some(), "{gate:?}");
        if let Some(reason) = reason {
            assert_eq!(decide(&fleet, &view).reason, reason);
            assert!(reason.waits_for_turn() && reason.message().contains("the gate quiet of its pool"));
        }
        // What has a slot, and has not begun, gives it back, unless it waits.
        let fleet = FleetFacts { pools: &pools, ..fleet };
        let with_slot = decide(&FleetFacts { slots: &SLOT, ..fleet }, &view);
        assert_eq!(with_slot.reason == Reason::Starting(NEW), reason.is_none(), "{gate:?}");
        assert_eq!(with_slot.effect.is_none(), gate == AWAITED, "{gate:?}");
    }
}

#[test]
fn what_has_begun_is_given_up_before_its_cordon() {
    for (gate, given_up) in [(None, false), (CLOSED, true), (UNKNOWN, true)] {
        let pools = [pool(gate)];
        let fleet = FleetFacts { pools: &pools, ..fleet() };
        let decision = decide(&fleet, &staged());
        assert_eq!(decision.reason == Reason::Aborting(Abort::PoolClosed), given_up, "{gate:?}");
        assert_eq!(next_state(&decision) == Some(Idle), given_up, "{gate:?}");
        // The same node, cordoned, goes on.
        let (marker, mut cordoned) = (marker(1, false), staged());
        marked(&mut cordoned, &marker);
        assert_eq!(decide(&fleet, &cordoned).reason, Reason::Draining, "{gate:?}");
    }
    assert!(!Abort::PoolClosed.is_failure());
}

/// After each change of leaders nobody knows for a while how gates are.
#[test]
fn what_has_begun_waits_for_a_new_leader_to_ask() {
    let pools = [pool(AWAITED)];
    let fleet = FleetFacts { pools: &pools, ..fleet() };
    let decision = decide(&fleet, &staged());
    assert_eq!((decision.reason, decision.effect.is_none()), (Reason::GateUnknown("quiet"), true));
    // It waits for nothing else.
    let (marker, mut cordoned) = (marker(1, false), staged());
    marked(&mut cordoned, &marker);
    assert_eq!(decide(&fleet, &cordoned).reason, Reason::Draining);
    let pools = [PoolFacts { goes_on: Starts::Paused, ..pool(AWAITED) }];
    let fleet = FleetFacts { pools: &pools, ..fleet };
    assert_eq!(decide(&fleet, &staged()).reason, Reason::Aborting(Abort::PoolClosed));
}

#[test]
fn what_has_rebooted_is_put_back_and_watched() {
    for gate in [None, CLOSED, UNKNOWN, AWAITED] {
        let pools = [pool(gate)];
        let fleet = FleetFacts { pools: &pools, ..fleet() };
        let (marker, mut view) = (marker(1, true), of_pool(updating(RebootedIntoUpdate, RebootedIntoUpdate)));
        shadow(&mut view, |shadow| shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT));
        rebooted(&mut view, NEW);
        let mut away = view;
        marked(&mut away, &marker);
        assert_eq!(decide(&fleet, &away).reason, Reason::ReturningToService, "{gate:?}");
        assert_eq!(next_state(&decide(&fleet, &view)), Some(MonitoringUpdate), "{gate:?}");
    }
}

#[test]
fn what_is_watched_ends_only_when_all_is_well() {
    const CART: &str = "apps/v1/ReplicaSet/shop/cart";
    for (gate, held) in [
        (None, None),
        (CLOSED, Some(Reason::GateClosed("quiet"))),
        (UNKNOWN, Some(Reason::GateUnknown("quiet"))),
    ] {
        let pools = [pool(gate)];
        let fleet = FleetFacts { pools: &pools, ..fleet() };
        for evicted in [Evicted::Back, Evicted::Unknown] {
            let mut view = watched();
            view.evicted = evicted;
            view.time.workloads_overdue = true;
            view.time.step_overdue = true;
            let decision = decide(&fleet, &view);
            assert_eq!(decision.reason, held.unwrap_or(Reason::Finishing), "{evicted:?}");
            assert_eq!(decision.effect.is_none(), held.is_some(), "{evicted:?}");
        }
        // Who is held may have had all workloads back for hours: one that is rolled out just now is no failure.
        let mut missing = watched();
        missing.evicted = Evicted::Missing { owner: CART, changed: false };
        missing.time.workloads_overdue = true;
        let failed = Reason::Aborting(Abort::WorkloadsUnavailable);
        assert_eq!(decide(&fleet, &missing).reason, held.unwrap_or(failed));
        // It holds no failure of the host back.
        let mut fell_back = watched();
        node(&mut fell_back, |node| node.version = Some(OLD));
        assert_eq!(decide(&fleet, &fell_back).reason, Reason::Aborting(Abort::FellBack));
    }
}

#[test]
fn gates_of_other_pools_do_not_matter() {
    let pools = [pool(CLOSED)];
    let fleet = FleetFacts { pools: &pools, ..fleet() };
    let mut view = watched();
    view.steering = Steering::Default;
    assert_eq!(decide(&fleet, &view).reason, Reason::Finishing);
}

#[test]
fn gates_matter_where_something_is_to_be_updated() {
    let mut up_to_date = of_pool(idle());
    shadow(&mut up_to_date, |shadow| shadow.status.target_version = None);
    let mut left_out = of_pool(idle());
    node(&mut left_out, |node| node.labelled = false);
    let mut under_way = watched();
    shadow(&mut under_way, |shadow| shadow.status.target_version = None);
    let mut elsewhere = idle();
    elsewhere.steering = Steering::Pool(1);
    let gated = [pool(None), zones::pool("db")];
    let none = [zones::pool("web")];
    for (what, pools, slots, view, matter) in [
        ("an update to be had", &gated[..], &NO_SLOTS, of_pool(idle()), true),
        ("none", &gated, &NO_SLOTS, up_to_date, false),
        ("none, but one is under way", &gated, &*SLOT, under_way, true),
        ("none any more", &gated, &NO_SLOTS, under_way, false),
        ("a node that is left out", &gated, &NO_SLOTS, left_out, false),
        ("an update of a pool without gates", &none, &NO_SLOTS, of_pool(idle()), false),
        ("an update of another pool without gates", &gated, &NO_SLOTS, elsewhere, false),
        ("an update of no pool", &gated, &NO_SLOTS, idle(), false),
    ] {
        let fleet = FleetFacts { slots, pools, ..fleet() };
        let expected = matter.then_some(0).into_iter().collect();
        assert_eq!(crate::gates::matter(&fleet, &[view]), expected, "{what}");
    }
}
