//! Who tries a version that no node has reached, and what a halt stops.

use std::collections::BTreeMap;

use State::{Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::fleet::{Halt, Slot, VersionRecord};

use super::world::*;
use super::*;
use crate::decide::{Abort, Reason, node as decide, slots};
use crate::facts::{FleetFacts, NodeView};
use crate::rules::FailureBudget;

/// Nodes that could begin, by name of the shadow.
fn ready_to_begin(names: &'static [&'static str]) -> Vec<NodeView<'static>> {
    let begin = names.iter().map(|name| {
        let mut view = idle();
        view.shadow_name = name;
        node(&mut view, |node| node.name = name);
        shadow(&mut view, |shadow| shadow.name = name);
        view
    });
    begin.collect()
}

fn fleet_of<'a>(
    unproven: Option<u64>,
    held: &'a BTreeMap<String, Slot>,
    versions: &'a BTreeMap<String, VersionRecord>,
) -> FleetFacts<'a> {
    let budget = FailureBudget { unproven, proven: Some(2) };
    FleetFacts { budget, default_pool: limited(500), slots: held, versions, ..fleet() }
}

fn trying(name: &str, slot: Slot) -> BTreeMap<String, Slot> {
    BTreeMap::from([(name.to_owned(), Slot { uid: UID.to_owned(), version: Some(NEW.to_owned()), ..slot })])
}

#[test]
fn few_try_a_version_that_nobody_has_reached() {
    let succeeded = |succeeded| VersionRecord { succeeded, ..VersionRecord::default() };
    for (unproven, record, begin) in [
        (Some(1), None, 1),
        (Some(2), None, 2),
        (None, None, 4),
        (Some(1), Some(succeeded(0)), 1),
        (Some(1), Some(succeeded(1)), 4),
    ] {
        let versions = record.clone().map(|record| (NEW.to_owned(), record)).into_iter().collect();
        let chosen = slots(
            &fleet_of(unproven, &NO_SLOTS, &versions),
            &ready_to_begin(&["brs-a", "brs-b", "brs-c", "brs-d"]),
        );
        assert_eq!(chosen.taken.len(), begin, "{unproven:?}, {record:?}");
        assert_eq!(chosen.queued.len(), 4 - begin);
        assert!(chosen.queued.iter().all(|(_, reason)| *reason == Reason::VersionUnproven(NEW)));
    }
}

#[test]
fn who_was_asked_for_is_no_exception() {
    let mut views = ready_to_begin(&["brs-a", "brs-b"]);
    for view in &mut views {
        node(view, |node| node.update_now = true);
    }
    assert_eq!(slots(&fleet_of(Some(1), &NO_SLOTS, &NO_VERSIONS), &views).taken, [0]);
}

#[test]
fn another_version_has_its_own_canary() {
    let mut views = ready_to_begin(&["brs-a", "brs-b", "brs-c"]);
    shadow(&mut views[1], |shadow| shadow.status.target_version = Some("1.20.1"));
    assert_eq!(slots(&fleet_of(Some(1), &NO_SLOTS, &NO_VERSIONS), &views).taken, [0, 1]);
}

#[test]
fn a_canary_counts_until_failed_or_late() {
    let mut views = vec![updating(StagedAndPerformedUpdate, Idle)];
    views.extend(ready_to_begin(&["brs-o"]));
    let begin = |slot, views: &[NodeView<'_>]| {
        let held = trying(SHADOW, Slot { attempt: 1, ..slot });
        slots(&fleet_of(Some(1), &held, &NO_VERSIONS), views).taken
    };
    assert_eq!(begin(Slot::default(), &views), [0; 0]);
    views[0].time.trial_overdue = true;
    assert_eq!(begin(Slot::default(), &views), [1], "one silent agent does not stop the fleet");
    views[0].time.trial_overdue = false;
    assert_eq!(begin(Slot { counted: true, ..Slot::default() }, &views), [1], "the record counts it");
}

#[test]
fn a_slot_is_for_one_version() {
    let held = trying(SHADOW, Slot { attempt: 2, ..Slot::default() });
    let fleet = fleet_of(Some(1), &held, &NO_VERSIONS);
    let mut view = idle();
    assert_eq!(decide(&fleet, &view).reason, Reason::Starting(NEW));
    shadow(&mut view, |shadow| shadow.status.target_version = Some("1.20.1"));
    let decision = decide(&fleet, &view);
    assert_eq!(sets(write(&decision), Field::SpecVersion), Some(Value::Absent), "{decision:?}");
}

#[test]
fn a_halt_reaches_updates_before_their_reboot() {
    let halted = VersionRecord { halted: Some(Halt::default()), ..VersionRecord::default() };
    let versions = BTreeMap::from([(NEW.to_owned(), halted)]);
    let fleet = FleetFacts { versions: &versions, ..fleet() };
    let (drained, undrained) = (marker(1, true), marker(1, false));
    let at = |state, reached| updating(state, reached);
    let with = |mut view: NodeView<'static>, change: fn(&mut NodeView<'static>)| {
        change(&mut view);
        view
    };
    let granted = |view: &mut NodeView<'static>| {
        shadow(view, |shadow| shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT));
    };
    for (what, view, given_up) in [
        ("it stages", at(StagedAndPerformedUpdate, Idle), true),
        ("it has staged", at(StagedAndPerformedUpdate, StagedAndPerformedUpdate), true),
        ("it may reboot", with(at(RebootedIntoUpdate, StagedAndPerformedUpdate), granted), true),
        (
            "it has claimed its reboot",
            with(at(RebootedIntoUpdate, StagedAndPerformedUpdate), |it| {
                shadow(it, |shadow| {
                    shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
                    shadow.status.reboot_requested = Some(FIRST_BOOT);
                });
            }),
            false,
        ),
        ("it runs it", with(at(RebootedIntoUpdate, RebootedIntoUpdate), |it| rebooted(it, NEW)), false),
        ("it is watched", with(at(MonitoringUpdate, MonitoringUpdate), |it| rebooted(it, NEW)), false),
    ] {
        for marker in [None, Some(&undrained), Some(&drained)] {
            let mut view = view;
            if let Some(marker) = marker {
                marked(&mut view, marker);
            }
            let decision = decide(&fleet, &view);
            let gives_up = decision.reason == Reason::Aborting(Abort::VersionHalted);
            assert_eq!(gives_up, given_up, "{what}: {decision:?}");
            if gives_up {
                assert_eq!(sets(write(&decision), Field::SpecFailures), None, "it is no failure of the node");
                let tests = &write(&decision).tests;
                assert!(tests.iter().any(|(field, _)| *field == Field::StatusRebootRequested), "{what}");
            }
        }
    }
}
