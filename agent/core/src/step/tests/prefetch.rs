//! Downloads ahead of the turn, row by row.

use brupop_api::shadow::LastFailure;

use super::*;
use Command::{Activate, Prepare, Refresh};
use UpdateState::{Available, Idle, Ready, Staged as IsStaged};

/// Said once while an image that may be a person's is in the way.
const WAITS: &str = "PrefetchBlocked \"the update is not downloaded ahead: the inactive partition holds an image that may not be this agent's; it is \
    overwritten in the node's turn\"";

fn due() -> StepMemory {
    StepMemory {
        prefetch: Prefetch::Due,
        ..fresh()
    }
}

fn later() -> StepMemory {
    StepMemory {
        prefetch: Prefetch::Later,
        ..fresh()
    }
}

/// A command of this process that began when the last one had ended at this second; no download is due.
fn begun(command: Command, before: i64) -> StepMemory {
    StepMemory {
        asked: Some(call(command, before)),
        ..later()
    }
}

fn idle() -> BottlerocketShadow {
    shadow(State::Idle)
}

/// Idle, with this image downloaded ahead at second 5.
fn waiting(version: &str) -> BottlerocketShadow {
    holding(State::Idle, ahead(version, 5))
}

fn shown(problem: Problem, sentence: &str) -> BottlerocketShadow {
    says(idle(), problem, sentence)
}

fn waits() -> BottlerocketShadow {
    shown(
        Problem::PrefetchBlocked,
        WAITS
            .trim_start_matches("PrefetchBlocked ")
            .trim_matches('"'),
    )
}

#[test]
fn an_idle_host_prefetches_and_reports_its_choice() {
    check! {
        "off": old(available()), idle(), fresh() => "wait";
        "not yet": old(available()), idle(), later() => "wait";
        "due": old(available()), idle(), due() => "prepare";
        "the news first": old(available()), with(idle(), |_, status| status.target_version = None), due()
            => "TargetVersion";
        "looking for updates first": old(available()), idle(), StepMemory { refresh_due: true, ..due() } => "refresh";
        "nobody looked since boot": old(Updates::Unknown), idle(), due() => "wait";
        "busy": old(Updates::Busy), idle(), due() => "poll";
        "begun": old(Updates::Busy), idle(), begun(Prepare, 1) => "poll";
        "done": old(is_staged(last(Prepare, true, 5))), idle(), begun(Prepare, 1) => "StatusStaged(ahead)";
        "done and reported": old(is_staged(last(Prepare, true, 5))), waiting(NEW), due() => "wait";
        "while somebody's command runs": old(Updates::Busy), waiting(NEW), due() => "poll";
        "switched off": old(is_staged(last(Prepare, true, 5))), waiting(NEW), fresh() => "wait";
        "the host has none": old(known(Idle, None, None, last(Refresh, true, 1))), idle(), due()
            => "-TargetVersion";
        "the host chooses what runs": old(known(Available, Some(OLD), None, last(Refresh, true, 1))),
            with(idle(), |_, status| status.target_version = None), due() => "wait";
        "the host could not look": old(known(Available, Some(NEW), None, last(Refresh, false, 2))),
            shown(Problem::RefreshFailed, "refresh failed with exit status 1: no route"), due() => "wait";
        "after a boot, nothing is known to be whole": host(OLD, NEXT_BOOT, Updates::Unknown), waiting(NEW), due()
            => "StatusBootId -StatusStaged";
        "after a boot, it is downloaded again": old(available()), idle(), due() => "prepare";
    }
}

