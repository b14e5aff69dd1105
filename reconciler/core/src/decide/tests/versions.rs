//! Tests of the failures that count against a version, and of halts.

use super::world::*;
use crate::decide::why_halted;

pub(super) fn failures(reason: &str) -> LastFailure {
    let (at, reason) = ("2026-11-21T03:00:00Z".to_owned(), reason.to_owned());
    LastFailure {
        count: 1,
        attempt: 1,
        at,
        reason,
        message: String::new(),
    }
}

/// Given up, undone, about to give its slot back.
pub(super) fn over(failures: Option<&LastFailure>) -> NodeView<'_> {
    let view: NodeView<'_> = updating(Idle, Idle);
    view.with(|view| view.time.backing_off = true)
        .with_shadow(|shadow| shadow.spec.last_failure = failures.cloned())
}

/// Returns what is known of the new version for the variant of most nodes.
pub(super) fn known() -> VersionRecord {
    VersionRecord {
        version: NEW.to_owned(),
        variant: NodeFacts::EXAMPLE_VARIANT.to_owned(),
        ..VersionRecord::default()
    }
}

pub(super) fn failed(nodes: &[&str]) -> VersionRecord {
    let failure = |node: &&str| NodeFailure {
        node: (*node).to_owned(),
        at: "2026-11-21T02:00:00Z".to_owned(),
        reason: "FellBack".to_owned(),
    };
    VersionRecord {
        failures: nodes.iter().map(failure).collect(),
        ..known()
    }
}

pub(super) fn halted(record: VersionRecord) -> VersionRecord {
    VersionRecord {
        halted_at: Some("2026-11-21T02:00:00Z".to_owned()),
        ..record
    }
}

/// Returns what a person says who has seen the halt of this record.
pub(super) fn resuming(record: &VersionRecord) -> [ResumedVersion; 1] {
    [ResumedVersion {
        version: record.version.clone(),
        variant: record.variant.clone(),
        halted_at: record.halted_at.clone().unwrap(),
    }]
}

/// The record of the new version after a pass, if it changes.
pub(super) fn record(
    fleet: &FleetFacts<'_>,
    known: Option<VersionRecord>,
    views: &[NodeView<'_>],
) -> Option<VersionRecord> {
    let versions: Vec<_> = known.into_iter().collect();
    let fleet = FleetFacts {
        versions: &versions,
        ..*fleet
    };
    let write = allocate(&fleet, views).write?;
    let mut records = records_of(&write)?.into_iter();
    records.find(|record| record.version == NEW && !versions.contains(record))
}

/// Returns why it is halted, if it is.
pub(super) fn why(record: &VersionRecord) -> Option<String> {
    record.halted_at.as_ref().map(|_| why_halted(record))
}

/// It has left for its reboot, which its agent has claimed.
fn away() -> NodeView<'static> {
    granted(true).not_ready()
}

/// Half a day later, and what a person has resumed by then.
fn later<'a>(resumed: &'a [ResumedVersion], fleet: FleetFacts<'a>) -> FleetFacts<'a> {
    FleetFacts {
        resumed,
        now: "2026-11-21T06:00:00Z",
        ..fleet
    }
}

pub(super) fn names(record: &VersionRecord) -> Vec<&str> {
    record
        .failures
        .iter()
        .map(|failure| failure.node.as_str())
        .collect()
}

