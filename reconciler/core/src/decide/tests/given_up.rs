//! Updates that are given up, and what is left of them.

use std::sync::LazyLock;

use brupop_api::State::{
    self, ErrorReset, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate,
};
use brupop_api::{Field, Marker, Problem, Value};

use super::super::{Abort, Reason, node as decide, slots};
use super::world::{
    FIRST_BOOT, NEW, OLD, SHADOW, fleet, marked, marker, node, rebooted, shadow, slot, updating,
};
use super::{next_state, sets, write};
use crate::facts::{FleetFacts, NodeView};

/// A change of a node in mid-update.
type Change = fn(&mut NodeView<'static>);

fn aborts(view: &NodeView<'_>) -> Option<Abort> {
    match decide(&fleet(), view).reason {
        Reason::Aborting(why) => Some(why),
        _ => None,
    }
}

#[test]
fn another_boot_with_the_old_version_fell_back() {
    let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    shadow(&mut view, |shadow| {
        shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
        shadow.status.reboot_requested = Some(FIRST_BOOT);
    });
    rebooted(&mut view, OLD);
    assert_eq!(aborts(&view), Some(Abort::FellBack));
    let decision = decide(&fleet(), &view);
    assert_eq!(next_state(&decision), Some(Idle));
    let Some(Value::Failures(failures)) = sets(write(&decision), Field::SpecFailures) else {
        panic!("no failure")
    };
    assert_eq!((failures.count, failures.attempt, failures.reason.as_str()), (1, 1, "FellBack"));
    // The spent claim is tested: a new one would win.
    assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::text(FIRST_BOOT))));
}

#[test]
fn a_host_is_not_rebooted_again() {
    let mut view = updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate);
    rebooted(&mut view, NEW);
    let decision = decide(&fleet(), &view);
    assert_eq!(next_state(&decision), Some(RebootedIntoUpdate));
    assert_eq!(sets(write(&decision), Field::SpecRebootFromBootId), None);

    let mut view = updating(StagedAndPerformedUpdate, Idle);
    rebooted(&mut view, OLD);
    assert_eq!(aborts(&view), Some(Abort::RebootedByItself));
    let decision = decide(&fleet(), &view);
    assert!(sets(write(&decision), Field::SpecFailures).is_some(), "a host that always crashes backs off");
}

#[test]
fn an_unclaimed_update_can_be_given_up() {
    let rows: [(&str, State, Change, Abort); 6] = [
        ("failed", ErrorReset, |_| (), Abort::StepFailed),
        ("too long", Idle, |s| s.time.step_overdue = true, Abort::DeadlineExceeded),
        ("paused", Idle, |s| node(s, |n| n.paused = true), Abort::NodePaused),
        ("unlabelled", Idle, |s| node(s, |n| n.labelled = false), Abort::NotLabelled),
        (
            "other target",
            Idle,
            |s| shadow(s, |w| w.status.target_version = Some("1.21.0")),
            Abort::OtherTarget,
        ),
        ("no target", Idle, |s| shadow(s, |w| w.status.target_version = None), Abort::OtherTarget),
    ];
    for (name, reached, change, why) in rows {
        let mut view = updating(StagedAndPerformedUpdate, reached);
        change(&mut view);
        assert_eq!(aborts(&view), Some(why), "{name}");
        let decision = decide(&fleet(), &view);
        assert_eq!(next_state(&decision), Some(Idle), "{name}");
        assert_eq!(sets(write(&decision), Field::SpecFailures).is_some(), why.is_failure(), "{name}");
        assert!(write(&decision).tests.contains(&(Field::StatusRebootRequested, Value::Absent)), "{name}");
    }
}

