//! What the write that takes slots says of them, and what it was decided on.

use std::collections::BTreeMap;

use brupop_api::fleet::{BottlerocketFleet, Slot, VersionRecord};
use brupop_apply::apply;

use super::world::*;
use super::*;
use crate::decide::slots::{self, slots as take_slots};
use crate::decide::writes;
use crate::facts::{FleetFacts, NodeView, PoolFacts, Steering};
use crate::rules::FailureBudget;

fn taken(fleet: &FleetFacts<'_>) -> Slot {
    let mut view = idle();
    view.steering = if fleet.pools.is_empty() { Steering::Default } else { Steering::Pool(0) };
    let write = take_slots(fleet, &[view]).write.unwrap();
    match sets(&write, Field::Slot(SHADOW)) {
        Some(Value::Slot(slot)) => slot,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slot_says_since_when_for_which_version_and_pool() {
    let slot = Slot {
        uid: UID.into(),
        attempt: 1,
        since: Some(FleetFacts::EXAMPLE.now.into()),
        version: Some(NEW.into()),
        ..Slot::default()
    };
    assert_eq!(taken(&without_slots()), slot);
    let pools: [PoolFacts<'_>; 1] = [zones::pool("web")];
    let in_pool = FleetFacts { pools: &pools, ..without_slots() };
    assert_eq!(taken(&in_pool), Slot { pool: Some("web".into()), ..slot });
}

/// What is said of a change of the ledger, and the change.
type Change = (&'static str, fn(&mut BottlerocketFleet));

/// Each of these may have happened between the decision and the write.
#[test]
fn slots_are_taken_only_on_what_was_read() {
    let fleet = without_slots();
    let write = take_slots(&fleet, &[idle()]).write.unwrap();
    let ledger = ledger(&fleet);
    let changes: [Change; 4] = [
        ("another one leads", |ledger| ledger.status.as_mut().unwrap().term = Some(5)),
        ("another node has a slot", |ledger| {
            ledger.status.as_mut().unwrap().slots = slot("brs-other", "other", 1);
        }),
        ("a person has paused the fleet", |ledger| ledger.metadata.generation = Some(6)),
        ("the fleet is another one", |ledger| ledger.metadata.uid = Some("another".into())),
    ];
    assert_eq!(apply(&write, &mut ledger.clone()), Ok(()));
    for (says, change) in changes {
        let mut ledger = ledger.clone();
        change(&mut ledger);
        assert!(apply(&write, &mut ledger).is_err(), "{says}");
    }
}

/// A record is set on the record that was read, in the fleet as in a pool.
#[test]
fn records_are_tested_as_they_were_read() {
    let record = VersionRecord { succeeded: 3, ..VersionRecord::default() };
    let (versions, of_pools) = (
        BTreeMap::from([(NEW.to_owned(), record.clone())]),
        BTreeMap::from([(format!("web/{NEW}"), record.clone())]),
    );
    let fleet = FleetFacts { versions: &versions, pool_versions: &of_pools, ..without_slots() };
    let other = "1.21.0";
    let in_pool = |version| Field::PoolRecord { pool: "web", version };
    let read = Value::VersionRecord(record);
    for (field, expected) in [
        (Field::VersionRecord(NEW), read.clone()),
        (Field::VersionRecord(other), Value::Absent),
        (in_pool(NEW), read),
        (in_pool(other), Value::Absent),
        (Field::Seen(NEW), Value::Absent),
    ] {
        let tests = writes::ledger_tests(&fleet, &[(field, Value::Absent)]);
        assert!(tests.contains(&(field, expected)), "{field:?}: {tests:?}");
        assert!(tests.contains(&(Field::Term, Value::Number(fleet.term))));
    }
}

/// Nodes that are not Ready take places of the limit, and none of the ledger's slots.
#[test]
fn unavailable_nodes_use_up_the_limit_and_no_slots() {
    let names: Vec<String> = (0..1_200).map(|at| format!("brs-{at:04}")).collect();
    for (says, unavailable, limit, taken) in [
        ("as many as the ledger has room for", 0, 10_000, 500),
        ("others are down, and far more may be", 600, 10_000, 500),
        ("few more may be", 600, 610, 10),
        ("no more may be", 600, 600, 0),
        ("there is no limit", 600, u64::MAX, 500),
    ] {
        let views = names.iter().enumerate().map(|(at, name)| {
            let mut view = idle();
            view.shadow_name = name;
            shadow(&mut view, |shadow| (shadow.name, shadow.uid) = (name, name));
            node(&mut view, |node| (node.name, node.ready) = (name, at >= unavailable));
            view
        });
        let views: Vec<_> = views.collect();
        let budget = FailureBudget { unproven: None, proven: None };
        let fleet = FleetFacts { default_pool: limited(limit), ceiling: u64::MAX, budget, ..without_slots() };
        assert_eq!(take_slots(&fleet, &views).taken.len(), taken, "{says}");
    }
}

/// Is the slot of [`SLOT`] given back, when its node looks like this?
fn is_given_back(view: &NodeView<'_>) -> bool {
    slots::Holders::of(&fleet(), &[*view]).freed.iter().any(|(name, _)| *name == SHADOW)
}

/// Anyone who has a slot is out of service, or may be. So it is given back on facts that stay true, and only if nothing is left
/// to be undone.
#[test]
fn a_slot_is_given_back_once_nothing_is_left_of_its_update() {
    let over = |change: fn(&mut NodeView<'static>)| {
        let mut view = idle();
        shadow(&mut view, |it| (it.spec.attempt, it.status.attempt) = (Some(1), Some(1)));
        change(&mut view);
        view
    };
    let gone = |change: fn(&mut NodeView<'static>)| {
        over(|view| {
            view.shadow = None;
            node(view, |node| node.labelled = false);
        })
        .with(change)
    };
    let another = |change: fn(&mut NodeView<'static>)| {
        over(|view| shadow(view, |shadow| shadow.uid = "another")).with(change)
    };
    let unready = |view: &mut NodeView<'static>| node(view, |node| node.ready = false);
    let marked = |view: &mut NodeView<'static>| node(view, |node| node.marker = Some(&MARKER));
    let busy =
        |view: &mut NodeView<'static>| shadow(view, |it| it.status.current_state = Some(State::ErrorReset));
    let late = |view: &mut NodeView<'static>| {
        shadow(view, |it| it.status.current_state = Some(State::ErrorReset));
        view.time.step_overdue = true;
    };
    for (says, view, expected) in [
        ("its attempt is over", over(|_| {}), true),
        ("the agent is not done", over(busy), false),
        ("the agent is not done in time", over(late), true),
        ("the node is still marked", over(marked), false),
        ("its node is not Ready", over(unready), true),
        ("its attempt has not begun", over(|view| shadow(view, |it| it.spec.attempt = None)), false),
        ("it runs", over(|view| shadow(view, |it| it.spec.state = State::MonitoringUpdate)), false),
        ("its node is gone", over(|view| view.node = None), true),
        ("its shadow is gone, and its node opted out", gone(|_| {}), true),
        ("the same, and the node is not Ready", gone(unready), false),
        ("the same, and the node is still marked", gone(marked), false),
        ("its shadow is gone, and comes again", gone(|view| node(view, |node| node.labelled = true)), false),
        ("its shadow was made again", another(|_| {}), true),
        ("the same, and its node is not Ready", another(unready), false),
        ("the same, and the node is still marked", another(marked), false),
        ("the same, and the agent is not done", another(busy), false),
        ("the same, and the agent is not done in time", another(late), true),
    ] {
        assert_eq!(is_given_back(&view), expected, "{says}");
    }
}

/// A node that has a slot and is not Ready takes one place, not two.
#[test]
fn who_has_a_slot_counts_once() {
    let away = updating(State::RebootedIntoUpdate, State::StagedAndPerformedUpdate)
        .with(|view| node(view, |node| node.ready = false));
    let other = idle().with(|view| {
        view.shadow_name = "brs-other";
        shadow(view, |shadow| (shadow.name, shadow.uid) = ("brs-other", "other"));
    });
    for (limit, taken) in [(1, vec![]), (2, vec![1])] {
        let fleet = FleetFacts { default_pool: limited(limit), ceiling: limit, ..fleet() };
        assert_eq!(take_slots(&fleet, &[away, other]).taken, taken, "a limit of {limit}");
    }
}

static MARKER: std::sync::LazyLock<brupop_api::Marker> = std::sync::LazyLock::new(|| marker(1, false));

trait With {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl With for NodeView<'static> {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// What the fleet's status shows as its limit.
#[test]
fn no_more_slots_are_told_of_than_there_can_be() {
    let pools = [PoolFacts { limit: 3, ..zones::pool("a") }, PoolFacts { limit: 4, ..zones::pool("b") }];
    let empty = [PoolFacts { nodes: 0, ..zones::pool("a") }];
    for (says, pools, unpooled, limit, ceiling, expected) in [
        ("no pools", &[][..], 0, 2, u64::MAX, 2),
        ("pools own all nodes", &pools[..], 0, 2, u64::MAX, 7),
        ("and not all", &pools[..], 5, 2, u64::MAX, 9),
        ("the fleet has a ceiling", &pools[..], 5, 2, 6, 6),
        ("a pool without nodes", &empty[..], 5, 2, u64::MAX, 2),
        ("unlimited", &pools[..], 5, u64::MAX, u64::MAX, 500),
    ] {
        let default_pool = &PoolFacts { nodes: unpooled, limit, ..PoolFacts::DEFAULT };
        let fleet = FleetFacts { ceiling, default_pool, pools, ..without_slots() };
        assert_eq!(fleet.total_limit(), expected, "{says}");
    }
}
