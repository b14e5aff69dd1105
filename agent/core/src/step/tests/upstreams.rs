//! What upstream's agent activated, row by row: taken over, or undone.

use super::*;
use Command::{Activate, Deactivate, Prepare};

#[test]
fn upstreams_image_is_adopted_if_next_to_boot() {
    let left = |wanted, reached| {
        with(shadow(wanted), |_, status| {
            status.current_state = Some(reached);
            status.attempt = None;
        })
    };
    let staged = || {
        left(
            State::StagedAndPerformedUpdate,
            State::StagedAndPerformedUpdate,
        )
    };
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
    let other = known(
        UpdateState::Ready,
        Some(OTHER),
        Some(OTHER),
        last(Activate, true, 6),
    );
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
