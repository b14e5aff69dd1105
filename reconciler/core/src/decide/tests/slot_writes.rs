//! The slots that a write takes, and the input of its decision.

use brupop_api::fleet::BottlerocketFleet;
use brupop_apply::apply;

use super::versions::known;
use super::world::*;
use super::zones;
use crate::decide::allocate::ledger_tests;

#[test]
fn a_slot_says_since_when_for_which_release_and_pool() {
    let slot = Slot {
        uid: UID.into(),
        attempt: 1,
        since: Some(FleetFacts::EXAMPLE.now.into()),
        version: Some(NEW.into()),
        variant: Some(NodeFacts::EXAMPLE_VARIANT.into()),
        ..Slot::default()
    };
    let taken =
        |fleet: &FleetFacts<'_>, view| slot_of(&allocate(fleet, &[view]).write.unwrap(), SHADOW);
    assert_eq!(taken(&without_slots(), idle()), Some(slot.clone()));
    let pools: [PoolFacts<'_>; 1] = [zones::pool("web")];
    let in_pool = FleetFacts {
        pools: &pools,
        ..without_slots()
    };
    assert_eq!(
        taken(&in_pool, idle().in_pool(0)),
        Some(Slot {
            pool: Some("web".into()),
            ..slot
        })
    );
}

/// The description of a change of the ledger, and the change.
type Change = (&'static str, fn(&mut BottlerocketFleet));

/// Each of these may have happened between the decision and the write.
#[test]
fn slots_are_taken_only_on_what_was_read() {
    let fleet = without_slots();
    let write = allocate(&fleet, &[idle()]).write.unwrap();
    let ledger = ledger(&fleet);
    let changes: [Change; 4] = [
        ("another one leads", |ledger| {
            ledger.status.as_mut().unwrap().term = Some(5);
        }),
        ("another node has a slot", |ledger| {
            ledger.status.as_mut().unwrap().slots = slot("brs-other", "other", 1);
        }),
        ("a person has paused the fleet", |ledger| {
            ledger.metadata.generation = Some(6);
        }),
        ("the fleet is another one", |ledger| {
            ledger.metadata.uid = Some("another".into());
        }),
    ];
    assert_eq!(apply(&write, &mut ledger.clone()), Ok(()));
    for (says, change) in changes {
        let mut ledger = ledger.clone();
        change(&mut ledger);
        assert!(apply(&write, &mut ledger).is_err(), "{says}");
    }
}

/// The records are set on those that were read.
#[test]
fn records_are_tested_as_they_were_read() {
    let versions = [known()];
    let fleet = FleetFacts {
        versions: &versions,
        ..without_slots()
    };
    for (field, expected) in [
        (Field::Versions, Value::Versions((&versions).into())),
        (Field::DonePools, Value::DonePools((&[]).into())),
    ] {
        let tests = ledger_tests(&fleet, &[(field, Value::Absent)]);
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
            let view: NodeView<'_> = idle();
            view.named(name)
                .with_node(|node| node.readiness = Some(readiness(at >= unavailable)))
        });
        let views: Vec<_> = views.collect();
        let proven = [VersionRecord {
            succeeded: 1,
            ..known()
        }];
        let fleet = FleetFacts {
            default_pool: limited(limit),
            ceiling: u64::MAX,
            versions: &proven,
            ..without_slots()
        };
        assert_eq!(allocate(&fleet, &views).taken.len(), taken, "{says}");
    }
}

/// Anyone who has a slot is out of service, or may be. So it is given back on facts that stay true, and only if nothing is left
/// to be undone.
#[test]
fn a_slot_is_given_back_once_nothing_is_left_of_its_update() {
    let over = idle().with_shadow(|it| (it.spec.attempt, it.status.attempt) = (Some(1), Some(1)));
    let gone = NodeView {
        shadow: None,
        ..over
    }
    .with_node(|node| node.labelled = false);
    let another = over.with_shadow(|shadow| shadow.uid = "another");
    // By reference: before Rust 1.97 two closures called with the same copy can share it, and one sees what the other changes
    // (https://github.com/rust-lang/rust/issues/155241).
    let marked =
        |view: &NodeView<'static>| view.with_node(|node| node.marker = Some(Ok(CORDONED.clone())));
    let busy = |view: &NodeView<'static>| {
        view.with_shadow(|it| it.status.current_state = Some(ErrorReset))
    };
    let late = |view: &NodeView<'static>| busy(view).with(|view| view.time.step_overdue = true);
    for (says, view, expected) in rows! {
        "its attempt is over", over => true;
        "the agent is not done", busy(&over) => false;
        "the agent is not done in time", late(&over) => true;
        "the node is still marked", marked(&over) => false;
        "its node is not Ready", over.not_ready() => true;
        "its attempt has not begun", over.with_shadow(|it| it.spec.attempt = None) => false;
        "it runs", over.with_shadow(|it| it.spec.state = MonitoringUpdate) => false;
        "its node is gone", NodeView { node: None, ..over } => true;
        "its shadow is gone, and its node opted out", gone => true;
        "the same, and the node is not Ready", gone.not_ready() => false;
        "the same, and the node is still marked", marked(&gone) => false;
        "its shadow is gone, and comes again", gone.with_node(|node| node.labelled = true) => false;
        "its shadow was made again", another => true;
        "the same, and its node is not Ready", another.not_ready() => false;
        "the same, and the node is still marked", marked(&another) => false;
        "the same, and the agent is not done", busy(&another) => false;
        "the same, and the agent is not done in time", late(&another) => true;
    } {
        let (fleet, views) = (fleet(), [view]);
        let freed = allocate(&fleet, &views).freed;
        assert_eq!(
            freed.iter().any(|(name, ..)| *name == SHADOW),
            expected,
            "{says}"
        );
    }
}

/// A node that has a slot and is not Ready takes one place, not two.
#[test]
fn who_has_a_slot_counts_once() {
    let away = updating(RebootedIntoUpdate, StagedAndPerformedUpdate).not_ready();
    let other = idle().named("brs-other");
    for (limit, taken) in [(1, vec![]), (2, vec![1])] {
        let fleet = FleetFacts {
            default_pool: limited(limit),
            ceiling: limit,
            ..fleet()
        };
        assert_eq!(
            allocate(&fleet, &[away, other]).taken,
            taken,
            "a limit of {limit}"
        );
    }
}
