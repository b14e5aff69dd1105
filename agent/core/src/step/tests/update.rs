//! An update, row by row: staged, rebooted, monitored, failed.

use brupop_api::printable::is_printable;
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
            status.reboot_requested = Some("boot-0".into());
            (status.problem, status.message) = (Some(Problem::StepFailed), Some("earlier".into()));
        })
    };
    let ours = || with(goal(), |_, status| status.staged = Some(staged(NEW, 5)));
    let confirmed = || with(goal(), |_, status| status.staged = Some(staged(NEW, 7)));
    let looking = || StepMemory { asked: Some(first_look(5)), ..refreshed() };
    let no_attempt = || with(goal(), |spec, status| (spec.attempt, status.attempt) = (None, None));
    let refused = StepMemory { refused: true, ..refreshed() };
    check! {
        "upstream's, without an attempt": old(available()), no_attempt(), fresh() => "wait";
        "echo before the host is touched": old(available()), behind(), fresh()
            => "StatusAttempt -StatusRebootRequested -StatusProblem -StatusMessage";
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
        "still chosen: said": old(is_staged(last(Refresh, true, 7))), ours(), looking() => "StatusStaged";
        "still chosen: activated": old(is_staged(last(Refresh, true, 7))), confirmed(), refreshed()
            => "activate";
        "a later prepare failed": old(is_staged(last(Prepare, false, 6))), ours(), refreshed()
            => "-StatusStaged";
        "a later prepare failed, hidden by a refresh": old(is_staged(last(Refresh, true, 7))), ours(), refreshed()
            => "-StatusStaged";
        "ready": old(is_ready(last(Activate, true, 6))), ours(), fresh() => "StagedAndPerformedUpdate";
        "refused for good": old(available()), goal(), refused
            => "ErrorReset StepFailed \"the host refuses the commands of the update\" CrashCount FailureTimestamp";
        "refused for good, when nothing is left to ask for": old(is_ready(last(Activate, true, 6))), ours(), refused
            => "StagedAndPerformedUpdate";
    }
}

#[test]
fn who_reports_an_attempt_has_begun_it() {
    let turn = || shadow(State::StagedAndPerformedUpdate);
    let unsaid = |shadow| with(shadow, |_, status| status.attempt = None);
    for (shadow, expected) in [
        (unsaid(turn()), ("StatusAttempt", Some(1))),
        (with(turn(), |_, status| status.boot_id = None), ("StatusBootId", None)),
        (unsaid(shadow(State::Idle)), ("StatusAttempt", None)),
    ] {
        let (step, memory) = step(&old(available()), &facts(&shadow), &fresh());
        assert_eq!((words(&step).as_str(), memory.began), expected);
    }
}