#[test]
fn only_our_refresh_leaves_the_image_trusted() {
    let other = || known(IsStaged, Some(OTHER), Some(NEW), last(Refresh, true, 7));
    let target = |mut shadow: BottlerocketShadow, at| {
        let status = shadow.status.get_or_insert_default();
        status.target_version = Some(OTHER.into());
        status.staged = Some(ahead(NEW, at));
        shadow
    };
    check! {
        "our refresh": old(is_staged(last(Refresh, true, 7))), waiting(NEW), begun(Refresh, 5) => "StatusStaged(ahead)";
        "our refresh, failed": old(is_staged(last(Refresh, false, 7))), waiting(NEW), begun(Refresh, 5)
            => "StatusStaged(ahead) RefreshFailed \"refresh failed with exit status 1: no route\"";
        "our refresh, but something ran before it":
            old(is_staged(last(Refresh, true, 7))), waiting(NEW), begun(Refresh, 6) => format!("-StatusStaged {WAITS}");
        "somebody's refresh": old(is_staged(last(Refresh, true, 7))), waiting(NEW), later() => format!("-StatusStaged {WAITS}");
        "somebody's prepare": old(is_staged(last(Prepare, true, 7))), waiting(NEW), later() => format!("-StatusStaged {WAITS}");
        "somebody's prepare that failed": old(is_staged(last(Prepare, false, 7))), waiting(NEW), later()
            => format!("-StatusStaged {WAITS}");
        "another is chosen now": old(other()), waiting(NEW), begun(Refresh, 5)
            => "StatusStaged(ahead) TargetVersion";
        "and is downloaded over it": old(other()), target(idle(), 7), due() => "prepare";
        "over it, and failed": old(known(IsStaged, Some(OTHER), Some(NEW), last(Prepare, false, 8))),
            target(idle(), 7), begun(Prepare, 7)
            => "-StatusStaged PrefetchFailed \"prefetch failed with exit status 1: no route\"";
    }
}

/// Its prepare may have written what the look found, or nothing.
#[test]
fn a_prefetch_the_first_refresh_rejects_is_replaced() {
    let first = |before| StepMemory {
        asked: Some(first_look(before)),
        ..later()
    };
    let target = |mut shadow: BottlerocketShadow| {
        shadow.status.get_or_insert_default().target_version = Some(OTHER.into());
        shadow
    };
    let distrusted = |second| StepMemory {
        distrusted_at: Some(time(second)),
        ..due()
    };
    let read = waiting(NEW);
    let (report, memory) = step(&looked(Some(OTHER), true, 7), &facts(&read), &first(5));
    assert_eq!(words(&report), "-StatusStaged TargetVersion");
    assert_eq!(memory.distrusted_at, Some(time(7)));
    let (_, memory) = step(
        &looked(Some(OTHER), true, 9),
        &facts(&read),
        &StepMemory {
            distrusted_at: Some(time(7)),
            ..first(7)
        },
    );
    assert_eq!(
        memory.distrusted_at,
        Some(time(9)),
        "known past the next look of ours"
    );
    check! {
        "withdrawn": looked(None, true, 7), waiting(NEW), first(5) => "-StatusStaged -TargetVersion";
        "downloaded over": looked(Some(OTHER), true, 7), target(idle()), distrusted(7) => "prepare";
        "but not if something ran since": looked(Some(OTHER), true, 9), target(idle()), distrusted(7) => WAITS;
        "the first look failed": old(known(IsStaged, None, Some(NEW), last(Refresh, false, 7))), waiting(NEW), first(5)
            => "StatusStaged(ahead) RefreshFailed \"refresh failed with exit status 1: no route\"";
    }
}

#[test]
fn manual_staging_and_activation_are_left_alone() {
    let unmarked = || holding(State::Idle, staged(NEW, 5));
    check! {
        "staged": old(is_staged(last(Prepare, true, 5))), idle(), due() => WAITS;
        "staged another": old(known(IsStaged, Some(NEW), Some(OTHER), last(Prepare, true, 5))), idle(), due()
            => WAITS;
        "activated": old(is_ready(last(Activate, true, 6))), idle(), due() => WAITS;
        "said": old(is_ready(last(Activate, true, 6))), waits(), due() => "wait";
        "said, while a command runs": old(Updates::Busy), waits(), due() => "poll";
        "said, and nobody has looked since boot": old(Updates::Unknown), waits(), due() => "wait";
        "said, and the way is free": old(available()), waits(), due() => "-StatusProblem -StatusMessage";
        "said, and switched off": old(is_ready(last(Activate, true, 6))), waits(), fresh()
            => "-StatusProblem -StatusMessage";
        "what an attempt failed of is worth more": old(is_staged(last(Prepare, true, 5))),
            with(shown(Problem::StepFailed, "the host fell back"), |spec, _| spec.last_failure = Some(LastFailure::default())), due()
            => "wait";
        "so is what is wrong with the API": old(is_staged(last(Prepare, true, 5))),
            shown(Problem::HostUnreachable, "no answer"), StepMemory { host_api_fails: true, ..later() } => "wait";
        "activated what we downloaded": old(is_ready(last(Activate, true, 6))), waiting(NEW), due()
            => format!("-StatusStaged {WAITS}");
        "activated, although the last command was ours": old(is_ready(last(Prepare, true, 5))), waiting(NEW), due()
            => format!("-StatusStaged {WAITS}");
        "another, although the last command was ours": old(known(IsStaged, Some(NEW), Some(OTHER), last(Refresh, true, 5))),
            waiting(NEW), due() => format!("-StatusStaged {WAITS}");
        "what our attempt activated is no person's": old(is_ready(last(Activate, true, 6))), unmarked(), due()
            => "deactivate";
        "what our attempt had staged when it was given up": old(is_staged(last(Prepare, true, 5))), unmarked(), due()
            => "StatusStaged(ahead)";
        "unsaid in another state": old(known(Ready, Some(OTHER), Some(OTHER), last(Activate, true, 9))),
            with(waiting(NEW), |_, status| status.target_version = Some(OTHER.into())), due()
            => format!("-StatusStaged {WAITS}");
    }
}

