//! The schema's limits on what an agent writes, checked a second time. The definition in the cluster may have none: somebody
//! may have loosened it, or it may be upstream's.

use super::{Change, Refusal, Rule};
use brupop_api::BottlerocketShadowStatus;
use brupop_api::crds::{BOOT_ID_MAX, COUNTER_MAX, MESSAGE_MAX, TIME_MAX, VERSION_MAX, is_boot_id};
use brupop_api::printable::is_printable;
use serde_json::Value;

/// `status.staged` may hold only version, time and the prefetch flag. The schema drops anything else.
pub(super) fn staged(change: &Change<'_>) -> Result<(), Refusal> {
    let staged = change.new.status.get("staged");
    let known = |name: &String| ["version", "at", "prefetched"].contains(&name.as_str());
    let more = staged
        .and_then(Value::as_object)
        .is_some_and(|staged| !staged.keys().all(known));
    if more && staged != change.old.status.get("staged") {
        return Err(Rule::AgentOwnFields.refuse(
            "status.staged",
            "it may hold version, at and prefetched only",
        ));
    }
    Ok(())
}

/// A text of a status: its name, value, most characters, and whether it may have those that it has.
type Text<'a> = (&'static str, Option<&'a str>, usize, fn(&str) -> bool);

/// Each field that changes must keep within its limit. A field that was beyond it before and stays is not this write's doing.
pub(super) fn within(
    old: &BottlerocketShadowStatus,
    new: &BottlerocketShadowStatus,
) -> Result<(), Refusal> {
    for (old, new) in texts(old).into_iter().zip(texts(new)) {
        let (field, text, limit, is_sound) = new;
        let Some(text) = text.filter(|_| text != old.1) else {
            continue;
        };
        let refuse = |allowed| Err(Rule::AgentLimits.refuse(format!("status.{field}"), allowed));
        let length = text.chars().count();
        if length > limit {
            return refuse(format!("it has {length} characters, and may have {limit}"));
        }
        if !is_sound(text) {
            return refuse(
                "it may have no line breaks, control characters and invisible characters; a boot id has letters, digits, \
                 '.', '_' and '-' only"
                    .to_owned(),
            );
        }
    }
    let numbers = [
        ("crash_count", old.crash_count, new.crash_count),
        ("attempt", old.attempt, new.attempt),
    ];
    for (field, old, new) in numbers {
        if old != new && new > Some(COUNTER_MAX) {
            let allowed = format!("it may be at most {COUNTER_MAX}");
            return Err(Rule::AgentLimits.refuse(format!("status.{field}"), allowed));
        }
    }
    Ok(())
}

fn texts(status: &BottlerocketShadowStatus) -> [Text<'_>; 9] {
    let staged = status.staged.as_ref();
    let failed_at = status.state_transition_failure_timestamp.as_deref();
    [
        (
            "current_version",
            status.current_version.as_deref(),
            VERSION_MAX,
            is_printable,
        ),
        (
            "target_version",
            status.target_version.as_deref(),
            VERSION_MAX,
            is_printable,
        ),
        (
            "state_transition_failure_timestamp",
            failed_at,
            TIME_MAX,
            is_printable,
        ),
        (
            "boot_id",
            status.boot_id.as_deref(),
            BOOT_ID_MAX,
            is_boot_id,
        ),
        (
            "reboot_claimed_boot_id",
            status.reboot_claimed_boot_id.as_deref(),
            BOOT_ID_MAX,
            is_boot_id,
        ),
        (
            "problem_since",
            status.problem_since.as_deref(),
            TIME_MAX,
            is_printable,
        ),
        (
            "message",
            status.message.as_deref(),
            MESSAGE_MAX,
            is_printable,
        ),
        (
            "staged.version",
            staged.map(|staged| staged.version.as_str()),
            VERSION_MAX,
            is_printable,
        ),
        (
            "staged.at",
            staged.map(|staged| staged.at.as_str()),
            TIME_MAX,
            is_printable,
        ),
    ]
}
