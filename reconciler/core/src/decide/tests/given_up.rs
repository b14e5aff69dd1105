//! Updates that are given up, and what is left of them.

use super::world::*;

fn aborts(view: &NodeView<'_>) -> Option<Abort> {
    match decide(&fleet(), view).reason {
        Reason::Aborting(why) => Some(why),
        _ => None,
    }
}

#[test]
fn an_update_is_given_up_for_a_reason() {
    let failed = updating(StagedAndPerformedUpdate, ErrorReset);
    let staging = updating(StagedAndPerformedUpdate, Idle);
    let wants = |target| staging.with_shadow(|shadow| shadow.status.target_version = target);
    let says =
        |view: NodeView<'static>, problem| view.with_shadow(|it| it.status.problem = Some(problem));
    let not_in_place = says(failed, Problem::NoInPlaceUpdates);
    let late = staging.with(|view| view.time.step_overdue = true);
    let (fell_back, unclaimed) = (granted(true).rebooted(OLD), Value::Absent);
    // The spent claim is tested: a new one would win.
    let spent = Value::text(FIRST_BOOT);
    for (what, view, why, claim) in rows! {
        "failed", failed, Abort::StepFailed => &unclaimed;
        "too long", late, Abort::DeadlineExceeded => &unclaimed;
        "paused", staging.with_node(|node| node.paused = true), Abort::NodePaused => &unclaimed;
        "unlabelled", staging.with_node(|node| node.labelled = false), Abort::NotLabelled => &unclaimed;
        "another", wants(Some("1.21.0".into())), Abort::OtherTarget => &unclaimed;
        "no target", wants(None), Abort::OtherTarget => &unclaimed;
        "not in place", not_in_place, Abort::NoInPlaceUpdates => &unclaimed;
        "rebooted by itself", staging.rebooted(OLD), Abort::RebootedByItself => &unclaimed;
        "fell back", fell_back, Abort::FellBack => &spent;
        // A person may resume the version at once. But no word of an agent may hide a bad release.
        "so it said", says(fell_back, Problem::NotNextToBoot), Abort::FellBack => &spent;
    } {
        assert_eq!(aborts(&view), Some(why), "{what}");
        let decision = decide(&fleet(), &view);
        assert_eq!(next_state(&decision), Some(Idle), "{what}");
        let failures = failures_of(&decision).map(|it| (it.count, it.attempt, it.reason));
        assert_eq!(
            failures,
            why.is_failure().then(|| (1, 1, why.as_str().to_owned())),
            "{what}"
        );
        assert!(
            write(&decision)
                .tests
                .contains(&(Field::StatusRebootClaimedBootId, claim.clone())),
            "{what}"
        );
    }
}

#[test]
fn a_given_up_update_returns_its_slot() {
    let view = updating(Idle, Idle).with_node(|node| node.marker = Some(Ok(DRAINED.clone())));
    assert_eq!(allocate(&fleet(), &[view]).write, None, "still marked");
    let decision = decide(&fleet(), &view);
    assert_eq!(sets(write(&decision), Field::Marker), Some(Value::Absent));

    let view = updating(Idle, Idle).with(|view| view.time.backing_off = true);
    let freed = allocate(&fleet(), &[view]).write.unwrap();
    assert_eq!(sets(&freed, Field::Slot(SHADOW)), Some(Value::Absent));
    assert_eq!(
        sets(&freed, Field::Versions),
        None,
        "neither a success nor a corroborated failure"
    );
}

#[test]
fn a_marker_of_an_earlier_attempt_is_undone() {
    for state in [
        StagedAndPerformedUpdate,
        RebootedIntoUpdate,
        MonitoringUpdate,
        Idle,
    ] {
        let view = updating(state, state)
            .with_shadow(|shadow| shadow.spec.attempt = Some(2))
            .marked_by(&DRAINED);
        let decision = decide(&fleet(), &view);
        assert_eq!(
            sets(write(&decision), Field::Marker),
            Some(Value::Absent),
            "{state}"
        );
        assert_eq!(
            decide(&fleet(), &view.not_ready()).step,
            None,
            "{state}: not while it may be rebooting"
        );
    }
}

#[test]
fn a_silent_agent_loses_its_slot() {
    for state in [RebootedIntoUpdate, MonitoringUpdate] {
        let view = updating(state, StagedAndPerformedUpdate).rebooted(NEW);
        assert_eq!(decide(&fleet(), &view).step, None, "{state}");
        let late = view.with(|view| view.time.step_overdue = true);
        assert_eq!(aborts(&late), Some(Abort::NotConfirmed), "{state}");
        let decision = decide(&fleet(), &late);
        let mut tests = write(&decision).tests.iter();
        let is_tested = tests.any(|(field, _)| *field == Field::CurrentState);
        assert!(is_tested, "its agent may confirm it meanwhile");
        let confirmed = late
            .with_shadow(|it| it.status.current_state = Some(state))
            .with(|view| view.time.verified = false);
        if state == MonitoringUpdate {
            // Its pod may be replaced, or its image be missing.
            assert_eq!(aborts(&confirmed), Some(Abort::DeadlineExceeded));
        }
        let failed = view.with_shadow(|it| it.status.current_state = Some(ErrorReset));
        assert_eq!(aborts(&failed), None, "{state}: no report fails a version");
        let unlabelled = view.with_node(|node| node.labelled = false);
        assert_eq!(aborts(&unlabelled), Some(Abort::NotLabelled), "{state}");
    }
    let idle = updating(Idle, StagedAndPerformedUpdate);
    let late = idle.with(|view| view.time.step_overdue = true);
    // Also the slot of a shadow that was made again.
    for slots in [&*SLOT, &slot(SHADOW, "an earlier shadow", 1)] {
        let fleet = FleetFacts { slots, ..fleet() };
        assert_eq!(allocate(&fleet, &[idle]).write, None);
        assert!(allocate(&fleet, &[late]).write.is_some());
    }
}

