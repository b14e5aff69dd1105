//! The image of an attempt that was given up, row by row: it is kept for as long as nobody else has touched it.

use super::*;
use Command::{Activate, Deactivate, Prepare, Refresh};

/// Idle is wanted again, and this was staged as of this second.
fn given_up(second: i64) -> BottlerocketShadow {
    with(shadow(State::Idle), |_, status| {
        status.current_state = Some(State::StagedAndPerformedUpdate);
        status.staged = Some(staged(NEW, second));
    })
}

/// The same, and it could not be deactivated.
fn armed(second: i64) -> BottlerocketShadow {
    says(
        given_up(second),
        Problem::CannotDisarm,
        "1.20.1 cannot be deactivated",
    )
}

/// Idle, and this is kept as of this second.
fn kept(second: i64) -> BottlerocketShadow {
    holding(State::Idle, ahead(NEW, second))
}

#[test]
fn what_an_attempt_staged_is_kept_when_it_is_given_up() {
    let turn = || holding(State::StagedAndPerformedUpdate, staged(NEW, 7));
    check! {
        "activated: its time follows": old(is_ready(last(Activate, true, 8))), turn(), asked(Activate, 7)
            => "StatusStaged StagedAndPerformedUpdate";
        "deactivated": old(is_staged(last(Deactivate, true, 9))), given_up(8), asked(Deactivate, 8)
            => "Idle StatusStaged(ahead)";
        "a deactivate that fails does it no harm": old(is_ready(last(Deactivate, false, 9))), given_up(8), asked(Deactivate, 8)
            => "StatusStaged CannotDisarm \"1.20.1 cannot be deactivated: deactivate failed with exit status 1: no route\"";
        "it is repeated": old(is_ready(last(Deactivate, false, 9))), armed(9), fresh() => "deactivate";
        "and goes well": old(is_staged(last(Deactivate, true, 10))), armed(9), asked(Deactivate, 9)
            => "Idle StatusStaged(ahead) -StatusProblem -StatusMessage";
        "somebody else disarmed it": old(is_staged(last(Deactivate, true, 10))), armed(9), fresh()
            => "Idle -StatusStaged -StatusProblem -StatusMessage";
        "never activated": old(is_staged(last(Refresh, true, 7))), given_up(7), fresh() => "Idle StatusStaged(ahead)";
        "something ran before it was activated": old(is_ready(last(Activate, true, 8))), turn(), asked(Activate, 6)
            => "StagedAndPerformedUpdate";
        "something ran before it was deactivated": old(is_staged(last(Deactivate, true, 9))), given_up(7), asked(Deactivate, 8)
            => "Idle -StatusStaged";
        "somebody else deactivated it": old(is_staged(last(Deactivate, true, 9))), given_up(8), fresh()
            => "Idle -StatusStaged";
        "somebody prepared once more, and failed": old(is_staged(last(Prepare, false, 9))), given_up(8), fresh()
            => "Idle -StatusStaged";
        "in another boot": host(OLD, NEXT_BOOT, Updates::Unknown), kept(9), fresh() => "StatusBootId -StatusStaged";
    }
}

#[test]
fn what_is_kept_waits_like_a_download_ahead() {
    let later = |memory| StepMemory {
        prefetch: Prefetch::Later,
        ..memory
    };
    let turn = || holding(State::StagedAndPerformedUpdate, ahead(NEW, 9));
    let deactivated = || old(is_staged(last(Deactivate, true, 9)));
    for memory in [
        fresh(),
        later(fresh()),
        StepMemory {
            prefetch: Prefetch::Due,
            ..fresh()
        },
    ] {
        check! {
            "kept": deactivated(), kept(9), memory => "wait";
            "while a command runs": old(Updates::Busy), kept(9), memory => "poll";
            "as of our next look": old(is_staged(last(Refresh, true, 10))), kept(9),
                StepMemory { asked: Some(first_look(9)), ..memory } => "StatusStaged(ahead)";
        }
    }
    check! {
        "activated by a person: not deactivated": old(is_ready(last(Activate, true, 10))), kept(9), fresh()
            => "-StatusStaged";
        "its turn comes: look again": deactivated(), turn(), began() => "refresh";
        "still chosen": old(is_staged(last(Refresh, true, 11))), turn(),
            StepMemory { asked: Some(first_look(9)), ..began() } => "StatusStaged";
        "a person deactivated it once more": old(is_staged(last(Deactivate, true, 12))), turn(), began()
            => "refresh";
        "and so it is downloaded": old(is_staged(last(Refresh, true, 13))), turn(), refreshed() => "-StatusStaged";
    }
}

