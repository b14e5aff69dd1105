//! An update, row by row: staged, rebooted, monitored, failed.

use brupop_apply::apply;

use super::*;
use Command::{Activate, Deactivate, Prepare, Refresh};
use UpdateState::Available;

#[test]
fn staging_step_by_step() {
    let goal = || shadow(State::StagedAndPerformedUpdate);
    let behind = || {
        with(goal(), |_, status| {
            status.attempt = None;
            status.reboot_claimed_boot_id = Some("boot-0".into());
            (status.problem, status.message) = (Some(Problem::StepFailed), Some("earlier".into()));
        })
    };
    let ours = || with(goal(), |_, status| status.staged = Some(staged(NEW, 5)));
    let confirmed = || with(goal(), |_, status| status.staged = Some(staged(NEW, 7)));
    let looking = || looking(5);
    let no_attempt = |state| {
        with(shadow(state), |spec, status| {
            (spec.attempt, status.attempt) = (None, None);
            status.current_state = Some(State::StagedAndPerformedUpdate);
        })
    };
    let refused = StepMemory {
        refused: true,
        ..refreshed()
    };
    check! {
        "another operator's, staging": old(available()), no_attempt(goal().spec.state), fresh() => "wait";
        "another operator's, rebooted": host(NEW, NEXT_BOOT, Updates::Unknown), no_attempt(State::RebootedIntoUpdate), fresh()
            => "CurrentVersion StatusBootId";
        "another operator's, watched": old(available()), no_attempt(State::MonitoringUpdate), fresh() => "wait";
        "echo before the host is touched": old(available()), behind(), fresh()
            => "StatusAttempt -StatusRebootClaimedBootId -StatusProblem -StatusMessage";
        "runs it already": host(NEW, BOOT, Updates::Unknown), goal(), fresh()
            => "CurrentVersion StagedAndPerformedUpdate";
        "rebooted into it by itself": host(NEW, NEXT_BOOT, Updates::Unknown), goal(), fresh()
            => "CurrentVersion StatusBootId StagedAndPerformedUpdate";
        "look first": old(available()), goal(), fresh() => "refresh";
        "looked in an earlier attempt": old(available()), goal(), StepMemory { refreshed: Some(0), ..fresh() }
            => "refresh";
        "nobody looked since boot": old(Updates::Unknown), goal(), fresh() => "refresh";
        "busy": old(Updates::Busy), goal(), fresh() => "poll";
        "begun, no word yet": old(available()), goal(), asked(Refresh, 1) => "poll";
        "another is chosen":
            old(known(Available, Some(OTHER), None, last(Refresh, true, 1))), goal(), refreshed()
            => "TargetVersion";
        "none is chosen":
            old(known(UpdateState::Idle, None, None, last(Refresh, true, 1))), goal(), refreshed()
            => "-TargetVersion";
        "chosen": old(available()), goal(), refreshed() => "prepare";
        "refresh seen to end": old(available()), goal(), asked(Refresh, 0) => "prepare";
        "somebody's image in the way": old(is_ready(last(Activate, true, 1))), goal(), refreshed()
            => "deactivate";
        "overwritten: no longer ours": old(is_staged(last(Deactivate, true, 9))), ours(), refreshed()
            => "-StatusStaged";
        "prepared": old(is_staged(last(Prepare, true, 5))), goal(), asked(Prepare, 1) => "StatusStaged";
        "prepared, agent restarted": old(is_staged(last(Prepare, true, 5))), goal(), fresh()
            => "StatusStaged";
        "prepared and said: look again": old(is_staged(last(Prepare, true, 5))), ours(), refreshed()
            => "refresh";
        "prepared and said, agent restarted": old(is_staged(last(Prepare, true, 5))), ours(), fresh()
            => "refresh";
        "still chosen: activated": old(is_staged(last(Refresh, true, 7))), ours(), looking() => "activate";
        "still chosen, and its time said: activated": old(is_staged(last(Refresh, true, 7))), confirmed(), refreshed()
            => "activate";
        "a later prepare failed": old(is_staged(last(Prepare, false, 6))), ours(), refreshed()
            => "-StatusStaged";
        "a later prepare failed, hidden by a refresh": old(is_staged(last(Refresh, true, 7))), ours(), refreshed()
            => "-StatusStaged";
        "ready": old(is_ready(last(Activate, true, 6))), ours(), fresh() => "StagedAndPerformedUpdate";
        "ready, although a look had failed": old(is_ready(last(Activate, true, 6))), says(ours(), Problem::RefreshFailed, "no"), fresh()
            => "StagedAndPerformedUpdate -StatusProblem -StatusMessage";
        "refused for good": old(available()), goal(), refused
            => "ErrorReset StepFailed \"the host refuses the commands of the update\" CrashCount FailureTimestamp";
        "refused for good, when nothing is left to ask for": old(is_ready(last(Activate, true, 6))), ours(), refused
            => "StagedAndPerformedUpdate";
    }
}

