//! Idle, row by row: first words, looking for updates, undoing what was ours.

use brupop_api::crds::COUNTER_MAX;
use brupop_api::shadow::LastFailure;

use super::*;
use Command::{Activate, Deactivate, Refresh};
use Problem::{HostUnreachable, NoUpdateChosen, RefreshFailed};
use UpdateState::{Available, Ready};

#[test]
fn first_words() {
    let silent = |mut shadow: BottlerocketShadow| {
        shadow.status = None;
        shadow
    };
    let never = with(shadow(State::Idle), |spec, status| {
        (spec.attempt, status.attempt) = (None, None);
    });
    check! {
        "no status": old(Updates::Unknown), silent(shadow(State::Idle)), fresh()
            => "CurrentVersion StatusBootId Idle StatusAttempt CrashCount";
        "no status, in mid-update":
            old(Updates::Unknown), silent(shadow(State::StagedAndPerformedUpdate)), fresh()
            => "CurrentVersion StatusBootId StatusAttempt";
        "never updated": old(Updates::Unknown), never.clone(), fresh() => "wait";
        "another boot": host(OLD, NEXT_BOOT, Updates::Unknown), never.clone(), fresh() => "StatusBootId";
        "another version": host(OTHER, NEXT_BOOT, Updates::Unknown), never, fresh()
            => "CurrentVersion StatusBootId";
    }
}

#[test]
fn idle_refreshes_and_reports_what_it_finds() {
    let idle = || {
        with(shadow(State::Idle), |_, status| {
            status.target_version = None;
        })
    };
    let due = StepMemory {
        refresh_due: true,
        ..fresh()
    };
    let nothing_ended = Updates::Known(UpdateFacts {
        state: UpdateState::Idle,
        chosen: None,
        newest: None,
        staged_version: None,
        last: None,
    });
    let failed = known(UpdateState::Idle, None, None, last(Refresh, false, 2));
    let message = "refresh failed with exit status 1: no route";
    let still_failed = with(shadow(State::Idle), |spec, status| {
        spec.last_failure = Some(LastFailure::default());
        (status.problem, status.message) = (Some(RefreshFailed), Some(message.into()));
    });
    let unreachable = || says(shadow(State::Idle), HostUnreachable, "no answer");
    check! {
        "nothing due": old(Updates::Unknown), idle(), fresh() => "wait";
        "due": old(Updates::Unknown), idle(), due => "refresh";
        "due, but busy": old(Updates::Busy), idle(), due => "poll";
        "begun": old(Updates::Busy), idle(), asked(Refresh, 1) => "poll";
        "begun, no word yet": old(available()), shadow(State::Idle), asked(Refresh, 1) => "poll";
        "found": old(available()), idle(), asked(Refresh, 0) => "TargetVersion";
        "found what runs": old(known(Available, Some(OLD), None, last(Refresh, true, 1))), idle(), fresh()
            => "wait";
        "found nothing any more":
            old(known(UpdateState::Idle, None, None, last(Refresh, true, 1))), shadow(State::Idle), fresh()
            => "-TargetVersion";
        "failed: the update stays known": old(failed), shadow(State::Idle), asked(Refresh, 1)
            => "RefreshFailed \"refresh failed with exit status 1: no route\"";
        "failed, and said":
            old(failed), says(shadow(State::Idle), RefreshFailed, message), fresh() => "wait";
        "the next one runs": old(Updates::Busy), says(shadow(State::Idle), RefreshFailed, message), asked(Refresh, 2)
            => "poll";
        "the next one runs for long": old(Updates::Busy), says(shadow(State::Idle), RefreshFailed, message),
            StepMemory { busy_for_long: true, ..asked(Refresh, 2) } => "poll";
        "the next one fails, too": old(known(UpdateState::Idle, None, None, last(Refresh, false, 3))),
            says(shadow(State::Idle), RefreshFailed, message), asked(Refresh, 2) => "wait";
        "failed, but the API is worse: one of the two is said, not both in turn":
            old(failed), unreachable(), call_fails() => "wait";
        "failed, and the API is well again: in one write": old(failed), unreachable(), fresh()
            => "RefreshFailed \"refresh failed with exit status 1: no route\"";
        "lost, and the API is well again: in one write": old(available()), unreachable(),
            StepMemory { refresh_lost: true, ..fresh() }
            => "RefreshFailed \"refresh failed: the host does not say how it ended\"";
        "lost, and the next one runs": old(Updates::Busy), still_failed.clone(),
            StepMemory { refresh_lost: true, busy_for_long: true, ..asked(Refresh, 1) }
            => "\"refresh failed: the host does not say how it ended\"";
        "lost": old(available()), shadow(State::Idle), StepMemory { refresh_lost: true, ..fresh() }
            => "RefreshFailed \"refresh failed: the host does not say how it ended\"";
        "lost, and the first since boot": old(Updates::Unknown), shadow(State::Idle), StepMemory { refresh_lost: true, ..fresh() }
            => "RefreshFailed \"refresh failed: the host does not say how it ended\"";
        "lost, and the next one works": old(available()), still_failed.clone(),
            StepMemory { refresh_lost: true, ..asked(Refresh, 0) } => "-StatusProblem -StatusMessage";
        "what is wrong with the API stays until a call comes off": old(available()), unreachable(), call_fails()
            => "wait";
        "and is taken back then": old(available()), unreachable(), fresh() => "-StatusProblem -StatusMessage";
        "also while a command runs": old(Updates::Busy), unreachable(), fresh() => "-StatusProblem -StatusMessage";
        "what an earlier agent said without a word": old(available()),
            with(shadow(State::Idle), |_, status| status.message = Some(message.into())), fresh() => "-StatusMessage";
        "works again": old(available()), still_failed, fresh() => "-StatusProblem -StatusMessage";
        "the first command since boot was killed": old(nothing_ended), shadow(State::Idle), fresh() => "wait";
        "runs what was wanted": host(NEW, NEXT_BOOT, Updates::Unknown), shadow(State::Idle), fresh()
            => "CurrentVersion StatusBootId -TargetVersion";
    }
}