#[test]
fn a_given_up_update_returns_its_slot() {
    let over = marker(1, true);
    let mut view = updating(Idle, Idle);
    view.node.as_mut().unwrap().marker = Some(&over);
    assert_eq!(slots(&fleet(), &[view]).write, None, "still marked");
    let decision = decide(&fleet(), &view);
    assert_eq!(sets(write(&decision), Field::Marker), Some(Value::Absent));

    node(&mut view, |node| node.marker = None);
    view.time.backing_off = true;
    let freed = slots(&fleet(), &[view]).write.unwrap();
    assert_eq!(sets(&freed, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(sets(&freed, Field::VersionRecord(NEW)), None, "neither a success nor a corroborated failure");
}

#[test]
fn a_marker_of_an_earlier_attempt_is_undone() {
    let over = marker(1, true);
    for state in [StagedAndPerformedUpdate, RebootedIntoUpdate, MonitoringUpdate, Idle] {
        let mut view = updating(state, state);
        shadow(&mut view, |shadow| shadow.spec.attempt = Some(2));
        marked(&mut view, &over);
        let decision = decide(&fleet(), &view);
        assert_eq!(sets(write(&decision), Field::Marker), Some(Value::Absent), "{state}");
        node(&mut view, |node| node.ready = false);
        assert_eq!(decide(&fleet(), &view).effect, None, "{state}: not while it may be rebooting");
    }
}

#[test]
fn a_silent_agent_loses_its_slot() {
    for state in [RebootedIntoUpdate, MonitoringUpdate] {
        let mut view = updating(state, StagedAndPerformedUpdate);
        rebooted(&mut view, NEW);
        assert_eq!(decide(&fleet(), &view).effect, None, "{state}");
        view.time.step_overdue = true;
        assert_eq!(aborts(&view), Some(Abort::DeadlineExceeded), "{state}");
        view.time.step_overdue = false;
        node(&mut view, |node| node.labelled = false);
        assert_eq!(aborts(&view), Some(Abort::NotLabelled), "{state}");
    }
    let mut idle = updating(Idle, StagedAndPerformedUpdate);
    assert_eq!(slots(&fleet(), &[idle]).write, None);
    idle.time.step_overdue = true;
    assert!(slots(&fleet(), &[idle]).write.is_some());
    // The slot of a shadow that was made again: the same.
    let earlier = slot(SHADOW, "an earlier shadow", 1);
    assert!(slots(&FleetFacts { slots: &earlier, ..fleet() }, &[idle]).write.is_some());
    idle.time.step_overdue = false;
    assert_eq!(slots(&FleetFacts { slots: &earlier, ..fleet() }, &[idle]).write, None);
}

#[test]
fn another_boot_is_put_back_first() {
    let marker = marker(1, true);
    for (state, version) in [
        (StagedAndPerformedUpdate, NEW),
        (StagedAndPerformedUpdate, OLD),
        (RebootedIntoUpdate, OLD),
        (MonitoringUpdate, NEW),
    ] {
        let mut view = updating(state, StagedAndPerformedUpdate);
        marked(&mut view, &marker);
        rebooted(&mut view, version);
        let decision = decide(&fleet(), &view);
        assert_eq!(decision.reason, Reason::ReturningToService, "{state} {version}");
        assert_eq!(sets(write(&decision), Field::Unschedulable), Some(Value::Absent));
    }
}

/// Granted, and claimed or not.
fn granted(claimed: bool) -> NodeView<'static> {
    static DRAINED: LazyLock<Marker> = LazyLock::new(|| marker(1, true));
    let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
    marked(&mut view, &DRAINED);
    shadow(&mut view, |shadow| {
        shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
        shadow.status.reboot_requested = claimed.then_some(FIRST_BOOT);
    });
    view
}

#[test]
fn silence_of_the_host_ends_what_is_not_claimed() {
    for (mut view, expected) in [
        (updating(StagedAndPerformedUpdate, Idle), Some(Abort::StepFailed)),
        (updating(StagedAndPerformedUpdate, StagedAndPerformedUpdate), Some(Abort::StepFailed)),
        (granted(false), Some(Abort::StepFailed)),
        (granted(true), None),
    ] {
        assert_eq!(aborts(&view), None, "{:?}", view.shadow);
        view.time.host_silent = true;
        assert_eq!(aborts(&view), expected, "{:?}", view.shadow);
    }
}

/// A person has reset the machine: it is back with the update, and the pod of its agent still starts.
#[test]
fn silence_of_the_boot_before_ends_nothing() {
    for granted_for in [None, Some(FIRST_BOOT)] {
        let mut view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate);
        rebooted(&mut view, NEW);
        node(&mut view, |node| node.agent_ready = false);
        shadow(&mut view, |shadow| {
            shadow.spec.reboot_from_boot_id = granted_for;
            shadow.status.problem = Some(Problem::HostUnreachable);
        });
        view.time.host_silent = true;
        let decision = decide(&fleet(), &view);
        assert_eq!((decision.reason, decision.effect), (Reason::NotReported, None), "{granted_for:?}");
    }
}

