//! Tests of a new leader's view of existing objects.

use std::borrow::Cow;

use brupop_api::crds::COUNTER_MAX;
use brupop_api::fleet::BottlerocketFleetStatus;

use super::world::*;
use crate::decide::new_term;

#[test]
fn a_new_leader_has_the_highest_term() {
    let view =
        updating(StagedAndPerformedUpdate, Idle).with_shadow(|it| it.spec.leader_term = Some(9));
    let ledger = BottlerocketFleetStatus {
        term: Some(4),
        ..BottlerocketFleetStatus::default()
    };
    let (term, take) = new_term(Some(&ledger), &[view]);
    assert_eq!(
        (term, sets(&take, Field::Term)),
        (10, Some(Value::Number(10)))
    );
    let slots = Value::Slots(Cow::Owned(BTreeMap::new()));
    let as_read = [(Field::Term, Value::Number(4)), (Field::Slots, slots)];
    assert_eq!(take.tests, as_read, "another leader may have begun since");
    assert_eq!(sets(&take, Field::Slot(SHADOW)), None, "slots are known");
    // A lost ledger's slots are made again.
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 10);
    let made_again = Slot {
        uid: UID.into(),
        attempt: 1,
        version: Some(NEW.into()),
        ..Slot::default()
    };
    assert_eq!(
        sets(&take, Field::Slot(SHADOW)),
        Some(Value::Slot(made_again))
    );
}

/// Found by chaos (seed 7012): a person had deleted the shadow of a node that was being updated, and then the ledger.
#[test]
fn a_node_of_ours_that_lost_shadow_and_ledger_has_a_slot() {
    let left = Marker {
        term: 12,
        ..marker(3, true)
    };
    let mut view = NodeView {
        shadow: None,
        ..granted(false).marked_by(&left)
    };
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 13);
    let node = view.node.unwrap();
    let slot = Slot {
        uid: node.uid.clone(),
        attempt: 3,
        ..Slot::default()
    };
    assert_eq!(sets(&take, Field::Slot(SHADOW)), Some(Value::Slot(slot)));
    let ledger = BottlerocketFleetStatus {
        term: Some(4),
        ..BottlerocketFleetStatus::default()
    };
    assert_eq!(
        sets(&new_term(Some(&ledger), &[view]).1, Field::Slot(SHADOW)),
        None,
        "slots are known"
    );

    // Nothing is out of service any more: only the owners of evicted pods are remembered.
    let tidy = Marker {
        evicted_owners: [("apps/v1/ReplicaSet/a/b".into(), 1)].into(),
        ..Marker::default()
    };
    marked(&mut view, &tidy);
    assert_eq!(sets(&new_term(None, &[view]).1, Field::Slot(SHADOW)), None);

    // A term that the ledger cannot hold must not keep everybody from leading.
    let [highest, beyond] = [COUNTER_MAX - 1, COUNTER_MAX].map(|term| Marker {
        term,
        ..marker(3, true)
    });
    marked(&mut view, &highest);
    assert_eq!(new_term(None, &[view]).0, COUNTER_MAX);
    marked(&mut view, &beyond);
    assert_eq!(new_term(None, &[view]).0, 1);
    let absurd = Marker {
        term: u64::MAX,
        attempt: u64::MAX,
        shadow_uid: "no UID".into(),
        ..marker(3, true)
    };
    marked(&mut view, &absurd);
    let (term, take) = new_term(None, &[view]);
    assert_eq!(term, 1);
    let slot = slot_of(&take, SHADOW).unwrap();
    assert_eq!(
        (slot.uid.as_str(), slot.attempt),
        (node.uid.as_str(), COUNTER_MAX)
    );
}

/// When a lost ledger has been created again, running updates have no slots.
#[test]
fn running_updates_without_slot_take_one_within_limit() {
    let away = staged().not_ready().named("brs-a");
    let running = staged().named("brs-b");
    let dead = idle().not_ready().named("brs-0");
    for (limit, taken) in [(0, &[][..]), (1, &[1]), (2, &[1]), (3, &[1, 2])] {
        let fleet = FleetFacts {
            default_pool: limited(limit),
            ..without_slots()
        };
        assert_eq!(
            allocate(&fleet, &[dead, away, running]).taken,
            taken,
            "{limit}"
        );
    }
}

/// Also for nodes that no pool selects, the fleet's limit may be the lower one.
#[test]
fn the_lower_limit_is_named() {
    let dead = NodeView {
        shadow_name: "brs-0",
        ..idle().not_ready()
    };
    for (of_fleet, of_pool, limit) in [
        (1, 1, "of the fleet (spec.maxUnavailable)"),
        (1, 3, "of the fleet (spec.maxUnavailable)"),
        (9, 1, "MAX_CONCURRENT_UPDATE"),
    ] {
        let fleet = FleetFacts {
            ceiling: of_fleet,
            default_pool: limited(of_pool),
            ..without_slots()
        };
        let chosen = allocate(
            &fleet,
            &[
                dead,
                NodeView {
                    shadow_name: "brs-1",
                    ..idle()
                },
            ],
        );
        let why = Reason::LimitUsedByUnavailableNodes("n", limit);
        assert!(
            chosen.queued.iter().any(|(_, reason)| *reason == why),
            "{:?}",
            chosen.queued
        );
    }
}