#[test]
fn a_refresh_that_begins_notes_what_ended_before_it() {
    let due = StepMemory {
        refresh_due: true,
        ..refreshed()
    };
    let since_boot = BegunCommand {
        before: None,
        ..first_look(0)
    };
    let prepared = is_staged(last(Command::Prepare, true, 5));
    let idle = shadow(State::Idle);
    for (updates, asked) in [
        (Updates::Unknown, since_boot),
        (available(), call(Refresh, 1)),
        (prepared, first_look(5)),
    ] {
        let (step, memory) = step(&old(updates), &facts(&idle), &due);
        assert_eq!(words(&step), "refresh");
        assert_eq!((memory.asked, memory.refresh_due), (Some(asked), false));
    }
    let turn = shadow(State::StagedAndPerformedUpdate);
    let (step, memory) = step(&old(available()), &facts(&turn), &due);
    assert!(words(&step) == "prepare" && memory.refresh_due);
}

#[test]
fn idle_reports_what_prevents_an_update() {
    let idle = || {
        with(shadow(State::Idle), |_, status| {
            status.target_version = None;
        })
    };
    let saying = |problem, sentence: &str| says(idle(), problem, sentence);
    let held = |asked| StepMemory {
        asked,
        busy_for_long: true,
        ..fresh()
    };
    let ahead = |asked| StepMemory {
        prefetch: Prefetch::Later,
        ..held(asked)
    };
    let named = "the host does not choose 1.20.1, which its repository has: settings.updates.version-lock may hold it \
        back, or the host cannot read settings.updates";
    let ours = "refresh failed: it has not ended for more than 10 minutes";
    let theirs =
        "refresh failed: another update command has held the host's lock for more than 10 minutes";
    check! {
        "available, not chosen": old(unchosen(NEW)), idle(), fresh() => format!("NoUpdateChosen \"{named}\"");
        "available, not chosen, after an attempt that failed": old(unchosen(NEW)),
            with(idle(), |spec, _| spec.last_failure = Some(LastFailure::default())), fresh()
            => format!("NoUpdateChosen \"{named}\"");
        "available, not chosen, and what an attempt failed of is over": old(unchosen(NEW)),
            saying(Problem::StepFailed, "the host fell back"), fresh()
            => format!("NoUpdateChosen \"{named}\"");
        "locked after an attempt that failed, and said": old(unchosen(NEW)),
            with(saying(Problem::StepFailed, "prepare failed"), |spec, _| spec.last_failure = Some(LastFailure::default())),
            fresh() => format!("NoUpdateChosen \"{named}\"");
        "and said": old(unchosen(NEW)), saying(NoUpdateChosen, named), fresh() => "wait";
        "and said, in the next look": old(Updates::Busy), saying(NoUpdateChosen, named), asked(Refresh, 1) => "poll";
        "chosen at last": old(available()), saying(NoUpdateChosen, named), fresh() => "-StatusProblem -StatusMessage TargetVersion";
        "what runs is no update": old(unchosen(OLD)), idle(), fresh() => "wait";
        "what is older is no update": host(NEW, BOOT, unchosen(OLD)), idle(), fresh() => "CurrentVersion";
        "the API is worse": old(unchosen(NEW)), saying(HostUnreachable, "no answer"), call_fails() => "wait";
        "busy": old(Updates::Busy), idle(), fresh() => "poll";
        "busy for long, with our refresh": old(Updates::Busy), idle(), held(Some(call(Refresh, 1)))
            => format!("RefreshFailed \"{ours}\"");
        "busy for long, with somebody's command": old(Updates::Busy), idle(), held(None)
            => format!("RefreshFailed \"{theirs}\"");
        "and said": old(Updates::Busy), saying(RefreshFailed, theirs), held(None) => "poll";
        "and over": old(unchosen(OLD)), saying(RefreshFailed, theirs), fresh() => "-StatusProblem -StatusMessage";
        "a download ahead of its turn": old(Updates::Busy), idle(), ahead(Some(call(Command::Prepare, 1))) => "poll";
        "perhaps one of an earlier process": old(Updates::Busy), idle(), ahead(None) => "poll";
    }
}

