//! What the reconciler may have changed: shadows come Idle and owned, and their spec goes step by step.

use super::{Objection, hold, owner_node, same_but_for, text};
use serde_json::Value;

/// (from, to); staying is always fine.
const MOVES: [(&str, &str); 7] = [
    ("Idle", "StagedAndPerformedUpdate"),
    ("StagedAndPerformedUpdate", "RebootedIntoUpdate"),
    ("RebootedIntoUpdate", "MonitoringUpdate"),
    ("MonitoringUpdate", "Idle"),
    ("StagedAndPerformedUpdate", "Idle"),
    ("RebootedIntoUpdate", "Idle"),
    ("ErrorReset", "Idle"),
];

const STATES: [&str; 5] = [
    "Idle",
    "StagedAndPerformedUpdate",
    "RebootedIntoUpdate",
    "MonitoringUpdate",
    "ErrorReset",
];

pub(super) fn objection(request: &Value) -> Objection {
    let sub_resource = text(&request["subResource"]);
    match (text(&request["operation"]), sub_resource) {
        ("CREATE", "") => creation(request),
        ("UPDATE", "") => update(request),
        ("DELETE", "") => Ok(()),
        (operation, _) => Err(format!("{operation} of {sub_resource:?}")),
    }
}

fn creation(request: &Value) -> Objection {
    let (name, new) = (text(&request["name"]), &request["object"]);
    let node = name.strip_prefix("brs-").unwrap_or_default();
    hold(!node.is_empty() && owner_node(new, node).is_some(), || {
        format!("{name:?} is not named after its only owner, a Node")
    })?;
    hold(new["spec"]["state"] == "Idle", || {
        "it is not created Idle".to_owned()
    })?;
    hold(new["metadata"]["finalizers"].is_null(), || {
        "it is created with finalizers".to_owned()
    })?;
    hold(new["spec"]["reboot_granted_boot_id"].is_null(), || {
        "it is created with a reboot granted".to_owned()
    })
}

fn update(request: &Value) -> Objection {
    // The spec is the reconciler's as a whole; owners are among the rest, which stays as it is.
    same_but_for(request, "spec", &|_| true)?;
    let (old, new) = (&request["oldObject"]["spec"], &request["object"]["spec"]);
    let (from, to) = (text(&old["state"]), text(&new["state"]));
    hold(to != "ErrorReset" && STATES.contains(&to), || {
        format!("{to:?} is nothing to reach")
    })?;
    if readable(old) {
        hold(from == to || MOVES.contains(&(from, to)), || {
            format!("from {from} to {to}")
        })?;
        attempt(old, new, from, to)?;
    } else {
        hold(to == "Idle", || {
            format!("from what nobody can read to {to}")
        })?;
    }
    let granted = &new["reboot_granted_boot_id"];
    if granted.is_null() || readable(old) && *granted == old["reboot_granted_boot_id"] {
        return Ok(());
    }
    hold(to == "RebootedIntoUpdate", || {
        format!("a reboot is granted in {to}")
    })?;
    hold(new["attempt"].is_u64(), || {
        "a reboot is granted for no attempt".to_owned()
    })?;
    let claimed = &request["oldObject"]["status"]["reboot_claimed_boot_id"];
    let spent = claimed != granted && *claimed != old["reboot_granted_boot_id"];
    hold(claimed.is_null() || spent, || {
        "another reboot is granted while one is claimed".to_owned()
    })
}

/// The attempt goes up by one when an update begins; version and first boot stay while it runs.
fn attempt(old: &Value, new: &Value, from: &str, to: &str) -> Objection {
    let (before, after) = (&old["attempt"], &new["attempt"]);
    if from == "Idle" {
        let next = before.as_u64().map_or(after.is_u64(), |before| {
            after.as_u64() == before.checked_add(1)
        });
        return hold(next || (to == "Idle" && after == before), || {
            format!("an update begins at attempt {after} after {before}")
        });
    }
    if from == "ErrorReset" || before.is_null() {
        return Ok(());
    }
    hold(before == after, || {
        format!("attempt {before} turns into {after} while it runs")
    })?;
    hold(old["version"] == new["version"], || {
        "the version changes while the attempt runs".to_owned()
    })?;
    hold(
        to == "Idle" || old["baseline_boot_id"] == new["baseline_boot_id"],
        || "the boot that the attempt began in changes".to_owned(),
    )
}

/// Each member is of the type that the schema gives it. What another version left behind may not be.
fn readable(spec: &Value) -> bool {
    let texts = [
        "state_transition_timestamp",
        "version",
        "baseline_boot_id",
        "reboot_granted_boot_id",
    ];
    let failures = &spec["last_failure"];
    let failed = match failures.as_array().map(Vec::as_slice) {
        // The same without names, which a reader may well take.
        Some([count, attempt, at, reason]) => {
            count.is_u64() && attempt.is_u64() && at.is_string() && reason.is_string()
        }
        _ => {
            failures["count"].is_u64()
                && (failures.get("attempt").is_none() || failures["attempt"].is_u64())
                && failures["at"].is_string()
                && failures["reason"].is_string()
        }
    };
    STATES.contains(&text(&spec["state"]))
        && texts
            .iter()
            .all(|field| spec[field].is_null() || spec[field].is_string())
        && ["attempt", "leader_term"]
            .iter()
            .all(|field| spec[field].is_null() || spec[field].is_u64())
        && (failures.is_null() || failed)
}