/// A prepare may write another image than the one that it is labelled with, or none.
#[test]
fn only_an_image_still_chosen_is_activated() {
    let waiting =
        || with(shadow(State::StagedAndPerformedUpdate), |_, status| status.staged = Some(staged(NEW, 5)));
    let dropped = || with(waiting(), |_, status| status.staged = None);
    let confirmed = || with(waiting(), |_, status| status.staged = Some(staged(NEW, 7)));
    let first = || StepMemory { asked: Some(first_look(5)), ..refreshed() };
    let second = || StepMemory { asked: Some(first_look(7)), ..refreshed() };
    let later = || asked(Refresh, 7);
    let chooses = |chosen, second| known(UpdateState::Staged, chosen, Some(NEW), last(Refresh, true, second));
    let fails = |chosen, second| known(UpdateState::Staged, chosen, Some(NEW), last(Refresh, false, second));
    let message = "refresh failed with exit status 1: no route";
    let failed = || {
        let told = says(waiting(), Problem::RefreshFailed, message);
        with(told, |_, status| status.staged = Some(staged(NEW, 7)))
    };
    let moved = || with(dropped(), |_, status| status.target_version = Some(OTHER.into()));
    check! {
        "another was published": old(chooses(Some(OTHER), 7)), waiting(), first()
            => "-StatusStaged TargetVersion";
        "it was withdrawn": old(chooses(None, 7)), waiting(), first() => "-StatusStaged -TargetVersion";
        "and said: the reconciler gives up": old(chooses(Some(OTHER), 7)), moved(), refreshed() => "wait";
        "chosen once more: downloaded once more": old(chooses(Some(NEW), 9)), dropped(), refreshed() => "prepare";
        "confirmed, and another later": old(chooses(Some(OTHER), 9)), confirmed(), later()
            => "StatusStaged TargetVersion";
        "the look fails: said, and no failure of the attempt": old(fails(Some(NEW), 7)), waiting(), first()
            => "StatusStaged RefreshFailed \"refresh failed with exit status 1: no route\"";
        "and is repeated": old(fails(Some(NEW), 7)), failed(), refreshed() => "refresh";
        "also if nothing is chosen after it": old(fails(None, 7)), failed(), refreshed() => "refresh";
        "also by another process": old(fails(None, 7)), failed(), fresh() => "refresh";
        "fails again": old(fails(None, 9)), failed(), second() => "StatusStaged";
        "succeeds at last": old(chooses(Some(NEW), 9)), failed(), second() => "-StatusProblem -StatusMessage StatusStaged";
        "succeeds at last, and another is chosen": old(chooses(Some(OTHER), 9)), failed(), second()
            => "-StatusStaged -StatusProblem -StatusMessage TargetVersion";
    }
}

