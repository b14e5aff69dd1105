//! Which versions the ledger forgets.

use brupop_api::crds::VERSION_RECORDS_MAX;
use jiff::Timestamp;
use proptest::prelude::*;
use std::cmp::Reverse;

use super::versions::{failed, failures, halted, over};
use super::world::*;
use crate::decide::records::{Records, forgotten};

fn at(second: usize) -> String {
    Timestamp::from_second(i64::try_from(second).unwrap())
        .unwrap()
        .to_string()
}

/// A record that was first seen, and halted if it is, at this time.
fn record(seen: usize, nodes: &[&str], halted: bool) -> VersionRecord {
    let failure = |node: &&str| NodeFailure {
        node: (*node).into(),
        at: at(seen),
        reason: "FellBack".into(),
        ..NodeFailure::default()
    };
    VersionRecord {
        first_seen: Some(at(seen)),
        failures: nodes.iter().map(failure).collect(),
        halted: halted.then(|| Halt {
            at: at(seen),
            reason: String::new(),
            ..Halt::default()
        }),
        ..VersionRecord::default()
    }
}

fn forgotten_of(all: &[(&str, VersionRecord)], running: &[&str]) -> Vec<String> {
    let records: Records<'_> = all
        .iter()
        .map(|(version, record)| (*version, record))
        .collect();
    let found = forgotten(&records, |version| running.contains(&version), |_| false);
    found.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_node_alone_holds_one_halt() {
    let halt = |seen, nodes: &[&str]| record(seen, nodes, true);
    let all = [
        ("1.0.1", halt(1, &["a"])),
        ("1.0.2", halt(2, &["a"])),
        ("1.0.3", halt(3, &["b"])),
    ];
    assert_eq!(forgotten_of(&all, &[]), ["1.0.1"]);
    let both = [("1.0.1", halt(1, &["a", "b"])), ("1.0.2", halt(2, &["a"]))];
    assert_eq!(
        forgotten_of(&both, &[]),
        [""; 0],
        "b has failed nothing else"
    );
    let three = [
        ("1.0.1", halt(1, &["a", "b"])),
        ("1.0.2", halt(2, &["a"])),
        ("1.0.3", halt(3, &["b"])),
    ];
    assert_eq!(forgotten_of(&three, &[]), ["1.0.1"]);
    let unknown = [("1.0.1", halt(1, &[])), ("1.0.2", halt(2, &["a"]))];
    assert_eq!(
        forgotten_of(&unknown, &[]),
        [""; 0],
        "nobody knows whose it is"
    );
    let without = [
        ("1.0.1", halt(1, &["a"])),
        ("1.0.2", record(2, &["a"], false)),
    ];
    assert_eq!(
        forgotten_of(&without, &[]),
        [""; 0],
        "only a halt replaces a halt"
    );
}

#[test]
fn what_matters_least_goes_first() {
    let fill = |count| {
        (0..count)
            .map(|nth| (format!("2.0.{nth}"), record(100 + nth, &[], true)))
            .collect::<Vec<_>>()
    };
    let others = [
        ("1.0.1", record(1, &["a"], false)),
        ("1.0.2", record(2, &[], false)),
        ("1.0.3", record(3, &[], false)),
        ("1.0.4", record(4, &[], false)),
    ];
    for (room, expected) in [
        (4, &[][..]),
        (3, &["1.0.3"]),
        (2, &["1.0.3", "1.0.4"]),
        (1, &["1.0.3", "1.0.4", "1.0.2"]),
        (0, &["1.0.3", "1.0.4", "1.0.2", "1.0.1"]),
    ] {
        let filled = fill(VERSION_RECORDS_MAX - room);
        let mut all: Vec<_> = filled
            .iter()
            .map(|(version, it)| (version.as_str(), it.clone()))
            .collect();
        all.extend(others.clone());
        assert_eq!(forgotten_of(&all, &["1.0.2"]), expected, "room for {room}");
    }
}

proptest! {
    /// Whatever happened: the ledger is never too full, and no halt is forgotten unless all its nodes hold newer ones.
    #[test]
    fn a_halt_is_never_forgotten_for_room(
        made in prop::collection::vec((0_usize..100, prop::collection::vec(0_usize..90, 0..3), any::<bool>()), 0..150),
        stored in 0_usize..=VERSION_RECORDS_MAX,
    ) {
        let names: Vec<String> = (0..90).map(|number| format!("n{number}")).collect();
        let all: Vec<(String, VersionRecord)> = made
            .iter()
            .enumerate()
            .map(|(nth, (seen, nodes, halted))| {
                let nodes: Vec<&str> = nodes.iter().map(|node| names[*node].as_str()).collect();
                (format!("1.0.{nth}"), record(*seen, &nodes, *halted))
            })
            .collect();
        let records: Records<'_> = all.iter().map(|(version, record)| (version.as_str(), record)).collect();
        let old: Vec<&str> = records.keys().copied().take(stored).collect();
        let gone = forgotten(&records, |_| false, |version| !old.contains(&version));
        let kept: Vec<_> = records.iter().filter(|(version, _)| !gone.contains(version)).collect();
        prop_assert!(kept.len() <= VERSION_RECORDS_MAX);
        let all_halts = kept.iter().all(|(_, record)| record.halted.is_some());
        for version in gone.iter().filter(|version| records[*version].halted.is_some()) {
            let mine = Reverse((records[version].halted.as_ref().unwrap().at.clone(), *version));
            let replaced = !records[version].failures.is_empty()
                && records[version].failures.iter().all(|failure| {
                    records.iter().any(|(other, it)| {
                        it.failures.iter().any(|it| it.node == failure.node)
                            && it.halted.as_ref().is_some_and(|it| Reverse((it.at.clone(), *other)) < mine)
                    })
                });
            prop_assert!(replaced || (!old.contains(version) && all_halts), "{version}");
        }
    }
}

#[test]
fn records_are_bounded() {
    let old = |n: usize| {
        (
            format!("1.0.{n}"),
            VersionRecord {
                succeeded: 1,
                ..VersionRecord::default()
            },
        )
    };
    let mut versions: BTreeMap<String, VersionRecord> = (0..VERSION_RECORDS_MAX).map(old).collect();
    versions.get_mut("1.0.0").unwrap().halted = Some(Halt::default());
    let fell_back = failures("FellBack");
    let fleet = FleetFacts {
        versions: &versions,
        ..fleet()
    };
    let write = slots(&fleet, &[over(Some(&fell_back))]).write.unwrap();
    let forgotten: Vec<_> = versions
        .keys()
        .filter(|version| sets(&write, Field::VersionRecord(version)) == Some(Value::Absent))
        .collect();
    assert_eq!(
        forgotten,
        ["1.0.1"],
        "one makes room, and a halt is not forgotten"
    );
}

#[test]
fn full_of_halts_nothing_unknown_begins() {
    let many = |nth: usize| (format!("1.0.{nth}"), halted(failed(&[&format!("n{nth}")])));
    let versions: BTreeMap<String, VersionRecord> = (0..VERSION_RECORDS_MAX).map(many).collect();
    let full = FleetFacts {
        versions: &versions,
        ..without_slots()
    };
    assert_eq!(
        decide(&full, &idle()).reason,
        Reason::VersionHalted(TooManyFailures::NoRoom)
    );
    assert_eq!(slots(&full, &[idle()]).write, None);
    // Whose version is halted is told that, and a failure for which there is no room does not keep its slot.
    let fell_back = failures("FellBack");
    let write = slots(
        &FleetFacts {
            slots: &SLOT,
            ..full
        },
        &[over(Some(&fell_back))],
    )
    .write
    .unwrap();
    assert_eq!(sets(&write, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(sets(&write, Field::VersionRecord(NEW)), None);
    let (mut one_less, mut one_goes_on) = (versions.clone(), versions.clone());
    one_less.remove("1.0.0");
    one_goes_on.get_mut("1.0.0").unwrap().halted = None;
    for versions in [&one_less, &one_goes_on] {
        let room = FleetFacts { versions, ..full };
        assert_eq!(
            decide(&room, &idle()).reason,
            Reason::LimitReached(Turn::NoSlot)
        );
    }
}
