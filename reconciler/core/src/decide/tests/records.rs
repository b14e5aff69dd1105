//! Tests of the records that the ledger has room for.

use brupop_api::crds::VERSION_RECORDS_MAX;

use super::versions::{failures, halted, known, over};
use super::world::*;

/// As many records as there is room for, of versions that nobody wants.
fn full() -> Vec<VersionRecord> {
    let of = |nth| VersionRecord {
        version: format!("1.0.{nth}"),
        succeeded: 1,
        ..known()
    };
    (0..VERSION_RECORDS_MAX).map(of).collect()
}

#[test]
fn the_oldest_record_that_nobody_needs_makes_room() {
    let mut versions = full();
    // Halts that nobody wants go, too, but last: else one host that lies about its versions could fill the ledger for ever.
    versions[0] = halted(versions[0].clone());
    let (in_slot, wanted) = (versions[1].version.clone(), versions[2].version.clone());
    let mut held = slot("brs-o", "brs-o", 1);
    let other = held.get_mut("brs-o").unwrap();
    (other.version, other.variant) = (Some(in_slot), Some(versions[1].variant.clone()));
    let wants = idle()
        .named("brs-p")
        .with_shadow(|shadow| shadow.status.target_version = Some(wanted));
    let fleet = FleetFacts {
        versions: &versions,
        slots: &held,
        default_pool: limited(2),
        ..without_slots()
    };
    let begun = updating(StagedAndPerformedUpdate, Idle).named("brs-o");
    let chosen = allocate(&fleet, &[idle(), begun, wants]);
    assert_eq!(chosen.taken, [0]);
    let after = records_of(&chosen.write.unwrap()).unwrap();
    let gone: Vec<_> = (versions.iter()).filter(|it| !after.contains(it)).collect();
    assert_eq!(gone, [&versions[3]]);
    assert_eq!(after.last(), Some(&known()), "the new one is the latest");
    let halts: Vec<_> = versions.iter().cloned().map(halted).collect();
    let fleet = FleetFacts {
        versions: &halts,
        ..fleet
    };
    let chosen = allocate(&fleet, &[idle(), begun, wants]);
    let after = records_of(&chosen.write.unwrap()).unwrap();
    assert!(!after.contains(&halts[0]) && after.len() == VERSION_RECORDS_MAX);
}

#[test]
fn no_node_begins_without_room_for_a_record() {
    let versions: Vec<_> = full().into_iter().map(halted).collect();
    let of = |versions| FleetFacts {
        versions,
        ..without_slots()
    };
    // Each is wanted by a node.
    let names = (10..10 + versions.len()).map(|nth| format!("brs-o{nth}"));
    let names: Vec<_> = names.collect();
    let wants = names.iter().zip(&versions).map(|(name, record)| {
        let wants = idle().named(name);
        wants.with_shadow(|shadow| shadow.status.target_version = Some(record.version.clone()))
    });
    let wants: Vec<_> = wants.collect();
    let beside = |view| [vec![view], wants.clone()].concat();
    let decided = observed(of(&versions), beside(idle()));
    let decided = decided.decide();
    assert_eq!(decided.write, None);
    assert_eq!(decided.nodes[0].reason, Reason::NoRoomForVersion);
    // A failure for which there is no room does not keep its slot.
    let fell_back = failures("FellBack");
    let holds = FleetFacts {
        slots: &SLOT,
        ..of(&versions)
    };
    let write = allocate(&holds, &beside(over(Some(&fell_back))))
        .write
        .unwrap();
    assert_eq!(sets(&write, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(records_of(&write), None);
    for (versions, views) in [
        (&versions[1..], beside(idle())),
        (&versions[..], beside(idle())[..versions.len()].to_vec()),
    ] {
        assert!(allocate(&of(versions), &views).write.is_some());
    }
}
