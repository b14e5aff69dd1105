//! What the write that takes slots says of them, and what it was decided on.

use std::collections::BTreeMap;

use brupop_api::fleet::{BottlerocketFleet, Slot, VersionRecord};
use brupop_api::write::apply;
use serde_json::json;

use super::world::*;
use super::*;
use crate::decide::slots;
use crate::facts::{FleetFacts, PoolFacts, Steering};

fn taken(fleet: &FleetFacts<'_>) -> Slot {
    let mut view = idle();
    view.steering = if fleet.pools.is_empty() { Steering::Environment } else { Steering::Pool(0) };
    let write = slots(fleet, &[view]).write.unwrap();
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

/// Each of these may have happened between the decision and the write.
#[test]
fn slots_are_taken_only_on_what_was_read() {
    let fleet = without_slots();
    let write = slots(&fleet, &[idle()]).write.unwrap();
    let ledger: BottlerocketFleet = serde_json::from_value(json!({
        "apiVersion": "brupop.bottlerocket.aws/v1alpha1", "kind": "BottlerocketFleet",
        "metadata": {"name": "fleet", "uid": fleet.uid, "generation": fleet.generation}, "spec": {},
        "status": {"term": fleet.term},
    }))
    .unwrap();
    let changes: [(&str, fn(&mut BottlerocketFleet)); 3] = [
        ("another one leads", |ledger| ledger.status.as_mut().unwrap().term = Some(5)),
        ("another node has a slot", |ledger| {
            ledger.status.as_mut().unwrap().slots = slot("brs-other", "other", 1);
        }),
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
        let tests = crate::decide::slots::tests(&fleet, &[(field, Value::Absent)]);
        assert!(tests.contains(&(field, expected)), "{field:?}: {tests:?}");
        assert!(tests.contains(&(Field::Term, Value::Number(fleet.term))));
    }
}