#[test]
fn another_boot_is_put_back_first() {
    for (state, version) in [
        (StagedAndPerformedUpdate, NEW),
        (StagedAndPerformedUpdate, OLD),
        (RebootedIntoUpdate, OLD),
        (MonitoringUpdate, NEW),
    ] {
        let view = updating(state, StagedAndPerformedUpdate)
            .marked_by(&DRAINED)
            .rebooted(version);
        let decision = decide(&fleet(), &view);
        assert_eq!(
            decision.reason,
            Reason::ReturningToService,
            "{state} {version}"
        );
        assert_eq!(
            sets(write(&decision), Field::Unschedulable),
            Some(Value::Absent)
        );
    }
}

#[test]
fn silence_of_the_host_ends_what_is_not_claimed() {
    for (mut view, expected) in [
        (
            updating(StagedAndPerformedUpdate, Idle),
            Some(Abort::StepFailed),
        ),
        (staged(), Some(Abort::StepFailed)),
        (granted(false).marked_by(&DRAINED), Some(Abort::StepFailed)),
        (granted(true).marked_by(&DRAINED), None),
    ] {
        assert_eq!(aborts(&view), None, "{:?}", view.shadow);
        view.time.cannot_update = true;
        assert_eq!(aborts(&view), expected, "{:?}", view.shadow);
    }
}

/// A person has reset the machine: it is back with the update, and the pod of its agent still starts.
#[test]
fn silence_of_the_boot_before_ends_nothing() {
    for granted_for in [None, Some(FIRST_BOOT)] {
        let view = updating(RebootedIntoUpdate, StagedAndPerformedUpdate)
            .rebooted(NEW)
            .with(|view| view.time.cannot_update = true)
            .with(|view| view.agent_ready = false)
            .with_shadow(|shadow| {
                shadow.spec.reboot_granted_boot_id = granted_for.map(str::to_owned);
                shadow.status.problem = Some(Problem::HostUnreachable);
            });
        let decision = decide(&fleet(), &view);
        assert_eq!(
            (decision.reason, decision.step),
            (Reason::AgentNotReported, None),
            "{granted_for:?}"
        );
    }
}

#[test]
fn what_is_wrong_on_the_host_is_the_reason() {
    let told = |view: NodeView<'static>, problem| {
        let view = view.with_shadow(|it| {
            (it.status.problem, it.status.message) = (problem, Some("no answer".into()));
        });
        let reason = decide(&fleet(), &view).reason;
        (
            reason.as_str(),
            reason.message().ends_with(": \"no answer\""),
        )
    };
    let staging = updating(StagedAndPerformedUpdate, Idle);
    let (unclaimed, claimed) = (
        granted(false).marked_by(&DRAINED),
        granted(true).marked_by(&DRAINED),
    );
    for problem in Problem::ALL {
        // Obstacles of an idle host end when its update has begun.
        let may_be =
            problem != Problem::NoUpdateChosen && Reason::WORDS.contains(&problem.as_str());
        let wrong = may_be.then_some((problem.as_str(), true));
        // A host that goes down answers nothing.
        let of_claimed = wrong.filter(|_| problem != Problem::HostUnreachable);
        for (view, well, wrong) in [
            (staging, "Staging", wrong),
            (
                staging.with_shadow(|it| it.status.attempt = None),
                "Staging",
                wrong,
            ),
            (unclaimed, "Rebooting", wrong),
            (claimed, "Rebooting", of_claimed),
        ] {
            assert_eq!(
                told(view, Some(problem)),
                wrong.unwrap_or((well, false)),
                "{problem}"
            );
        }
    }
    assert_eq!(
        told(staging, Some(Problem::HostUnreachable)).0,
        "HostUnreachable"
    );
}

/// It runs the update, and its agent cannot ask it.
#[test]
fn a_silent_host_that_is_back_says_so() {
    let says = |problem| {
        granted(true).rebooted(NEW).with_shadow(|it| {
            (it.status.problem, it.status.message) = (Some(problem), Some("no answer".into()));
        })
    };
    let reason = |problem| decide(&fleet(), &says(problem)).reason;
    assert_eq!(
        reason(Problem::HostUnreachable),
        Reason::HostUnreachable("no answer")
    );
    assert_eq!(reason(Problem::StepFailed), Reason::AgentNotReported);
}