/// The updater needs the repository to activate an image, too. Without it a whole image stays whole.
#[test]
fn an_activate_that_fails_is_repeated_while_the_image_is_whole() {
    let turn = |second| holding(State::StagedAndPerformedUpdate, staged(NEW, second));
    let told = |second| {
        says(
            turn(second),
            Problem::StepFailed,
            "activate failed with exit status 1: no route",
        )
    };
    let fails = || StepMemory {
        activate_failed: Some(1),
        ..refreshed()
    };
    let given_up_on = || StepMemory {
        refused: true,
        ..fails()
    };
    let failed = |second| old(is_staged(last(Activate, false, second)));
    let looked = || old(is_staged(last(Refresh, true, 9)));
    check! {
        "it fails": failed(8), turn(7), asked(Activate, 7)
            => "StepFailed \"activate failed with exit status 1: no route\" StatusStaged";
        "look again": failed(8), told(8), fails() => "refresh";
        "still chosen: tried again": looked(), told(8), StepMemory { asked: Some(first_look(8)), ..fails() } => "activate";
        "tried again": looked(), told(9), fails() => "activate";
        "and goes well": old(is_ready(last(Activate, true, 10))), told(9), StepMemory { asked: Some(call(Activate, 9)), ..fails() }
            => "StatusStaged StagedAndPerformedUpdate -StatusProblem -StatusMessage";
        "for good": failed(8), told(8), given_up_on() => "ErrorReset CrashCount FailureTimestamp";
        "for good, and the last look failed": old(is_staged(last(Refresh, false, 9))),
            says(turn(9), Problem::RefreshFailed, "refresh failed with exit status 1: no route"), given_up_on()
            => "ErrorReset StepFailed CrashCount FailureTimestamp";
        "something ran before it": failed(8), turn(6), asked(Activate, 7)
            => "ErrorReset StepFailed \"activate failed with exit status 1: no route\" CrashCount FailureTimestamp";
    }
    for (command, success, expected) in [
        (Activate, false, Some(1)),
        (Activate, true, None),
        (Prepare, true, None),
        (Refresh, true, Some(1)),
    ] {
        let memory = StepMemory {
            asked: Some(call(command, 7)),
            ..fails()
        };
        let read = turn(7);
        let (_, memory) = step(
            &old(is_staged(last(command, success, 8))),
            &facts(&read),
            &memory,
        );
        assert_eq!(memory.activate_failed, expected, "{command:?} {success}");
    }
}

/// The obstacle to its activation may be in the partition table, and only another download undoes that.
#[test]
fn an_image_that_cannot_be_activated_is_not_kept() {
    let over = StepMemory {
        activate_failed: Some(1),
        ..fresh()
    };
    for last in [last(Activate, false, 8), last(Refresh, true, 8)] {
        let read = given_up(8);
        let (report, memory) = step(&old(is_staged(last)), &facts(&read), &over);
        assert_eq!(words(&report), "Idle -StatusStaged");
        assert_eq!(
            memory.distrusted_at,
            Some(time(8)),
            "it may be downloaded over"
        );
    }
    let read = given_up(7);
    let (report, memory) = step(
        &old(is_staged(last(Prepare, true, 8))),
        &facts(&read),
        &over,
    );
    assert_eq!(
        (words(&report).as_str(), memory.distrusted_at),
        ("Idle -StatusStaged", None),
        "a person's"
    );
}
