//! Rules for attempts and grants, which each legal change of a shadow's spec must also follow.

use super::{Refusal, Rule};
use brupop_api::{BottlerocketShadowSpec, BottlerocketShadowStatus, State};

/// An attempt begins from Idle, with the next number. While it runs it keeps its version and the boot that it began in.
pub(super) fn attempt(
    old: &BottlerocketShadowSpec,
    new: &BottlerocketShadowSpec,
) -> Result<(), Refusal> {
    let refuse = |field, allowed: String| Err(Rule::ReconcilerAttempt.refuse(field, allowed));
    let starts = old.state == State::Idle && new.state != State::Idle;
    let next = old
        .attempt
        .map_or(new.attempt.or(Some(1)), |before| before.checked_add(1));
    if (starts || new.attempt != old.attempt) && new.attempt != next {
        let next = next.unwrap_or_default();
        return refuse(
            "spec.attempt",
            format!("the next update must have the attempt {next}"),
        );
    }
    if matches!(old.state, State::Idle | State::ErrorReset) {
        return Ok(());
    }
    let refuse = |field, allowed: &str| refuse(field, allowed.to_owned());
    if new.attempt != old.attempt {
        return refuse(
            "spec.attempt",
            "an update is under way: go back to Idle before the next attempt",
        );
    }
    if new.version != old.version {
        return refuse("spec.version", "it must not change during an update");
    }
    if new.state != State::Idle && new.baseline_boot_id != old.baseline_boot_id {
        return refuse(
            "spec.baseline_boot_id",
            "it must not change during an update",
        );
    }
    Ok(())
}

/// A reboot is granted together with the state that asks for it, for an attempt, and not while the agent claims this reboot
/// or the one that was granted before. A claim of any other boot is spent: an agent that never takes it back must not keep
/// its node from being updated.
pub(super) fn grant(
    old: Option<&BottlerocketShadowSpec>,
    new: &BottlerocketShadowSpec,
    status: &BottlerocketShadowStatus,
) -> Result<(), Refusal> {
    let before = old.and_then(|old| old.reboot_granted_boot_id.as_ref());
    if new.reboot_granted_boot_id.is_none() || new.reboot_granted_boot_id.as_ref() == before {
        return Ok(());
    }
    let refuse =
        |allowed: &str| Err(Rule::ReconcilerGrant.refuse("spec.reboot_granted_boot_id", allowed));
    if new.state != State::RebootedIntoUpdate || new.attempt.is_none() {
        return refuse("grant a reboot together with RebootedIntoUpdate, for an attempt");
    }
    let claimed = status.reboot_claimed_boot_id.as_ref();
    if claimed.is_some() && (claimed == new.reboot_granted_boot_id.as_ref() || claimed == before) {
        return refuse(
            "a reboot is claimed already (status.reboot_claimed_boot_id): wait until the claim is withdrawn",
        );
    }
    Ok(())
}