/// A prepare may write another image than the one that it is labelled with, or none.
#[test]
fn only_an_image_still_chosen_is_activated() {
    let waiting = || holding(State::StagedAndPerformedUpdate, staged(NEW, 5));
    let dropped = || with(waiting(), |_, status| status.staged = None);
    let confirmed = || with(waiting(), |_, status| status.staged = Some(staged(NEW, 7)));
    let first = || looking(5);
    let second = || looking(7);
    let later = || asked(Refresh, 7);
    let message = "refresh failed with exit status 1: no route";
    let failed = || {
        let told = says(waiting(), Problem::RefreshFailed, message);
        with(told, |_, status| status.staged = Some(staged(NEW, 7)))
    };
    let moved = || {
        with(dropped(), |_, status| {
            status.target_version = Some(OTHER.into());
        })
    };
    check! {
        "another was published": looked(Some(OTHER), true, 7), waiting(), first()
            => "-StatusStaged TargetVersion";
        "it was withdrawn": looked(None, true, 7), waiting(), first() => "-StatusStaged -TargetVersion";
        "and said: the reconciler gives up": looked(Some(OTHER), true, 7), moved(), refreshed() => "wait";
        "chosen once more: downloaded once more": looked(Some(NEW), true, 9), dropped(), refreshed() => "prepare";
        "confirmed, and another later": looked(Some(OTHER), true, 9), confirmed(), later()
            => "StatusStaged TargetVersion";
        "the look fails: said, and no failure of the attempt": looked(Some(NEW), false, 7), waiting(), first()
            => "StatusStaged RefreshFailed \"refresh failed with exit status 1: no route\"";
        "and is repeated": looked(Some(NEW), false, 7), failed(), refreshed() => "refresh";
        "also if nothing is chosen after it": looked(None, false, 7), failed(), refreshed() => "refresh";
        "also by another process": looked(None, false, 7), failed(), fresh() => "refresh";
        "fails again": looked(None, false, 9), failed(), second() => "StatusStaged";
        "succeeds at last": looked(Some(NEW), true, 9), failed(), second() => "-StatusProblem -StatusMessage StatusStaged";
        "succeeds at last, and another is chosen": looked(Some(OTHER), true, 9), failed(), second()
            => "-StatusStaged -StatusProblem -StatusMessage TargetVersion";
    }
}

#[test]
fn a_prepare_that_wrote_another_version_is_believed() {
    let goal = || shadow(State::StagedAndPerformedUpdate);
    let ours = || with(goal(), |_, status| status.staged = Some(staged(NEW, 5)));
    let other = || old(is_staged(saying("Starting update to 1.21.0\n", 5)));
    let told = || {
        says(
            goal(),
            Problem::StepFailed,
            "prepare wrote 1.21.0, not 1.20.1",
        )
    };
    let doubts = || StepMemory {
        wrote_instead: Some(1),
        ..refreshed()
    };
    check! {
        "as it should": old(is_staged(saying("Starting update to 1.20.1\n", 5))), goal(), asked(Prepare, 1)
            => "StatusStaged";
        "another": other(), goal(), asked(Prepare, 1) => "StepFailed \"prepare wrote 1.21.0, not 1.20.1\"";
        "none": old(is_staged(saying("No update required\n", 5))), goal(), asked(Prepare, 1)
            => "StepFailed \"prepare wrote no image: it found no update\"";
        "another, and said": other(), told(), doubts() => "refresh";
        "still chosen": looked(Some(NEW), true, 7), told(), doubts()
            => "ErrorReset CrashCount FailureTimestamp";
        "still chosen, and the words are gone": looked(Some(NEW), true, 7), goal(), doubts()
            => "ErrorReset StepFailed \"prepare did not write what the host has chosen\" CrashCount FailureTimestamp";
        "no longer chosen: nothing has failed": looked(None, true, 7), told(), doubts() => "-TargetVersion";
        "in an earlier attempt": looked(Some(NEW), true, 7), goal(), StepMemory { wrote_instead: Some(0), ..refreshed() }
            => "prepare";
        "another, agent restarted": other(), goal(), fresh() => "refresh";
        "another, although it is said to be staged": other(), ours(), refreshed() => "-StatusStaged";
    }
}