/// So does the download of an agent that was killed meanwhile.
#[test]
fn a_prepare_that_names_the_choice_itself_is_used() {
    let wrote = |stderr| old(is_staged(saying(stderr, 5)));
    let chosen = "Starting update to 1.20.1\n";
    let turn = || shadow(State::StagedAndPerformedUpdate);
    let of_another = known(IsStaged, Some(OTHER), Some(NEW), saying(chosen, 5));
    for memory in [fresh(), later(), due()] {
        check! {
            "waits": wrote(chosen), idle(), memory => "StatusStaged(ahead)";
            "said": wrote(chosen), waiting(NEW), memory => "wait";
            "activated by a person: not undone": old(is_ready(last(Activate, true, 6))), idle(),
                StepMemory { prefetch: Prefetch::Off, ..memory } => "wait";
            "no longer the last command": old(is_staged(last(Refresh, true, 6))), idle(),
                StepMemory { prefetch: Prefetch::Off, ..memory } => "wait";
            "not what is chosen": old(of_another), with(idle(), |_, status| status.target_version = Some(OTHER.into())),
                StepMemory { prefetch: Prefetch::Off, ..memory } => "wait";
        }
    }
    check! {
        "in its turn": wrote(chosen), turn(), began() => "StatusStaged";
        "in its turn, and its look fails": old(is_staged(LastCommand { success: false, ..saying(chosen, 5) })), turn(), refreshed()
            => "prepare";
        "it wrote another": wrote("Starting update to 1.21.0\n"), turn(), refreshed() => "prepare";
        "it wrote none": wrote("No update required\n"), turn(), refreshed() => "prepare";
        "it does not say": wrote("done\n"), turn(), refreshed() => "prepare";
    }
}

#[test]
fn a_failed_prefetch_is_reported_once_and_withdrawn() {
    let failed = || old(known(Available, Some(NEW), None, last(Prepare, false, 2)));
    let sentence = "prefetch failed with exit status 1: no route";
    let fell_back = || {
        with(
            shown(Problem::StepFailed, "the host fell back"),
            |spec, _| {
                spec.last_failure = Some(LastFailure::default());
            },
        )
    };
    check! {
        "failed": failed(), idle(), begun(Prepare, 1)
            => "PrefetchFailed \"prefetch failed with exit status 1: no route\"";
        "it wrote another": old(is_staged(saying("Starting update to 1.21.0\n", 5))), idle(), begun(Prepare, 1)
            => "PrefetchFailed \"prefetch failed: prepare wrote 1.21.0, not 1.20.1\"";
        "it wrote another, and said: downloaded over when it is due":
            old(is_staged(saying("Starting update to 1.21.0\n", 5))),
            shown(Problem::PrefetchFailed, "prefetch failed: prepare wrote 1.21.0, not 1.20.1"), StepMemory { distrusted_at: Some(time(5)), ..due() }
            => "prepare";
        "a person's failed": failed(), idle(), later() => "wait";
        "said": failed(), shown(Problem::PrefetchFailed, sentence), later() => "wait";
        "said, after the next look": old(available()), shown(Problem::PrefetchFailed, sentence), later() => "wait";
        "tried again": failed(), shown(Problem::PrefetchFailed, sentence), due() => "prepare";
        "while it is tried again": old(Updates::Busy), shown(Problem::PrefetchFailed, sentence), begun(Prepare, 2) => "poll";
        "failed again": failed(), shown(Problem::PrefetchFailed, sentence), begun(Prepare, 1) => "wait";
        "worked": old(is_staged(last(Prepare, true, 5))), shown(Problem::PrefetchFailed, sentence), begun(Prepare, 1)
            => "StatusStaged(ahead) -StatusProblem -StatusMessage";
        "none is chosen any more": old(known(Idle, None, None, last(Refresh, true, 3))), shown(Problem::PrefetchFailed, sentence), later()
            => "-StatusProblem -StatusMessage -TargetVersion";
        "what an attempt failed of is worth more": failed(), fell_back(), begun(Prepare, 1) => "wait";
    }
}