#[test]
fn idle_undoes_what_we_activated_and_nothing_else() {
    let ours = || {
        with(shadow(State::Idle), |_, status| {
            status.current_state = Some(State::StagedAndPerformedUpdate);
            status.staged = Some(staged(NEW, 5));
        })
    };
    let theirs = || {
        with(shadow(State::Idle), |_, status| {
            status.current_state = Some(State::StagedAndPerformedUpdate);
        })
    };
    let other = known(Ready, Some(OTHER), Some(OTHER), last(Activate, true, 9));
    check! {
        "ours": old(is_ready(last(Activate, true, 6))), ours(), fresh() => "deactivate";
        "ours, but busy": old(Updates::Busy), ours(), fresh() => "poll";
        "ours, being deactivated": old(Updates::Busy), ours(), asked(Deactivate, 6) => "poll";
        "ours, to be activated yet": old(is_staged(last(Refresh, true, 7))), ours(), asked(Activate, 7) => "poll";
        "ours, right after its prepare": old(is_ready(last(Command::Prepare, true, 5))), ours(), fresh() => "deactivate";
        "prepared once more by a person": old(is_ready(last(Command::Prepare, true, 6))), ours(), fresh()
            => "Idle -StatusStaged";
        "deactivated": old(is_staged(last(Deactivate, true, 7))), ours(), asked(Deactivate, 6)
            => "Idle -StatusStaged";
        "deactivation fails": old(is_ready(last(Deactivate, false, 7))), ours(), asked(Deactivate, 6)
            => "CannotDisarm \"1.20.1 cannot be deactivated: deactivate failed with exit status 1: no route\"";
        "a person's": old(is_ready(last(Activate, true, 6))), theirs(), fresh() => "Idle";
        "a person's, over ours": old(other), ours(), fresh() => "Idle -StatusStaged TargetVersion";
        "ours, and it runs": host(NEW, NEXT_BOOT, Updates::Unknown), ours(), fresh()
            => "CurrentVersion StatusBootId Idle -StatusStaged -TargetVersion";
    }
}

#[test]
fn idle_after_success_and_after_failure() {
    let crashed = |failures: Option<LastFailure>| {
        with(shadow(State::Idle), |spec, status| {
            spec.last_failure = failures;
            status.current_state = Some(State::ErrorReset);
            status.crash_count = Some(2);
            status.state_transition_failure_timestamp = Some(NOW.into());
            (status.problem, status.message) =
                (Some(Problem::StepFailed), Some("prepare failed".into()));
            status.reboot_claimed_boot_id = Some(BOOT.into());
        })
    };
    check! {
        "success": old(Updates::Unknown), crashed(None), fresh()
            => "Idle -StatusRebootClaimedBootId CrashCount -FailureTimestamp -StatusProblem -StatusMessage";
        "failure": old(Updates::Unknown), crashed(Some(LastFailure::default())), fresh()
            => "Idle -StatusRebootClaimedBootId";
    }
}

#[test]
fn idle_reports_once_that_the_host_fell_back() {
    let given_up = |attempt, claim: &str, state| {
        with(shadow(State::Idle), |spec, status| {
            spec.last_failure = Some(LastFailure {
                count: 1,
                attempt,
                ..LastFailure::default()
            });
            status.current_state = Some(state);
            status.reboot_claimed_boot_id = Some(claim.into());
        })
    };
    let staged = State::StagedAndPerformedUpdate;
    let fallen = host(OLD, NEXT_BOOT, Updates::Unknown);
    check! {
        "not yet said": fallen, given_up(1, BOOT, staged), fresh()
            => "StatusBootId StepFailed \"the host came back with 1.19.4 when it rebooted\" CrashCount FailureTimestamp \
                Idle -StatusRebootClaimedBootId";
        "after more failures than can be counted": fallen,
            with(given_up(1, BOOT, staged), |_, status| status.crash_count = Some(COUNTER_MAX)), fresh()
            => "StatusBootId StepFailed \"the host came back with 1.19.4 when it rebooted\" FailureTimestamp \
                Idle -StatusRebootClaimedBootId";
        "said": fallen, given_up(1, BOOT, State::ErrorReset), fresh()
            => "StatusBootId Idle -StatusRebootClaimedBootId";
        "given up before the reboot": host(OLD, BOOT, Updates::Unknown), given_up(1, BOOT, staged), fresh()
            => "Idle -StatusRebootClaimedBootId";
        "in the new version": host(NEW, NEXT_BOOT, Updates::Unknown), given_up(1, BOOT, staged), fresh()
            => "CurrentVersion StatusBootId Idle -StatusRebootClaimedBootId -TargetVersion";
        "an earlier attempt failed": fallen, given_up(0, BOOT, staged), fresh()
            => "StatusBootId Idle -StatusRebootClaimedBootId";
    }
}