#[test]
fn what_is_wrong_on_the_host_is_the_reason() {
    let told = |mut view: NodeView<'static>, problem| {
        shadow(&mut view, |it| (it.status.problem, it.status.message) = (Some(problem), Some("no answer")));
        let reason = decide(&fleet(), &view).reason;
        let is_quoted = reason.message().ends_with(": no answer");
        (reason.as_str(), is_quoted)
    };
    for problem in Problem::ALL {
        let wrong = Reason::WORDS.contains(&problem.as_str()).then_some((problem.as_str(), true));
        let staging = told(updating(StagedAndPerformedUpdate, Idle), problem);
        assert_eq!(staging, wrong.unwrap_or(("Staging", false)), "{problem}");
        let mut not_taken_up = updating(StagedAndPerformedUpdate, Idle);
        shadow(&mut not_taken_up, |it| it.status.attempt = None);
        assert_eq!(told(not_taken_up, problem), wrong.unwrap_or(("Starting", false)), "{problem}");
        let unclaimed = told(granted(false), problem);
        assert_eq!(unclaimed, wrong.unwrap_or(("RebootGranted", false)), "{problem}");
        // A host that goes down answers nothing.
        let claimed = wrong.filter(|_| problem != Problem::HostUnreachable);
        assert_eq!(told(granted(true), problem), claimed.unwrap_or(("Rebooting", false)), "{problem}");
    }
    assert_eq!(told(updating(StagedAndPerformedUpdate, Idle), Problem::HostUnreachable).0, "HostUnreachable");
}

/// It runs the update, and its agent cannot ask it.
#[test]
fn a_silent_host_that_is_back_says_so() {
    let mut view = granted(true);
    rebooted(&mut view, NEW);
    node(&mut view, |node| (node.marker, node.unschedulable, node.tainted) = (None, false, false));
    shadow(&mut view, |it| {
        (it.status.problem, it.status.message) = (Some(Problem::HostUnreachable), Some("no answer"));
    });
    assert_eq!(decide(&fleet(), &view).reason, Reason::HostUnreachable("no answer"));
    shadow(&mut view, |it| it.status.problem = Some(Problem::StepFailed));
    assert_eq!(decide(&fleet(), &view).reason, Reason::NotReported);
}

/// A person may lift such a halt at once. But no word of an agent may hide a bad release.
#[test]
fn what_the_agent_knew_before_a_fall_back_is_told_and_counts() {
    let mut view = granted(true);
    shadow(&mut view, |shadow| shadow.status.problem = Some(Problem::NotNextToBoot));
    rebooted(&mut view, OLD);
    node(&mut view, |node| (node.marker, node.unschedulable, node.tainted) = (None, false, false));
    let decision = decide(&fleet(), &view);
    assert_eq!(decision.reason, Reason::Aborting(Abort::FellBackDeactivated));
    assert!(
        decision.reason.message().contains("not what it would boot next"),
        "{}",
        decision.reason.message()
    );
    let Some(Value::Failures(failures)) = sets(write(&decision), Field::SpecFailures) else {
        panic!("no failure")
    };
    assert!(Abort::is_corroborated(&failures.reason), "{}", failures.reason);
}

#[test]
fn an_image_without_in_place_updates_is_no_failure() {
    let mut view = updating(StagedAndPerformedUpdate, ErrorReset);
    shadow(&mut view, |shadow| shadow.status.problem = Some(Problem::NoInPlaceUpdates));
    let decision = decide(&fleet(), &view);
    assert_eq!(decision.reason, Reason::Aborting(Abort::NoInPlaceUpdates));
    assert_eq!((next_state(&decision), sets(write(&decision), Field::SpecFailures)), (Some(Idle), None));
}