#[test]
fn what_a_prepare_wrote_instead_is_held_against_the_attempt_that_asked_for_it() {
    let turn = || shadow(State::StagedAndPerformedUpdate);
    let other = old(is_staged(saying("Starting update to 1.21.0\n", 5)));
    for (says, shadow, wrote_instead) in [
        ("its own", turn(), Some(1)),
        (
            "ahead, and the turn comes",
            with(turn(), |_, status| status.attempt = None),
            None,
        ),
        ("ahead", shadow(State::Idle), None),
    ] {
        let (_, memory) = step(&other, &facts(&shadow), &asked(Prepare, 1));
        assert_eq!(memory.wrote_instead, wrote_instead, "{says}");
        assert_eq!(memory.distrusted_at, Some(time(5)), "{says}");
    }
}

#[test]
fn others_staging_and_activation_are_not_ours() {
    let goal = || shadow(State::StagedAndPerformedUpdate);
    let ours = || with(goal(), |_, status| status.staged = Some(staged(NEW, 5)));
    check! {
        "staged before the attempt": old(is_staged(last(Prepare, true, 5))), goal(), began() => "refresh";
        "so it is overwritten": old(is_staged(last(Refresh, true, 6))), goal(), refreshed() => "prepare";
        "staged after our look": old(is_staged(last(Prepare, true, 7))), goal(), refreshed() => "prepare";
        "another image, staged": old(known(UpdateState::Staged, Some(NEW), Some(OTHER), last(Prepare, true, 7))),
            goal(), refreshed() => "prepare";
        "staged over ours": old(is_staged(last(Prepare, true, 7))), ours(), refreshed() => "-StatusStaged";
        "a failed prepare over somebody's": old(is_staged(last(Prepare, false, 7))), goal(), refreshed()
            => "prepare";
        "activated before the attempt": old(is_ready(last(Activate, true, 6))), goal(), began() => "refresh";
        "staged over ours, and activated": old(known(UpdateState::Ready, Some(NEW), Some(OTHER), last(Activate, true, 9))),
            ours(), refreshed() => "deactivate";
        "ours, activated by somebody": old(is_ready(last(Activate, true, 9))), ours(), refreshed()
            => "StagedAndPerformedUpdate";
    }
}

#[test]
fn our_failed_command_ends_the_step_once() {
    for (command, host_says) in [
        (
            Refresh,
            known(UpdateState::Idle, None, None, last(Refresh, false, 2)),
        ),
        (
            Prepare,
            known(Available, Some(NEW), None, last(Prepare, false, 2)),
        ),
        (Activate, is_staged(last(Activate, false, 2))),
    ] {
        let read = shadow(State::StagedAndPerformedUpdate);
        let host = old(host_says);
        let (first, memory) = step(&host, &facts(&read), &asked(command, 1));
        let sentence = format!("StepFailed \"{command} failed with exit status 1: no route\"");
        assert_eq!(
            words(&first),
            format!("ErrorReset {sentence} CrashCount FailureTimestamp")
        );
        let Step::Report(write) = first else {
            panic!("{first:?}")
        };
        let mut stored = read.clone();
        apply(&write, &mut stored).unwrap();
        assert_eq!(memory.asked, None);
        for memory in [memory, StepMemory::default()] {
            assert_eq!(
                step(&host, &facts(&stored), &memory).0,
                Step::Wait,
                "{command:?}, {memory:?}"
            );
        }
    }
    // The same result, known before we asked, is not ours.
    let host = old(known(Available, Some(NEW), None, last(Prepare, false, 2)));
    let read = shadow(State::StagedAndPerformedUpdate);
    assert_eq!(step(&host, &facts(&read), &asked(Prepare, 2)).0, Step::Poll);
}

