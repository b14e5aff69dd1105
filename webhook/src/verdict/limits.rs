//! The schema's limits on what an agent writes, checked a second time. The definition in the cluster may have none: somebody
//! may have loosened it, or it may be upstream's.

use super::{Change, Refusal, Rule};
use brupop_api::BottlerocketShadowStatus;
use brupop_api::crds::{BOOT_ID_MAX, COUNTER_MAX, MESSAGE_MAX, TIME_MAX, VERSION_MAX};
use serde_json::Value;

/// `status.staged` may hold only version, time and the prefetch flag. The schema drops anything else.
pub(super) fn staged(change: &Change<'_>) -> Result<(), Refusal> {
    let staged = change.new.status.get("staged");
    let known = |name: &String| ["version", "at", "prefetched"].contains(&name.as_str());
    let more = staged.and_then(Value::as_object).is_some_and(|staged| !staged.keys().all(known));
    if more && staged != change.old.status.get("staged") {
        return Err(Rule::AgentOwnFields
            .refuse("status.staged", "it may hold version, at and prefetched only".to_owned()));
    }
    Ok(())
}

/// Each field that changes must keep within its limit. A field that was too long before and stays is not this write's doing.
pub(super) fn within(old: &BottlerocketShadowStatus, new: &BottlerocketShadowStatus) -> Result<(), Refusal> {
    let (old_staged, new_staged) = (old.staged.as_ref(), new.staged.as_ref());
    let texts = [
        ("current_version", &old.current_version, &new.current_version, VERSION_MAX),
        ("target_version", &old.target_version, &new.target_version, VERSION_MAX),
        (
            "state_transition_failure_timestamp",
            &old.state_transition_failure_timestamp,
            &new.state_transition_failure_timestamp,
            TIME_MAX,
        ),
        ("boot_id", &old.boot_id, &new.boot_id, BOOT_ID_MAX),
        ("reboot_requested", &old.reboot_requested, &new.reboot_requested, BOOT_ID_MAX),
        ("message", &old.message, &new.message, MESSAGE_MAX),
        (
            "staged.version",
            &old_staged.map(|staged| staged.version.clone()),
            &new_staged.map(|staged| staged.version.clone()),
            VERSION_MAX,
        ),
        (
            "staged.at",
            &old_staged.map(|staged| staged.at.clone()),
            &new_staged.map(|staged| staged.at.clone()),
            TIME_MAX,
        ),
    ];
    for (field, old, new, limit) in texts {
        let Some(text) = new.as_ref().filter(|_| old != new) else { continue };
        let length = text.chars().count();
        if length > limit {
            let allowed = format!("it has {length} characters, and may have {limit}");
            return Err(Rule::AgentLimits.refuse(format!("status.{field}"), allowed));
        }
    }
    let numbers = [("crash_count", old.crash_count, new.crash_count), ("attempt", old.attempt, new.attempt)];
    for (field, old, new) in numbers {
        if old != new && new > Some(COUNTER_MAX) {
            let allowed = format!("it may be at most {COUNTER_MAX}");
            return Err(Rule::AgentLimits.refuse(format!("status.{field}"), allowed));
        }
    }
    Ok(())
}
