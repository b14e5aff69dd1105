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

/// Idle, and this is kept as of this second.
fn kept(second: i64) -> BottlerocketShadow {
    with(shadow(State::Idle), |_, status| status.staged = Some(ahead(NEW, second)))
}

#[test]
fn what_an_attempt_staged_is_kept_when_it_is_given_up() {
    let turn =
        || with(shadow(State::StagedAndPerformedUpdate), |_, status| status.staged = Some(staged(NEW, 7)));
    check! {
        "activated: its time follows": old(is_ready(last(Activate, true, 8))), turn(), asked(Activate, 7)
            => "StatusStaged StagedAndPerformedUpdate";
        "deactivated": old(is_staged(last(Deactivate, true, 9))), given_up(8), asked(Deactivate, 8)
            => "Idle StatusStaged(ahead)";
        "a deactivate that fails does it no harm": old(is_ready(last(Deactivate, false, 9))), given_up(8), asked(Deactivate, 8)
            => "StatusStaged StepFailed \"deactivate failed with exit status 1: no route\"";
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
    let later = |memory| StepMemory { prefetch: Prefetch::Later, ..memory };
    let turn =
        || with(shadow(State::StagedAndPerformedUpdate), |_, status| status.staged = Some(ahead(NEW, 9)));
    let deactivated = || old(is_staged(last(Deactivate, true, 9)));
    for memory in [fresh(), later(fresh()), StepMemory { prefetch: Prefetch::Due, ..fresh() }] {
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