#[test]
fn a_prepare_that_wrote_another_version_is_believed() {
    let goal = || shadow(State::StagedAndPerformedUpdate);
    let ours = || with(goal(), |_, status| status.staged = Some(staged(NEW, 5)));
    let other = || old(is_staged(saying("Starting update to 1.21.0\n", 5)));
    let told = || says(goal(), Problem::StepFailed, "prepare wrote 1.21.0, not 1.20.1");
    let doubts = || StepMemory { wrote_instead: Some(1), ..refreshed() };
    let looked = |chosen| old(known(UpdateState::Staged, chosen, Some(NEW), last(Refresh, true, 7)));
    check! {
        "as it should": old(is_staged(saying("Starting update to 1.20.1\n", 5))), goal(), asked(Prepare, 1)
            => "StatusStaged";
        "another": other(), goal(), asked(Prepare, 1) => "StepFailed \"prepare wrote 1.21.0, not 1.20.1\"";
        "none": old(is_staged(saying("No update required\n", 5))), goal(), asked(Prepare, 1)
            => "StepFailed \"prepare wrote no image: it found no update\"";
        "another, and said": other(), told(), doubts() => "refresh";
        "still chosen": looked(Some(NEW)), told(), doubts()
            => "ErrorReset CrashCount FailureTimestamp";
        "still chosen, and the words are gone": looked(Some(NEW)), goal(), doubts()
            => "ErrorReset StepFailed \"prepare did not write what the host has chosen\" CrashCount FailureTimestamp";
        "no longer chosen: nothing has failed": looked(None), told(), doubts() => "-TargetVersion";
        "in an earlier attempt": looked(Some(NEW)), goal(), StepMemory { wrote_instead: Some(0), ..refreshed() }
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
        ("ahead, and the turn comes", with(turn(), |_, status| status.attempt = None), None),
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
        (Refresh, known(UpdateState::Idle, None, None, last(Refresh, false, 2))),
        (Prepare, known(Available, Some(NEW), None, last(Prepare, false, 2))),
        (Activate, is_staged(last(Activate, false, 2))),
    ] {
        let read = shadow(State::StagedAndPerformedUpdate);
        let host = old(host_says);
        let (first, memory) = step(&host, &facts(&read), &asked(command, 1));
        let sentence = format!("StepFailed \"{} failed with exit status 1: no route\"", command.name());
        assert_eq!(words(&first), format!("ErrorReset {sentence} CrashCount FailureTimestamp"));
        let Step::Report(write) = first else { panic!("{first:?}") };
        let mut stored = read.clone();
        apply(&write, &mut stored).unwrap();
        assert_eq!(memory.asked, None);
        for memory in [memory, StepMemory::default()] {
            assert_eq!(step(&host, &facts(&stored), &memory).0, Step::Wait, "{command:?}, {memory:?}");
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
            spec.reboot_from_boot_id = grant.map(Into::into);
            status.current_state = Some(State::StagedAndPerformedUpdate);
            status.reboot_requested = claim.map(Into::into);
            status.staged = Some(staged(NEW, 5));
        })
    };
    let ready = || old(is_ready(last(Activate, true, 6)));
    let refused = StepMemory { refused: true, ..call_fails() };
    let asked_for = StepMemory { reboot_may_come: true, ..fresh() };
    let deactivated = || {
        let message =
            "1.20.1 is not what the host would boot next; a reboot that was asked for may still come";
        says(goal(Some(BOOT), Some(BOOT)), Problem::NotNextToBoot, message)
    };
    let worded =
        || says(goal(Some(BOOT), Some(BOOT)), Problem::RebootRefused, "reboot was refused: inhibited");
    check! {
        "no grant": ready(), goal(None, None), fresh() => "wait";
        "a grant for another boot": ready(), goal(Some("boot-0"), None), fresh() => "wait";
        "granted": ready(), goal(Some(BOOT), None), fresh() => "StatusRebootRequested";
        "granted, claim of an earlier boot": ready(), goal(Some(BOOT), Some("boot-0")), fresh()
            => "StatusRebootRequested";
        "granted, busy": old(Updates::Busy), goal(Some(BOOT), None), fresh() => "poll";
        "granted, but deactivated by a person":
            old(is_staged(last(Deactivate, true, 7))), goal(Some(BOOT), None), fresh()
            => "ErrorReset StepFailed \"1.20.1 is not what the host would boot next\" CrashCount FailureTimestamp";
        "claimed": ready(), goal(Some(BOOT), Some(BOOT)), fresh() => "reboot";
        "claimed, refused for good": ready(), goal(Some(BOOT), Some(BOOT)), refused
            => "ErrorReset StepFailed \"the host refuses to reboot\" CrashCount FailureTimestamp -StatusRebootRequested";
        "claimed, refused for good, in the host's words": ready(), worded(), refused
            => "ErrorReset StepFailed \"the host refuses to reboot: reboot was refused: inhibited\" CrashCount FailureTimestamp \
                -StatusRebootRequested";
        "claimed, busy": old(Updates::Busy), goal(Some(BOOT), Some(BOOT)), fresh() => "poll";
        "claimed, and deactivated by a person":
            old(is_staged(last(Deactivate, true, 7))), goal(Some(BOOT), Some(BOOT)), fresh()
            => "ErrorReset StepFailed \"1.20.1 is not what the host would boot next\" CrashCount FailureTimestamp \
                -StatusRebootRequested";
        "claimed and asked for, and deactivated by a person":
            old(is_staged(last(Deactivate, true, 7))), goal(Some(BOOT), Some(BOOT)), asked_for
            => "NotNextToBoot \"1.20.1 is not what the host would boot next; a reboot that was asked for may still come\"";
        "and said":
            old(is_staged(last(Deactivate, true, 7))), deactivated(), asked_for => "poll";
        "and activated again": ready(), deactivated(), asked_for => "-StatusProblem -StatusMessage";
        "back": host(NEW, NEXT_BOOT, Updates::Unknown), goal(Some(BOOT), Some(BOOT)), fresh()
            => "CurrentVersion StatusBootId RebootedIntoUpdate";
        "by itself": host(NEW, NEXT_BOOT, Updates::Unknown), goal(None, None), fresh()
            => "CurrentVersion StatusBootId RebootedIntoUpdate";
        "fallen back": host(OLD, NEXT_BOOT, Updates::Unknown), goal(Some(BOOT), Some(BOOT)), fresh()
            => "StatusBootId ErrorReset StepFailed \"the host fell back to 1.19.4 when it rebooted\" CrashCount FailureTimestamp";
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
    let failed = with(goal(State::ErrorReset), |_, status| status.current_version = Some(OLD.into()));
    check! {
        "well": host(NEW, BOOT, Updates::Unknown), goal(State::RebootedIntoUpdate), fresh()
            => "MonitoringUpdate";
        "still well": host(NEW, BOOT, Updates::Unknown), goal(State::MonitoringUpdate), fresh() => "wait";
        "fallen back": host(OLD, NEXT_BOOT, Updates::Unknown), goal(State::MonitoringUpdate), fresh()
            => "CurrentVersion StatusBootId ErrorReset StepFailed \"the host fell back to 1.19.4\" CrashCount FailureTimestamp";
        "and said": host(OLD, BOOT, Updates::Unknown), failed, fresh() => "wait";
    }
}

