//! Tests of unproven versions, and of the effect of a halt.

use super::versions::{halted, known};
use super::world::*;

/// Nodes that could begin, by name of the shadow.
fn ready_to_begin(names: &'static [&'static str]) -> Vec<NodeView<'static>> {
    names.iter().map(|name| idle().named(name)).collect()
}

fn fleet_of<'a>(
    unproven: u64,
    held: &'a BTreeMap<String, Slot>,
    versions: &'a [VersionRecord],
) -> FleetFacts<'a> {
    FleetFacts {
        threshold: FailureThreshold {
            unproven,
            proven: 2,
        },
        default_pool: limited(500),
        slots: held,
        versions,
        ..fleet()
    }
}

fn trying(slot: Slot) -> BTreeMap<String, Slot> {
    let slot = Slot {
        uid: UID.to_owned(),
        version: Some(NEW.to_owned()),
        ..slot
    };
    BTreeMap::from([(SHADOW.to_owned(), slot)])
}

#[test]
fn few_try_a_version_that_nobody_has_reached() {
    let succeeded = |succeeded| VersionRecord {
        succeeded,
        ..known()
    };
    for (unproven, record, begin) in [
        (1, None, 1),
        (2, None, 2),
        (8, None, 4),
        (1, Some(succeeded(0)), 1),
        (1, Some(succeeded(1)), 4),
    ] {
        let versions: Vec<_> = record.clone().into_iter().collect();
        let chosen = allocate(
            &fleet_of(unproven, &NO_SLOTS, &versions),
            &ready_to_begin(&["brs-a", "brs-b", "brs-c", "brs-d"]),
        );
        assert_eq!(chosen.taken.len(), begin, "{unproven:?}, {record:?}");
        assert_eq!(chosen.queued.len(), 4 - begin);
        assert!(
            chosen
                .queued
                .iter()
                .all(|(_, reason)| *reason == Reason::VersionUnproven(NEW))
        );
    }
}

#[test]
fn each_version_has_one_canary_whichever_node_asks() {
    let asked_for = |view: &NodeView<'static>| view.with_node(|node| node.update_now = true);
    let mut views = ready_to_begin(&["brs-a", "brs-b", "brs-c"]);
    let asked: Vec<_> = views.iter().map(asked_for).collect();
    assert_eq!(allocate(&fleet_of(1, &NO_SLOTS, &[]), &asked).taken, [0]);
    shadow(&mut views[1], |shadow| {
        shadow.status.target_version = Some("1.20.1".into());
    });
    assert_eq!(allocate(&fleet_of(1, &NO_SLOTS, &[]), &views).taken, [0, 1]);
}

#[test]
fn a_canary_counts_until_failed_or_late() {
    let mut views = [
        updating(StagedAndPerformedUpdate, Idle),
        idle().named("brs-o"),
    ];
    let begin = |slot, views: &[NodeView<'_>]| {
        let held = trying(Slot { attempt: 1, ..slot });
        allocate(&fleet_of(1, &held, &[]), views).taken
    };
    assert_eq!(begin(Slot::default(), &views), [0; 0]);
    views[0].time.trial_overdue = true;
    assert_eq!(
        begin(Slot::default(), &views),
        [1],
        "one silent agent does not stop the fleet"
    );
    views[0].time.trial_overdue = false;
    assert_eq!(
        begin(
            Slot {
                counted: true,
                ..Slot::default()
            },
            &views
        ),
        [1],
        "the record counts it"
    );
}

#[test]
fn a_slot_is_for_one_version() {
    let held = trying(Slot {
        attempt: 2,
        ..Slot::default()
    });
    let fleet = fleet_of(1, &held, &[]);
    assert_eq!(decide(&fleet, &idle()).reason, Reason::StagingBegins(NEW));
    let another = idle().with_shadow(|shadow| shadow.status.target_version = Some("1.20.1".into()));
    let decision = decide(&fleet, &another);
    assert_eq!(
        sets(write(&decision), Field::SpecVersion),
        Some(Value::Absent),
        "{decision:?}"
    );
}

#[test]
fn a_halt_reaches_updates_before_their_reboot() {
    let versions = [halted(known())];
    let fleet = FleetFacts {
        versions: &versions,
        ..fleet()
    };
    for (what, view, given_up) in [
        ("it stages", updating(StagedAndPerformedUpdate, Idle), true),
        ("it has staged", staged(), true),
        ("it may reboot", granted(false), true),
        ("it has claimed its reboot", granted(true), false),
        (
            "it runs it",
            updating(RebootedIntoUpdate, RebootedIntoUpdate).rebooted(NEW),
            false,
        ),
        ("it is watched", watched(), false),
    ] {
        for view in [view, view.marked_by(&CORDONED), view.marked_by(&DRAINED)] {
            let decision = decide(&fleet, &view);
            let gives_up = decision.reason == Reason::Aborting(Abort::VersionHalted);
            assert_eq!(gives_up, given_up, "{what}: {decision:?}");
            if gives_up {
                assert_eq!(failures_of(&decision), None, "it is no failure of the node");
                let tests = &write(&decision).tests;
                assert!(
                    tests
                        .iter()
                        .any(|(field, _)| *field == Field::StatusRebootClaimedBootId),
                    "{what}"
                );
            }
        }
    }
}
