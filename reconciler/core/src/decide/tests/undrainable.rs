//! Nodes that no drain could empty are passed over, before anything is done to them; others go on.

use State::{Idle, StagedAndPerformedUpdate};

use super::world::*;
use super::*;
use brupop_api::shadow::{DrainObstacle, Failures, ObstacleKind};

use crate::decide::{Abort, Reason, node as decide, slots};
use crate::facts::{BetweenUpdates, FleetFacts, NodeView, PodFacts, PoolFacts, Steering, TimeFacts};
use crate::rules::FailureBudget;

const WHY: &str = "the PodDisruptionBudget shop/cart wants all of its 2 pods healthy";

fn named(name: &'static str, uid: &'static str) -> NodeView<'static> {
    let mut view = idle();
    view.shadow_name = name;
    shadow(&mut view, |shadow| (shadow.name, shadow.uid) = (name, uid));
    view
}

fn taken(fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> Vec<String> {
    let slots = slots(fleet, views).write.into_iter().flat_map(|write| write.sets);
    slots
        .filter_map(|(field, value)| match (field, value) {
            (Field::Slot(name), Value::Slot(_)) => Some(name.to_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn an_undrainable_node_is_passed_over() {
    let (mut first, second) = (named("brs-a", "a"), named("brs-b", "b"));
    first.pods.undrainable = Some(WHY);
    assert_eq!(taken(&without_slots(), &[first, second]), ["brs-b"]);
    assert_eq!(decide(&without_slots(), &first).reason, Reason::CannotDrain(WHY));
    assert!(Reason::CannotDrain(WHY).message().ends_with(WHY));
    first.pods.undrainable = None;
    assert_eq!(taken(&without_slots(), &[first, second]), ["brs-a"], "looked at again");
}

#[test]
fn unknown_pods_hold_the_nodes_place() {
    let (mut first, second) = (named("brs-a", "a"), named("brs-b", "b"));
    first.pods.known = false;
    let next = slots(&without_slots(), &[first, second]);
    assert_eq!((next.write, next.preflight), (None, vec![0, 1]));
    let third = NodeView { pods: first.pods, ..named("brs-c", "c") };
    assert_eq!(slots(&without_slots(), &[first, second, third]).preflight, [0, 1], "and one follows");
    let budget = FailureBudget { unproven: None, proven: None };
    let two = FleetFacts { default_pool: limited(2), budget, ..without_slots() };
    assert_eq!(taken(&two, &[first, second]), ["brs-b"]);
}

#[test]
fn an_obstacle_before_the_cordon_is_no_failure() {
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    view.pods.undrainable = Some(WHY);
    let decision = decide(&fleet(), &view);
    assert_eq!(decision.reason, Reason::Aborting(Abort::CannotDrain));
    assert_eq!(next_state(&decision), Some(Idle));
    assert_eq!(sets(write(&decision), Field::SpecFailures), None);

    let cordoned = marker(1, false);
    marked(&mut view, &cordoned);
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::Evict), "what was begun has its deadline");
}

#[test]
fn a_drain_ends_at_its_deadline_as_configured() {
    let cordoned = marker(1, false);
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &cordoned);
    view.time.drain_overdue = true;
    assert_eq!(decide(&fleet(), &view).reason, Reason::Aborting(Abort::DrainTimedOut));
    let forced = FleetFacts { force: true, ..fleet() };
    assert_eq!(decide(&forced, &view).effect, Some(Effect::Delete));
    view.time.drain_overdue = false;
    assert_eq!(decide(&forced, &view).effect, Some(Effect::Evict), "not before it");

    let mut undrainable = idle();
    undrainable.pods.undrainable = Some(WHY);
    let forced = FleetFacts { force: true, ..without_slots() };
    assert_eq!(taken(&forced, &[undrainable]), [SHADOW], "the deadline will see to it");
}

/// Each later leader reads there what the next drain would fail on.
#[test]
fn what_a_drain_fails_on_is_noted_until_one_gets_past_it() {
    let obstacle = |of: &str, at: Option<&str>| DrainObstacle {
        kind: ObstacleKind::Budget,
        of: of.to_owned(),
        at: at.map(str::to_owned),
    };
    let then = Some("2026-11-20T04:30:00Z");
    let (seen, now) = (obstacle("shop/cart", None), obstacle("shop/cart", Some(fleet().now)));
    let before = obstacle("shop/mail", then);
    let failed = |at: Option<&str>| Failures {
        at: "2026-11-20T05:00:00Z".to_owned(),
        obstacle: Some(obstacle("shop/mail", at)),
        ..Failures::default()
    };
    let (failed, without_time) = (failed(then), failed(None));
    let timed = obstacle("shop/mail", Some("2026-11-20T05:00:00Z"));
    let (begun, emptied) = (marker(1, false), marker(1, true));
    let staged = || updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    let overdue = |marker, failing| {
        let mut view = staged();
        marked(&mut view, marker);
        (view.pods.failing, view.time.drain_overdue) = (failing, true);
        view
    };
    let owners = ["v1/Pod/shop/cart-0".to_owned()];
    let comes_back = |marker| {
        let view = overdue(marker, Some(&seen));
        let pods = PodFacts { needed: Some("shop/cart-0"), returning: &owners, ..view.pods };
        NodeView { pods, time: TimeFacts::default(), ..view }
    };
    let step_failed = updating(StagedAndPerformedUpdate, State::ErrorReset);
    let mut fell_back = updating(State::RebootedIntoUpdate, StagedAndPerformedUpdate);
    rebooted(&mut fell_back, OLD);
    for (says, mut view, why, noted) in [
        ("it failed", overdue(&begun, Some(&seen)), Abort::DrainTimedOut, Some(&now)),
        ("pods came back", comes_back(&begun), Abort::PodsComeBack, Some(&now)),
        ("pods came back once it was over", comes_back(&emptied), Abort::PodsComeBack, Some(&now)),
        ("nobody knows on what", overdue(&begun, None), Abort::DrainTimedOut, Some(&before)),
        ("it was not begun", step_failed, Abort::StepFailed, Some(&before)),
        ("it was over", overdue(&emptied, None), Abort::DrainTimedOut, None),
        ("the host was rebooted", fell_back, Abort::FellBack, None),
    ] {
        shadow(&mut view, |shadow| shadow.spec.failures = Some(&failed));
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, Reason::Aborting(why), "{says}");
        let Some(Value::Failures(failures)) = sets(write(&decision), Field::SpecFailures) else {
            panic!("{says}: no failure")
        };
        assert_eq!(failures.obstacle.as_ref(), noted, "{says}");
    }
    // As an earlier version has noted it.
    let mut view = step_failed;
    shadow(&mut view, |shadow| shadow.spec.failures = Some(&without_time));
    let decision = decide(&fleet(), &view);
    let Some(Value::Failures(failures)) = sets(write(&decision), Field::SpecFailures) else {
        panic!("no failure")
    };
    assert_eq!(failures.obstacle, Some(timed));
}

#[test]
fn a_denied_node_gives_its_slot_back() {
    let (mut first, second) = (named("brs-a", "a"), named("brs-b", "b"));
    first.denied = Some("a rule");
    assert_eq!(taken(&without_slots(), &[first, second]), ["brs-b"]);
    assert_eq!(decide(&without_slots(), &first).reason, Reason::NodeChangesDenied("a rule"));

    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    view.denied = Some("a rule");
    let decision = decide(&fleet(), &view);
    assert_eq!(decision.reason, Reason::Aborting(Abort::NodeChangesDenied));
    assert!(sets(write(&decision), Field::SpecFailures).is_some(), "it backs off, more each time");
    let mut claimed = updating(State::RebootedIntoUpdate, StagedAndPerformedUpdate);
    claimed.denied = Some("a rule");
    assert_ne!(decide(&fleet(), &claimed).reason, Reason::Aborting(Abort::NodeChangesDenied));
    // It is back, and what was changed on its Node cannot be undone.
    let drained = marker(1, true);
    marked(&mut claimed, &drained);
    node(&mut claimed, |node| (node.boot_id, node.version, node.ready) = (SECOND_BOOT, Some(NEW), true));
    assert_eq!(decide(&fleet(), &claimed).reason, Reason::NodeChangesDenied("a rule"));
    claimed.denied = None;
    assert_eq!(decide(&fleet(), &claimed).reason, Reason::ReturningToService);
}

#[test]
fn a_shut_budget_delays_the_cordon() {
    const BUDGET: &str = "the PodDisruptionBudget shop/cart";
    let (mut first, second) = (named("brs-a", "a"), named("brs-b", "b"));
    first.pods.blocked = Some(BUDGET);
    assert_eq!(taken(&without_slots(), &[first, second]), ["brs-b"], "it holds nobody up");
    assert_eq!(decide(&without_slots(), &first).reason, Reason::BudgetAllowsNone(BUDGET));
    let forced = FleetFacts { force: true, ..without_slots() };
    assert_eq!(taken(&forced, &[first, second]), ["brs-a"], "the deadline will see to it");

    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    view.pods.blocked = Some(BUDGET);
    assert_eq!(decide(&fleet(), &view), Decision::wait(Reason::BudgetAllowsNone(BUDGET)));
    view.pods.blocked_for_long = true;
    let decision = decide(&fleet(), &view);
    assert_eq!(decision.reason, Reason::Aborting(Abort::BudgetAllowsNone));
    assert_eq!(sets(write(&decision), Field::SpecFailures), None, "it is no failure of the node");

    let cordoned = marker(1, false);
    marked(&mut view, &cordoned);
    assert_eq!(decide(&fleet(), &view).effect, Some(Effect::Evict), "what was begun has its deadline");
}

/// One pool whose only update stands still does not keep the nodes of others from being looked at.
#[test]
fn each_pool_has_its_own_successors() {
    let pools = ["a", "z"].map(|name| PoolFacts { limit: 1, ..zones::pool(name) });
    let mut in_use = slot("brs-a0", "a0", 1);
    in_use.extend(slot("brs-z0", "z0", 1));
    let budget = FailureBudget { unproven: None, proven: None };
    let fleet = FleetFacts { pools: &pools, slots: &in_use, budget, ..fleet() };
    let of_pool = |pool, mut view: NodeView<'static>, name, uid| {
        (view.shadow_name, view.steering) = (name, Steering::Pool(pool));
        shadow(&mut view, |shadow| (shadow.name, shadow.uid) = (name, uid));
        view
    };
    let runs = || updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    let views = [
        of_pool(0, runs(), "brs-a0", "a0"),
        of_pool(0, idle(), "brs-a1", "a1"),
        of_pool(0, idle(), "brs-a2", "a2"),
        of_pool(1, runs(), "brs-z0", "z0"),
        of_pool(1, idle(), "brs-z1", "z1"),
    ];
    assert_eq!(slots(&fleet, &views).preflight, [1, 4]);
}