#[test]
fn a_turn_uses_a_prefetch_still_chosen() {
    let turn = || holding(State::StagedAndPerformedUpdate, ahead(NEW, 5));
    let asked_now = |before| StepMemory {
        asked: Some(call(Refresh, before)),
        ..began()
    };
    let unsaid = || shadow(State::StagedAndPerformedUpdate);
    let echo = || with(turn(), |_, status| status.attempt = None);
    let other = |at| known(IsStaged, Some(OTHER), Some(NEW), last(Refresh, true, at));
    check! {
        "the echo keeps it": old(is_staged(last(Prepare, true, 5))), echo(), fresh() => "StatusAttempt";
        "the echo, when the download has just ended": old(is_staged(last(Prepare, true, 5))),
            with(echo(), |_, status| status.staged = None), begun(Prepare, 1) => "StatusStaged(ahead) StatusAttempt";
        "look again": old(is_staged(last(Prepare, true, 5))), turn(), began() => "refresh";
        "look again, restarted": old(is_staged(last(Prepare, true, 5))), turn(), fresh() => "refresh";
        "still chosen: said before it is activated": old(is_staged(last(Refresh, true, 7))), turn(), asked_now(5)
            => "StatusStaged";
        "another is chosen": old(other(7)), turn(), asked_now(5) => "StatusStaged(ahead) TargetVersion";
        "none is chosen": old(known(IsStaged, None, Some(NEW), last(Refresh, true, 7))), turn(), asked_now(5)
            => "StatusStaged(ahead) -TargetVersion";
        "something ran meanwhile": old(is_staged(last(Refresh, true, 7))), turn(), asked_now(6) => "-StatusStaged";
        "restarted after the look: doubtful": old(is_staged(last(Refresh, true, 7))), turn(), fresh() => "refresh";
        "and so it is downloaded": old(is_staged(last(Refresh, true, 8))), unsaid(), asked_now(7) => "prepare";
        "a later prepare failed": old(is_staged(last(Prepare, false, 6))), turn(), began() => "refresh";
        "the turn comes in mid-download": old(Updates::Busy), unsaid(), StepMemory { asked: Some(call(Prepare, 1)), ..began() }
            => "poll";
        "which then ends": old(is_staged(last(Prepare, true, 5))), unsaid(),
            StepMemory { asked: Some(call(Prepare, 1)), ..began() } => "StatusStaged";
        "activated by a person meanwhile: not known to be whole": old(is_ready(last(Activate, true, 6))), turn(), refreshed()
            => "deactivate";
    }
    // Said for this attempt's, it is activated, also by a process that is started again.
    let taken = with(turn(), |_, status| status.staged = Some(staged(NEW, 7)));
    let earlier = with(turn(), |_, status| status.staged = Some(staged(NEW, 5)));
    check! {
        "what an earlier attempt staged is not taken for a download ahead, or nobody would deactivate it":
            old(is_staged(last(Prepare, true, 5))), earlier, began() => "refresh";
        "taken": old(is_staged(last(Refresh, true, 7))), taken.clone(), refreshed() => "activate";
        "taken, restarted: it looks again": old(is_staged(last(Refresh, true, 7))), taken, fresh() => "refresh";
    }
}