#[test]
fn the_first_failure_halts_a_new_version() {
    let fell_back = failures("FellBack");
    let next = idle().named("brs-o");
    let passed = allocate(&fleet(), &[over(Some(&fell_back)), next]);
    let write = passed.write.unwrap();
    assert_eq!(sets(&write, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(
        sets(&write, Field::Slot("brs-o")),
        None,
        "no other node begins in the same breath"
    );
    let [halt] = &passed.halted[..] else {
        panic!("one is halted")
    };
    assert_eq!(
        (&*halt.version, &*halt.variant, &*why_halted(halt)),
        (NEW, NodeFacts::EXAMPLE_VARIANT, "it failed on n (FellBack)")
    );

    let versions = [halted(failed(&["n"]))];
    let fleet = FleetFacts {
        versions: &versions,
        ..without_slots()
    };
    assert_eq!(decide(&fleet, &next).reason, Reason::VersionHalted(NEW));
    assert_eq!(allocate(&fleet, &[next]).write, None);
    let next = next.with_shadow(|shadow| shadow.status.target_version = Some("1.20.1".into()));
    assert!(
        allocate(&fleet, &[next]).write.is_some(),
        "another version starts afresh"
    );
}

#[test]
fn which_failures_count() {
    let fleet = FleetFacts {
        threshold: MANY,
        ..fleet()
    };
    // Of the others, an agent can say so, and nobody else has seen it. Each counts in the second in which it fails, and once.
    let seen_by_others = ["FellBack", "NotReady", "NotConfirmed"];
    for &reason in Abort::WORDS {
        let failures = LastFailure {
            at: fleet.now.to_owned(),
            ..failures(reason)
        };
        let noted = record(&fleet, None, &[over(Some(&failures))]);
        let again = record(&fleet, noted.clone(), &[over(Some(&failures))]);
        let counts = seen_by_others.contains(&reason);
        assert_eq!(
            (noted.map(|record| names(&record) == ["n"]), again),
            (counts.then_some(true), None),
            "{reason}"
        );
    }
}

#[test]
fn a_proven_version_needs_two_failed_nodes() {
    let fell_back = failures("FellBack");
    let proven = |nodes: &[&str]| VersionRecord {
        succeeded: 3,
        ..failed(nodes)
    };
    let after = |known| record(&fleet(), Some(known), &[over(Some(&fell_back))]).unwrap();
    assert_eq!(why(&after(proven(&[]))), None);
    let again = after(proven(&["n"]));
    assert_eq!((names(&again), why(&again)), (vec!["n"], None));
    let both = after(proven(&["gone-since"]));
    assert_eq!(
        why(&both).unwrap(),
        "it failed on n (FellBack), gone-since (FellBack)"
    );
    let five = after(proven(&["a", "b", "c", "d"]));
    let latest = "it failed on n (FellBack), d (FellBack), c (FellBack), 2 more";
    assert_eq!(why(&five).unwrap(), latest);
}

/// Returns the usual slot with this change.
fn holding(change: impl FnOnce(&mut Slot)) -> BTreeMap<String, Slot> {
    let mut slots = SLOT.clone();
    change(slots.get_mut(SHADOW).unwrap());
    slots
}

#[test]
fn an_absent_host_counts_and_keeps_its_slot() {
    assert_eq!(record(&fleet(), None, &[away()]), None, "in time");
    let away = away().with(|view| view.time.step_overdue = true);
    let write = allocate(&fleet(), &[away]).write.unwrap();
    let counted = holding(|slot| slot.counted = true);
    assert_eq!(slot_of(&write, SHADOW).as_ref(), counted.get(SHADOW));
    let missing = record(&fleet(), None, &[away]).unwrap();
    assert_eq!(why(&missing).unwrap(), "it failed on n (NotReturned)");
    let by_itself = updating(RebootedIntoUpdate, StagedAndPerformedUpdate).rebooted(NEW);
    let by_itself = by_itself
        .not_ready()
        .with(|view| view.time.step_overdue = true);
    assert_eq!(
        record(&fleet(), None, &[by_itself]).as_ref(),
        Some(&missing),
        "a crash into the update needs no grant"
    );
    let noted = FleetFacts {
        slots: &counted,
        ..fleet()
    };
    assert_eq!(record(&noted, Some(missing.clone()), &[away]), None, "once");

    let said = resuming(&missing);
    let resumed = later(&said, noted);
    let gone_on = record(&resumed, Some(missing.clone()), &[away]).unwrap();
    assert!(gone_on.halted_at.is_none(), "a person may go on meanwhile");
    let fell_back = failures("FellBack");
    let came_back = NodeView {
        shadow: over(Some(&fell_back)).shadow,
        ..away
    }
    .with_node(|node| (node.readiness, node.boot_id) = (Some(readiness(true)), SECOND_BOOT.into()));
    assert!(
        allocate(&resumed, &[came_back]).write.is_some(),
        "it gives its slot back"
    );
    for (what, seen) in [
        ("while it is away", away),
        ("once its Node is gone", NodeView { node: None, ..away }),
        ("once it has come back as it was", came_back),
    ] {
        assert_eq!(
            record(&resumed, Some(gone_on.clone()), &[seen]),
            None,
            "not again {what}"
        );
    }
    let another = later(&said, fleet());
    let counted = record(&another, Some(gone_on), &[away]).unwrap();
    assert_eq!(
        counted.failures[0].at, another.now,
        "that it failed before is another update's failure"
    );
    assert!(counted.halted_at.is_some());

    let unclaimed = away.with_shadow(|shadow| shadow.status.reboot_claimed_boot_id = None);
    let leaving = away.with_node(|node| node.leaving = true);
    let ready = away.with_node(|node| node.readiness = Some(readiness(true)));
    for (says, away) in [
        ("it may have gone away by itself", unclaimed),
        ("somebody removes it", leaving),
        ("a claim is the agent's word", ready),
    ] {
        assert_eq!(record(&fleet(), None, &[away]), None, "{says}");
    }
    let lost = holding(|slot| slot.lost = true);
    let lost = FleetFacts {
        slots: &lost,
        ..fleet()
    };
    let removed = record(&lost, None, &[leaving]);
    assert!(removed.is_some(), "somebody removes it because it was lost");
    let replaced = record(
        &fleet(),
        None,
        &[NodeView {
            node: None,
            ..over(Some(&fell_back))
        }],
    )
    .unwrap();
    assert_eq!(
        why(&replaced).unwrap(),
        "it failed on n (FellBack)",
        "replaced after it had failed"
    );
    let late = record(&fleet(), Some(missing), &[over(None).rebooted(NEW)]).unwrap();
    assert_eq!((late.succeeded, names(&late)), (1, vec![]));
    let says = "it failed on nodes that have reached it since";
    assert_eq!(why(&late).unwrap(), says, "only a person resumes it");
    let down = over(None).rebooted(NEW).not_ready();
    assert_eq!(record(&fleet(), None, &[down]), None, "no outcome yet");
}

#[test]
fn the_ledger_says_when_an_update_was_last_over() {
    for (view, says) in [(over(None), true), (away(), false)] {
        let write = allocate(&fleet(), &[view]).write;
        let mut sets = write.iter().flat_map(|write| &write.sets);
        assert_eq!(sets.any(|(field, _)| *field == Field::LastFinished), says);
    }
}

#[test]
fn a_deleted_node_counts_if_lost_before() {
    let away = away().with(|view| view.time.missing = true);
    let soon = away.with(|view| view.time.missing = false);
    let unclaimed = away.with_shadow(|shadow| shadow.status.reboot_claimed_boot_id = None);
    let leaving = away.with_node(|node| node.leaving = true);
    let ready = away.with_node(|node| node.readiness = Some(readiness(true)));
    // Another machine under the same name: before its shadow is made again, and after.
    let another = ready.with_node(|node| node.uid = "another".into());
    let in_next_boot = ready.with_node(|node| node.boot_id = SECOND_BOOT.into());
    let unknown = in_next_boot.with_shadow(|shadow| shadow.uid = "another");
    let versioned = Slot {
        version: Some(NEW.to_owned()),
        ..SLOT[SHADOW].clone()
    };
    let noted = |was: bool, seen: NodeView<'_>| {
        let held = BTreeMap::from([(
            SHADOW.to_owned(),
            Slot {
                lost: was,
                ..versioned.clone()
            },
        )]);
        let write = allocate(
            &FleetFacts {
                slots: &held,
                ..fleet()
            },
            &[seen],
        )
        .write?;
        slot_of(&write, SHADOW).map(|slot| slot.lost)
    };
    for (says, was, seen, notes) in rows! {
        "away for long", false, away => Some(true);
        "and still", true, away => None;
        "not for long", false, soon => None;
        "its reboot was not claimed", false, unclaimed => None;
        "an autoscaler removes it", false, leaving => None;
        "an autoscaler removes it for it was lost", true, leaving => None;
        "it is back", true, ready => Some(false);
        "it crashed into the update", false, unclaimed.rebooted(NEW).not_ready() => Some(true);
        "another machine came, and its shadow is still the old one", true, another => None;
        "another machine came, and its shadow says nothing yet", true, unknown => None;
    } {
        assert_eq!(noted(was, seen), notes, "{says}");
    }

    let alone = NodeView { node: None, ..away };
    let replaced = unknown.with_shadow(|shadow| {
        shadow.spec = BottlerocketShadowSpec::default();
        (shadow.status.current_state, shadow.status.attempt) = (Some(Idle), None);
    });
    let returned = replaced.rebooted(NEW);
    for lost in [false, true] {
        let held = BTreeMap::from([(
            SHADOW.to_owned(),
            Slot {
                lost,
                ..versioned.clone()
            },
        )]);
        let fleet = FleetFacts {
            slots: &held,
            ..fleet()
        };
        for (says, left) in rows! {
            "its shadow is there" => &[alone][..];
            "its shadow went first" => &[NodeView { shadow: None, ..alone }];
            "nothing is left of it" => &[];
            "another machine came under its name" => &[replaced];
        } {
            let halted = record(&fleet, None, left).and_then(|record| why(&record));
            assert_eq!(
                halted.as_deref(),
                lost.then_some("it failed on n (NotReturned)"),
                "{says}"
            );
        }
        assert_eq!(
            record(&fleet, None, &[returned]),
            None,
            "only its shadow was made again"
        );
    }
}

#[test]
fn not_ready_counts_before_the_slot_returns() {
    let [failures, blocked] = ["NotReady", "DrainTimedOut"].map(failures);
    let failed = |failures: &LastFailure| {
        updating(Idle, Idle)
            .marked_by(&DRAINED)
            .not_ready()
            .with_shadow(|shadow| shadow.spec.last_failure = Some(failures.clone()))
    };
    let view = failed(&failures);
    let noted = record(&fleet(), None, &[view]).unwrap();
    assert_eq!(why(&noted).unwrap(), "it failed on n (NotReady)");
    let slots = holding(|slot| slot.counted = true);
    let counted = FleetFacts {
        slots: &slots,
        ..fleet()
    };
    assert_eq!(record(&counted, Some(noted), &[view]), None, "once");
    assert_eq!(record(&fleet(), None, &[failed(&blocked)]), None);
}

#[test]
fn many_missing_hosts_are_counted_once_each() {
    let names: Vec<String> = (0..12).map(|nth| format!("brs-n{nth:02}")).collect();
    let away: NodeView<'_> = away();
    let away = away.with(|view| view.time.step_overdue = true);
    let missing: Vec<NodeView<'_>> = names.iter().map(|name| away.named(name)).collect();
    let held = |counted| -> BTreeMap<String, Slot> {
        let slot = |name: &String| Slot {
            uid: name.clone(),
            counted,
            ..SLOT[SHADOW].clone()
        };
        names
            .iter()
            .map(|name| (name.clone(), slot(name)))
            .collect()
    };
    let (before, after) = (held(false), held(true));
    let write = allocate(
        &FleetFacts {
            slots: &before,
            ..fleet()
        },
        &missing,
    )
    .write
    .unwrap();
    let versions = records_of(&write).unwrap();
    assert_eq!(versions[0].failures.len(), 8, "this many are named");
    assert!(
        names
            .iter()
            .all(|name| slot_of(&write, name).as_ref() == after.get(name)),
        "{write:?}"
    );
    let after = FleetFacts {
        slots: &after,
        versions: &versions,
        ..fleet()
    };
    assert_eq!(allocate(&after, &missing).write, None, "nothing is left");
    let said = resuming(&versions[0]);
    let resumed = later(&said, after);
    let gone_on = record(&resumed, Some(versions[0].clone()), &missing).unwrap();
    assert!(gone_on.halted_at.is_none());
    assert_eq!(record(&resumed, Some(gone_on), &missing), None, "it stays");
}
