//! Nodes that no drain could empty are passed over, before anything is done to them; others go on.

use super::world::*;
use super::zones;

const WHY: &str = "shop/debug has no controller";
const BUDGET: &str = "the PodDisruptionBudget shop/cart";

/// An obstacle to a drain.
type Change = fn(&mut NodeView<'static>);

fn undrainable(view: &mut NodeView<'static>) {
    led(view, |led| {
        led.obstacle = Some(Obstacle::Never(WHY.to_owned()));
    });
}

fn denied(view: &mut NodeView<'static>) {
    led(view, |led| led.node_denied = Some("a rule".to_owned()));
}

fn blocked(view: &mut NodeView<'static>) {
    held(view, false);
}

/// By a budget, for long or not.
fn held(view: &mut NodeView<'static>, waited: bool) {
    let why = BUDGET.to_owned();
    led(view, |led| {
        led.obstacle = Some(Obstacle::Budget { why, waited });
    });
}

fn waited(view: &mut NodeView<'static>) {
    held(view, true);
}

/// Nobody knows how to empty a node with more pods than are looked at, however its drain ends.
fn crowded(view: &mut NodeView<'static>) {
    led(view, |led| {
        (led.plan, led.obstacle) = (None, Some(Obstacle::TooManyPods));
    });
}

fn taken(fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> Vec<String> {
    allocate(fleet, views)
        .taken
        .into_iter()
        .map(|at| views[at].shadow_name.to_owned())
        .collect()
}

/// Two nodes that could begin.
fn two() -> [NodeView<'static>; 2] {
    ["brs-a", "brs-b"].map(|name| idle().named(name))
}

#[test]
fn who_cannot_be_emptied_is_passed_over() {
    let by_force = |view: NodeView<'static>| NodeView {
        force: true,
        ..view
    };
    let rows: [(Change, Reason<'_>, &str); 4] = [
        // The deadline will see to it.
        (undrainable, Reason::CannotDrain(WHY), "brs-a"),
        (blocked, Reason::BudgetAllowsNone(BUDGET), "brs-b"),
        (denied, Reason::NodeChangesDenied("a rule"), "brs-b"),
        (crowded, Reason::CannotDrain(TOO_MANY_PODS), "brs-b"),
    ];
    for (change, reason, with_force) in rows {
        let [first, second] = two();
        let first = first.with(change);
        assert_eq!(
            taken(&without_slots(), &[first, second]),
            ["brs-b"],
            "{reason:?}"
        );
        assert_eq!(decide(&without_slots(), &first).reason, reason);
        assert_eq!(
            taken(&without_slots(), &[first, second].map(by_force)),
            [with_force],
            "{reason:?}, with force"
        );
    }
    assert_eq!(taken(&without_slots(), &two()), ["brs-a"], "taken again");
    assert!(Reason::CannotDrain(WHY).message().ends_with(WHY));
}

#[test]
fn unknown_pods_hold_the_nodes_place() {
    let [mut first, second] = two();
    unknown_pods(&mut first);
    let next = allocate(&without_slots(), &[first, second]);
    assert_eq!((next.write, next.preflight), (None, vec![0, 1]));
    let third = first.named("brs-c");
    assert_eq!(
        allocate(&without_slots(), &[first, second, third]).preflight,
        [0, 1],
        "and one follows"
    );
    let two = FleetFacts {
        default_pool: limited(2),
        threshold: MANY,
        ..without_slots()
    };
    assert_eq!(taken(&two, &[first, second]), ["brs-b"]);
}

#[test]
fn what_stands_in_the_way_ends_an_update_before_its_cordon() {
    let begun = Some(Step::Evict);
    let rows: [(Change, Abort, bool, Option<Step<'_>>); 2] = [
        // A started step has its deadline.
        (undrainable, Abort::CannotDrain, false, begun),
        // It backs off, more each time.
        (denied, Abort::NodeChangesDenied, true, None),
    ];
    for (change, why, is_failure, cordoned) in rows {
        let view = staged().with(change);
        let decision = decide(&fleet(), &view);
        assert_eq!(
            (decision.reason, next_state(&decision)),
            (Reason::Aborting(why), Some(Idle))
        );
        assert_eq!(failures_of(&decision).is_some(), is_failure, "{why:?}");
        let step = decide(&fleet(), &view.marked_by(&CORDONED)).step;
        assert!(cordoned.is_none() || step == cordoned, "{why:?}: {step:?}");
    }
}

#[test]
fn budget_holds_node_back_for_as_long_as_a_drain_may_take() {
    let [first, second] = two();
    let tried = first.with(waited);
    assert_eq!(taken(&without_slots(), &[tried]), ["brs-a"], "it is tried");
    assert_eq!(
        taken(&without_slots(), &[tried, second]),
        ["brs-b"],
        "after nodes that no budget blocks"
    );
    let asked_for = tried.with_node(|node| node.update_now = true);
    assert_eq!(taken(&without_slots(), &[asked_for, second]), ["brs-a"]);
    // The same clock holds in the slot before the cordon.
    let held = decide(&fleet(), &staged().with(blocked));
    assert_eq!(
        (held.step, held.reason),
        (None, Reason::BudgetAllowsNone(BUDGET))
    );
    // The deadline of the step ends neither this wait nor what follows it, but every other wait.
    let late = staged().with(|view| view.time.step_overdue = true);
    assert_eq!(decide(&fleet(), &late.with(blocked)), held);
    assert_eq!(decide(&fleet(), &late), decide(&fleet(), &staged()));
    assert_eq!(
        decide(&fleet(), &late.with(blocked).not_ready()).reason,
        Reason::Aborting(Abort::DeadlineExceeded)
    );
    let cordons = |change: Change, force| {
        let view = NodeView {
            force,
            ..staged().with(change)
        };
        decide(&fleet(), &view).step == Some(Step::Cordon)
    };
    assert!(cordons(waited, false), "it is cordoned at once");
    assert!(cordons(blocked, true), "its pods will be deleted");
}

#[test]
fn a_drain_ends_at_its_deadline_as_configured() {
    let mut view = staged().marked_by(&CORDONED);
    view.time.drain_overdue = true;
    assert_eq!(
        decide(&fleet(), &view).reason,
        Reason::Aborting(Abort::DrainTimedOut)
    );
    view.force = true;
    assert_eq!(decide(&fleet(), &view).step, Some(Step::DeletePods));
    view.time.drain_overdue = false;
    assert_eq!(
        decide(&fleet(), &view).step,
        Some(Step::Evict),
        "not before it"
    );
}

fn held_up(view: &mut NodeView<'static>, by: Option<&str>) {
    let by = by.map(str::to_owned);
    led(view, |led| {
        led.held_up_by = by;
    });
}

#[test]
fn failed_drain_names_what_it_failed_on() {
    let refused = "shop/cart-0 is not evicted: The disruption budget cart needs 2 healthy pods and has 2 currently";
    let drains = || {
        staged()
            .marked_by(&CORDONED)
            .with(|view| view.time.drain_overdue = true)
    };
    let step_failed = updating(StagedAndPerformedUpdate, ErrorReset);
    let it_says = step_failed.with_shadow(|shadow| shadow.status.message = Some("m".into()));
    let rows: [(NodeView<'_>, Change, Abort, Option<&str>); 7] = [
        (
            drains(),
            |view| plan(view, |plan| plan.is_blocked = true),
            Abort::DrainBlocked,
            Some(refused),
        ),
        (drains(), |_| (), Abort::DrainTimedOut, Some(refused)),
        (step_failed, |_| (), Abort::StepFailed, None),
        (it_says, |_| (), Abort::StepFailed, Some("m")),
        (staged(), denied, Abort::NodeChangesDenied, Some("a rule")),
        (
            drains(),
            |view| held_up(view, None),
            Abort::DrainTimedOut,
            None,
        ),
        // A new leader has asked for nothing yet.
        (
            drains(),
            |view| {
                held_up(view, None);
                held(view, true);
            },
            Abort::DrainTimedOut,
            Some(BUDGET),
        ),
    ];
    for (view, change, why, message) in rows {
        let view = view.with(|view| held_up(view, Some(refused))).with(change);
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, Reason::Aborting(why));
        let expected = message.map_or(why.to_string(), |on| format!("{why}: {on}"));
        assert_eq!(failures_of(&decision).unwrap().message, expected);
    }
}

/// Its reboot was granted, and what was changed on its Node cannot be undone.
#[test]
fn a_reboot_goes_on_where_the_node_takes_no_change() {
    let claimed = granted(true);
    assert_ne!(
        decide(&fleet(), &claimed.with(denied)).reason,
        Reason::Aborting(Abort::NodeChangesDenied)
    );
    let back = claimed.marked_by(&DRAINED).rebooted(NEW);
    assert_eq!(
        decide(&fleet(), &back.with(denied)).reason,
        Reason::NodeChangesDenied("a rule")
    );
    assert_eq!(decide(&fleet(), &back).reason, Reason::ReturningToService);
}

/// One pool whose only update stands still does not keep the nodes of others from being looked at.
#[test]
fn each_pool_has_its_own_successors() {
    let pools = ["a", "z"].map(|name| PoolFacts {
        limit: 1,
        ..zones::pool(name)
    });
    let in_use = ["brs-a0", "brs-z0"]
        .into_iter()
        .flat_map(|name| slot(name, name, 1))
        .collect();
    let fleet = FleetFacts {
        pools: &pools,
        slots: &in_use,
        threshold: MANY,
        ..fleet()
    };
    let views = [
        staged().named("brs-a0").in_pool(0),
        idle().named("brs-a1").in_pool(0),
        idle().named("brs-a2").in_pool(0),
        staged().named("brs-z0").in_pool(1),
        idle().named("brs-z1").in_pool(1),
    ];
    assert_eq!(allocate(&fleet, &views).preflight, [1, 4]);
}

/// A slot is given back and taken again in one patch, because the pods of who follows are known by then.
#[test]
fn the_pods_of_successors_are_looked_at_ahead() {
    let in_use = slot("brs-a", "brs-a", 1);
    let fleet = FleetFacts {
        slots: &in_use,
        ..fleet()
    };
    let running = staged().named("brs-a");
    let unknown = |name| idle().named(name).with(unknown_pods);
    let (known, second, third) = (idle().named("brs-b"), unknown("brs-b"), unknown("brs-c"));
    let next = allocate(&fleet, &[running, second, third]);
    assert_eq!((next.write, next.preflight), (None, vec![1]), "it is next");
    assert_eq!(
        next.queued,
        [(1, Reason::LimitReached), (2, Reason::LimitReached)]
    );
    let next = allocate(&fleet, &[running, known, third]);
    assert_eq!(
        next.preflight,
        [1],
        "its pods are kept in view once they are known, or they are forgotten"
    );

    let over = idle().named("brs-a").with_shadow(|shadow| {
        (shadow.spec.attempt, shadow.status.attempt) = (Some(1), Some(1));
        shadow.spec.version = Some(NEW.into());
    });
    let views = [over, known, third];
    assert_eq!(taken(&fleet, &views), ["brs-b"]);
    let write = allocate(&fleet, &views).write.unwrap();
    assert_eq!(
        sets(&write, Field::Slot("brs-a")),
        Some(Value::Absent),
        "in the same patch"
    );

    let full_of_unavailable = FleetFacts {
        default_pool: limited(0),
        ..without_slots()
    };
    let preflight = allocate(&full_of_unavailable, &[second, third]).preflight;
    assert_eq!(preflight, [0_usize; 0], "nobody will give a slot back");
}

#[test]
fn a_node_with_too_many_pods_is_emptied_no_further() {
    for view in [
        staged(),
        staged().marked_by(&CORDONED),
        staged().marked_by(&DRAINED),
    ] {
        let view = view.with(crowded);
        for force in [false, true] {
            let decision = decide(&fleet(), &NodeView { force, ..view });
            assert_eq!(decision.reason, Reason::Aborting(Abort::CannotDrain));
            assert_eq!(next_state(&decision), Some(Idle));
        }
    }
}