#[test]
fn upstreams_image_is_adopted_if_next_to_boot() {
    let left = |wanted, reached| {
        with(shadow(wanted), |_, status| {
            status.current_state = Some(reached);
            status.attempt = None;
        })
    };
    let staged = || left(State::StagedAndPerformedUpdate, State::StagedAndPerformedUpdate);
    let about_to_reboot = || left(State::RebootedIntoUpdate, State::StagedAndPerformedUpdate);
    let unseen = || with(about_to_reboot(), |spec, _| spec.attempt = None);
    let adopted = "StatusStaged StatusAttempt";
    check! {
        "not seen by our reconciler yet": old(is_ready(last(Activate, true, 6))), unseen(), fresh() => "wait";
        "activated": old(is_ready(last(Activate, true, 6))), staged(), fresh() => adopted;
        "busy": old(Updates::Busy), staged(), fresh() => "poll";
        "not activated any more": old(Updates::Unknown), staged(), fresh()
            => "ErrorReset StatusAttempt StepFailed \"1.20.1 is not what the host would boot next\" CrashCount FailureTimestamp";
        "about to reboot": old(is_ready(last(Activate, true, 6))), about_to_reboot(), fresh() => adopted;
        "about to reboot, busy": old(Updates::Busy), about_to_reboot(), fresh() => "poll";
        "about to reboot into nothing": old(is_staged(last(Prepare, true, 6))), about_to_reboot(), fresh()
            => "ErrorReset StatusAttempt StepFailed \"1.20.1 is not what the host would boot next\" CrashCount FailureTimestamp";
        "rebooted": host(NEW, NEXT_BOOT, Updates::Unknown), about_to_reboot(), fresh()
            => "CurrentVersion StatusBootId RebootedIntoUpdate StatusAttempt";
        "rebooted, and said": host(NEW, NEXT_BOOT, Updates::Unknown),
            left(State::RebootedIntoUpdate, State::RebootedIntoUpdate), fresh()
            => "CurrentVersion StatusBootId StatusAttempt";
    }
}

/// Its version was halted, or the node paused, before our agent was there.
#[test]
fn upstreams_image_is_deactivated_if_its_update_is_given_up() {
    let reporting = |attempt, reached, image| {
        with(shadow(State::Idle), |_, status| {
            (status.attempt, status.current_state, status.staged) = (attempt, Some(reached), image);
        })
    };
    let given_up = |image| reporting(None, State::StagedAndPerformedUpdate, image);
    let unseen = with(given_up(None), |spec, _| spec.attempt = None);
    let armed = || old(is_ready(last(Activate, true, 6)));
    let other = known(UpdateState::Ready, Some(OTHER), Some(OTHER), last(Activate, true, 6));
    let disarmed = is_staged(last(Deactivate, true, 7));
    check! {
        "activated": armed(), given_up(None), fresh() => "StatusStaged";
        "and said": armed(), given_up(Some(staged(NEW, 6))), fresh() => "deactivate";
        "deactivated": old(disarmed), given_up(Some(staged(NEW, 6))), asked(Deactivate, 6)
            => "Idle StatusAttempt StatusStaged(ahead)";
        "busy": old(Updates::Busy), given_up(None), fresh() => "poll";
        "another boot": host(OLD, NEXT_BOOT, Updates::Unknown), given_up(None), fresh() => "StatusBootId Idle StatusAttempt";
        "it runs": host(NEW, NEXT_BOOT, Updates::Unknown), given_up(None), fresh()
            => "CurrentVersion StatusBootId Idle StatusAttempt -TargetVersion";
        "not activated any more": old(disarmed), given_up(None), fresh() => "Idle StatusAttempt";
        "a person's, of another version": old(other), given_up(None), fresh() => "Idle StatusAttempt TargetVersion";
        "a person's, as upstream says Idle": armed(), reporting(None, State::Idle, None), fresh() => "StatusAttempt";
        "a person's, as our agent had begun": armed(), reporting(Some(1), State::StagedAndPerformedUpdate, None), fresh()
            => "Idle";
        "a person's, as our reconciler gave it no attempt": armed(), unseen, fresh() => "Idle";
    }
}