/// A slot is given back and taken again in one patch, because the pods of who follows are known by then.
#[test]
fn the_pods_of_successors_are_looked_at_ahead() {
    let in_use = slot("brs-a", "a", 1);
    let fleet = FleetFacts { slots: &in_use, ..fleet() };
    let mut running = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    running.shadow_name = "brs-a";
    shadow(&mut running, |shadow| (shadow.name, shadow.uid) = ("brs-a", "a"));
    let unknown = |name, uid| NodeView { pods: PodFacts::default(), ..named(name, uid) };
    let (second, third) = (unknown("brs-b", "b"), unknown("brs-c", "c"));
    let next = slots(&fleet, &[running, second, third]);
    assert_eq!((next.write, next.preflight), (None, vec![1]), "one slot, one successor");
    assert_eq!(next.queued, [(1, Reason::LimitReached), (2, Reason::LimitReached)]);
    let next = slots(&fleet, &[running, named("brs-b", "b"), third]);
    assert_eq!(
        next.preflight,
        [1],
        "its pods are kept in view once they are known, or they would be forgotten"
    );

    let mut over = named("brs-a", "a");
    shadow(&mut over, |shadow| {
        (shadow.spec.attempt, shadow.status.attempt) = (Some(1), Some(1));
        shadow.spec.version = Some(NEW);
    });
    let views = [over, named("brs-b", "b"), third];
    assert_eq!(taken(&fleet, &views), ["brs-b"]);
    let write = slots(&fleet, &views).write.unwrap();
    assert_eq!(sets(&write, Field::Slot("brs-a")), Some(Value::Absent), "in the same patch");

    // An update that ends begins the pause between updates: nobody follows in the patch that says so.
    let paused = FleetFacts { between_updates: BetweenUpdates::PauseIsOver, ..fleet };
    assert_eq!(taken(&paused, &views), [""; 0]);
    let next = slots(&paused, &views);
    assert_eq!(sets(&next.write.unwrap(), Field::Slot("brs-a")), Some(Value::Absent));
    assert!(next.queued.contains(&(1, Reason::PausingBetweenUpdates)), "{:?}", next.queued);

    let full_of_unavailable = FleetFacts { default_pool: limited(0), ..without_slots() };
    assert!(
        slots(&full_of_unavailable, &[second, third]).preflight.is_empty(),
        "nobody will give a slot back"
    );
}

/// Nobody knows how to empty a node with more pods than are looked at, however its drain ends.
#[test]
fn a_node_with_too_many_pods_is_neither_begun_nor_emptied_further() {
    let too_many = PodFacts { known: false, too_many: true, ..PodFacts::default() };
    let forced = FleetFacts { force: true, ..without_slots() };
    let (mut first, second) = (named("brs-a", "a"), named("brs-b", "b"));
    first.pods = too_many;
    for fleet in [without_slots(), forced] {
        assert_eq!(taken(&fleet, &[first, second]), ["brs-b"]);
        assert_eq!(decide(&fleet, &first).reason, Reason::TooManyPods);
    }
    let (cordoned, drained) = (marker(1, false), marker(1, true));
    for marker in [None, Some(&cordoned), Some(&drained)] {
        let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
        view.pods = too_many;
        if let Some(marker) = marker {
            marked(&mut view, marker);
        }
        for force in [false, true] {
            let decision = decide(&FleetFacts { force, ..fleet() }, &view);
            assert_eq!(decision.reason, Reason::Aborting(Abort::TooManyPods), "{marker:?}");
            assert_eq!(next_state(&decision), Some(Idle));
        }
    }
}