#[test]
fn rebooting_needs_grant_and_claim_of_this_boot() {
    let goal = |grant: Option<&str>, claim: Option<&str>| {
        with(shadow(State::RebootedIntoUpdate), |spec, status| {
            spec.reboot_granted_boot_id = grant.map(Into::into);
            status.current_state = Some(State::StagedAndPerformedUpdate);
            status.reboot_claimed_boot_id = claim.map(Into::into);
            status.staged = Some(staged(NEW, 5));
        })
    };
    let ready = || old(is_ready(last(Activate, true, 6)));
    let refused = StepMemory {
        refused: true,
        ..call_fails()
    };
    let asked_for = StepMemory {
        reboot_may_come: true,
        ..fresh()
    };
    let deactivated = || {
        let message =
            "the host would not boot 1.20.1 next; a reboot that was asked for may still come";
        says(
            goal(Some(BOOT), Some(BOOT)),
            Problem::NotNextToBoot,
            message,
        )
    };
    let worded = || {
        says(
            goal(Some(BOOT), Some(BOOT)),
            Problem::RebootRefused,
            "reboot was refused: inhibited",
        )
    };
    check! {
        "no grant": ready(), goal(None, None), fresh() => "wait";
        "a grant for another boot": ready(), goal(Some("boot-0"), None), fresh() => "wait";
        "granted": ready(), goal(Some(BOOT), None), fresh() => "StatusRebootClaimedBootId";
        "granted, claim of an earlier boot": ready(), goal(Some(BOOT), Some("boot-0")), fresh()
            => "StatusRebootClaimedBootId";
        "granted, busy": old(Updates::Busy), goal(Some(BOOT), None), fresh() => "poll";
        "granted, but deactivated by a person":
            old(is_staged(last(Deactivate, true, 7))), goal(Some(BOOT), None), fresh()
            => "ErrorReset StepFailed \"the host would not boot 1.20.1 next\" CrashCount FailureTimestamp";
        "claimed": ready(), goal(Some(BOOT), Some(BOOT)), fresh() => "reboot";
        "claimed, refused for good": ready(), goal(Some(BOOT), Some(BOOT)), refused
            => "ErrorReset StepFailed \"the host refuses to reboot\" CrashCount FailureTimestamp -StatusRebootClaimedBootId";
        "claimed, refused for good, in the host's words": ready(), worded(), refused
            => "ErrorReset StepFailed \"the host refuses to reboot: reboot was refused: inhibited\" CrashCount FailureTimestamp \
                -StatusRebootClaimedBootId";
        "claimed, busy": old(Updates::Busy), goal(Some(BOOT), Some(BOOT)), fresh() => "poll";
        "claimed, and deactivated by a person":
            old(is_staged(last(Deactivate, true, 7))), goal(Some(BOOT), Some(BOOT)), fresh()
            => "ErrorReset StepFailed \"the host would not boot 1.20.1 next\" CrashCount FailureTimestamp \
                -StatusRebootClaimedBootId";
        "claimed and asked for, and deactivated by a person":
            old(is_staged(last(Deactivate, true, 7))), goal(Some(BOOT), Some(BOOT)), asked_for
            => "NotNextToBoot \"the host would not boot 1.20.1 next; a reboot that was asked for may still come\"";
        "and said":
            old(is_staged(last(Deactivate, true, 7))), deactivated(), asked_for => "poll";
        "and activated again": ready(), deactivated(), asked_for => "-StatusProblem -StatusMessage";
        "back": host(NEW, NEXT_BOOT, Updates::Unknown), goal(Some(BOOT), Some(BOOT)), fresh()
            => "CurrentVersion StatusBootId RebootedIntoUpdate";
        "by itself": host(NEW, NEXT_BOOT, Updates::Unknown), goal(None, None), fresh()
            => "CurrentVersion StatusBootId RebootedIntoUpdate";
        "fallen back": host(OLD, NEXT_BOOT, Updates::Unknown), goal(Some(BOOT), Some(BOOT)), fresh()
            => "StatusBootId ErrorReset StepFailed \"the host came back with 1.19.4 when it rebooted\" CrashCount FailureTimestamp";
        "old version in another boot, nothing claimed":
            host(OLD, NEXT_BOOT, Updates::Unknown), goal(Some(BOOT), None), fresh()
            => "StatusBootId";
    }
}

#[test]
fn monitoring_notices_a_late_fall_back_once() {
    let goal = |state| {
        with(shadow(State::MonitoringUpdate), |_, status| {
            status.current_state = Some(state);
            status.current_version = Some(NEW.into());
        })
    };
    let failed = with(goal(State::ErrorReset), |_, status| {
        status.current_version = Some(OLD.into());
    });
    check! {
        "well": host(NEW, BOOT, Updates::Unknown), goal(State::RebootedIntoUpdate), fresh()
            => "MonitoringUpdate";
        "still well": host(NEW, BOOT, Updates::Unknown), goal(State::MonitoringUpdate), fresh() => "wait";
        "fallen back": host(OLD, NEXT_BOOT, Updates::Unknown), goal(State::MonitoringUpdate), fresh()
            => "CurrentVersion StatusBootId ErrorReset StepFailed \"the host came back with 1.19.4\" CrashCount FailureTimestamp";
        "and said": host(OLD, BOOT, Updates::Unknown), failed, fresh() => "wait";
    }
}