/// What the shadow says after a prepare that failed with this on stderr.
fn message_after(stderr: &str) -> String {
    let ended = LastCommand { stderr, ..last(Prepare, false, 2) };
    let host = HostFacts {
        boot_id: BOOT,
        version: OLD,
        updates: known(Available, Some(NEW), None, ended),
        now: NOW,
    };
    let mut shadow = shadow(State::StagedAndPerformedUpdate);
    let read = shadow.clone();
    let (Step::Report(write), memory) = step(&host, &facts(&read), &asked(Prepare, 1)) else {
        panic!("a failure is reported")
    };
    apply(&write, &mut shadow).unwrap();
    let (next, _) = step(&host, &facts(&shadow), &memory);
    assert_eq!(words(&next), "wait", "it is said once");
    shadow.status.unwrap().message.unwrap()
}

#[test]
fn whatever_the_host_says_can_be_reported() {
    let begins = "prepare failed with exit status 1: ";
    for (stderr, expected) in [
        (" Failed to update:\n  no space\r\n\t(os error 28)\n", "Failed to update: no space (os error 28)"),
        ("\0\u{1b}[2J\u{7}\u{9b}", "\\u{0}\\u{1b}[2J\\u{7}\\u{9b}"),
        ("a\u{202e}b\u{2066}\u{200b}\u{feff}", "a\\u{202e}b\\u{2066}\\u{200b}\\u{feff}"),
        ("a\u{2028}b\u{85}c", "a b c"),
    ] {
        assert_eq!(message_after(stderr), format!("{begins}{expected}"));
    }
    for long in ["é", "\0", "\u{1b}[31mno \n", "x"].map(|word| word.repeat(400_000)) {
        let message = message_after(&long);
        assert!((1010..=1024).contains(&message.len()) && is_printable(&message), "{message:?}");
        assert!(message.ends_with('…'), "{message:?}");
    }
}

#[test]
fn trouble_with_the_host_is_said_once() {
    let reported = |shadow: &BottlerocketShadow, reason: &str| {
        let write = host_trouble(&facts(shadow), Problem::HostUnreachable, reason, NOW);
        write.map(|write| words(&Step::Report(write)))
    };
    assert_eq!(reported(&shadow(State::Idle), "no socket").as_deref(), Some("HostUnreachable \"no socket\""));
    let standing = says(shadow(State::Idle), Problem::HostUnreachable, "no socket");
    assert_eq!(reported(&standing, "no socket"), None);
    assert_eq!(reported(&standing, "half an answer").as_deref(), Some("\"half an answer\""));
}

/// An agent of the release before has said it without a time.
#[test]
fn a_problem_without_a_time_gets_one() {
    let told = says(shadow(State::StagedAndPerformedUpdate), Problem::HostUnreachable, "no socket");
    let told = with(told, |_, status| status.problem_since = None);
    let write = host_trouble(&facts(&told), Problem::HostUnreachable, "no socket", NOW);
    assert_eq!(write.map(|write| write.sets), Some(vec![(Field::StatusProblemSince, Value::text(NOW))]));
}
