//! What an agent may have changed: the status of its own node's shadow, its own fields, along the state machine.

use super::{Objection, hold, owner_node, same_but_for, seen, text};
use serde_json::Value;

/// What the API server says of a token that is bound to a pod on a node, one value each.
const CLAIMS: [&str; 4] = [
    "authentication.kubernetes.io/node-name",
    "authentication.kubernetes.io/node-uid",
    "authentication.kubernetes.io/pod-name",
    "authentication.kubernetes.io/pod-uid",
];

/// (own text of the status, most characters)
const TEXTS: [(&str, usize); 7] = [
    ("current_version", 64),
    ("target_version", 64),
    ("state_transition_failure_timestamp", 64),
    ("problem_since", 64),
    ("boot_id", 64),
    ("reboot_claimed_boot_id", 64),
    ("message", 1024),
];

/// What an agent may say is wrong.
const PROBLEMS: [&str; 11] = [
    "HostUnreachable",
    "CommandRefused",
    "RebootRefused",
    "RefreshFailed",
    "NoInPlaceUpdates",
    "NoUpdateChosen",
    "PrefetchFailed",
    "PrefetchBlocked",
    "NotNextToBoot",
    "CannotDisarm",
    "StepFailed",
];

/// Own texts that are boot ids.
const BOOT_IDS: [&str; 2] = ["boot_id", "reboot_claimed_boot_id"];

/// Own counts of the status; JSON numbers are exact up to 2^53 - 1.
const COUNTS: [&str; 2] = ["crash_count", "attempt"];
const COUNT_MAX: u64 = 9_007_199_254_740_991;

const FIELD_MANAGERS_MAX: usize = 16;

/// (what the spec asks for, what a status may turn into then)
const STEPS: [(&str, &str); 8] = [
    ("Idle", "Idle"),
    ("StagedAndPerformedUpdate", "StagedAndPerformedUpdate"),
    ("StagedAndPerformedUpdate", "ErrorReset"),
    ("RebootedIntoUpdate", "RebootedIntoUpdate"),
    ("RebootedIntoUpdate", "ErrorReset"),
    ("MonitoringUpdate", "MonitoringUpdate"),
    ("MonitoringUpdate", "ErrorReset"),
    // No schema lets such a spec in. If it is there, the agent may say that it failed.
    ("ErrorReset", "ErrorReset"),
];

pub(super) fn objection(request: &Value) -> Objection {
    own_shadow(request)?;
    hold(
        request["operation"] == "UPDATE" && request["subResource"] == "status",
        || "an agent updates the status, and does nothing else".to_owned(),
    )?;
    same_but_for(request, "status", &own)?;
    let spec = &request["oldObject"]["spec"];
    let (old, new) = (
        &request["oldObject"]["status"],
        &request["object"]["status"],
    );
    limits(request, old, new)?;
    attempt(spec, old, new)?;
    step(spec, old, new)?;
    claim(spec, old, new)
}

fn own(field: &str) -> bool {
    ["current_state", "staged", "problem"].contains(&field)
        || COUNTS.contains(&field)
        || TEXTS.iter().any(|(name, _)| *name == field)
}

fn own_shadow(request: &Value) -> Objection {
    let mut values = Vec::new();
    for claim in CLAIMS {
        let given = request["userInfo"]["extra"][claim]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let [value] = given else {
            return Err(format!("{} values of {claim}", given.len()));
        };
        hold(!text(value).is_empty(), || format!("{claim} is empty"))?;
        values.push(text(value));
    }
    let (node, uid) = (values[0], values[1]);
    hold(request["name"] == format!("brs-{node}"), || {
        format!("this is not the shadow of {node}")
    })?;
    hold(owner_node(&request["oldObject"], node) == Some(uid), || {
        format!("the shadow does not belong to the Node {node} with UID {uid}, or not to it alone")
    })
}

fn limits(request: &Value, old: &Value, new: &Value) -> Objection {
    let short = |name: &str, old: &Value, new: &Value, most: usize| {
        hold(old == new || text(new).chars().count() <= most, || {
            format!("{name} is longer than {most}")
        })?;
        hold(old == new || text(new).chars().all(seen), || {
            format!("{name} has characters that are not seen")
        })?;
        let letters = |text: &str| {
            text.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        };
        let id = new.is_null() || (!text(new).is_empty() && letters(text(new)));
        hold(old == new || !BOOT_IDS.contains(&name) || id, || {
            format!("{name} is no boot id")
        })
    };
    for (field, most) in TEXTS {
        short(field, &old[field], &new[field], most)?;
    }
    if new["staged"] != old["staged"] {
        for (field, value) in new["staged"].as_object().into_iter().flatten() {
            short(field, &old["staged"][field], value, 64)?;
        }
    }
    let (before, after) = (&old["problem"], &new["problem"]);
    hold(
        before == after || after.is_null() || PROBLEMS.contains(&text(after)),
        || format!("{after} is nothing to be wrong"),
    )?;
    for field in COUNTS {
        hold(
            old[field] == new[field] || number(&new[field])? <= COUNT_MAX,
            || format!("{field} is too high"),
        )?;
    }
    let managers = |object: &str| {
        request[object]["metadata"]["managedFields"]
            .as_array()
            .map_or(0, Vec::len)
    };
    let (before, after) = (managers("oldObject"), managers("object"));
    hold(after <= before.max(FIELD_MANAGERS_MAX), || {
        format!("{after} field managers")
    })
}

/// Absent is none yet.
fn number(value: &Value) -> Result<u64, String> {
    if value.is_null() {
        Ok(0)
    } else {
        value.as_u64().ok_or_else(|| format!("{value} is no count"))
    }
}

/// Never back, never ahead of what is asked for. One that is ahead may become what is asked for.
fn attempt(spec: &Value, old: &Value, new: &Value) -> Objection {
    let (asked, before, after) = (
        number(&spec["attempt"])?,
        number(&old["attempt"])?,
        number(&new["attempt"])?,
    );
    hold(after >= before.min(asked), || {
        format!("the attempt falls from {before} to {after}")
    })?;
    hold(after == before || after <= asked, || {
        format!("attempt {after} runs ahead of {asked}")
    })
}

fn step(spec: &Value, old: &Value, new: &Value) -> Objection {
    let (before, after) = (&old["current_state"], &new["current_state"]);
    if before == after {
        return Ok(());
    }
    let (goal, after) = (text(&spec["state"]), text(after));
    hold(STEPS.contains(&(goal, after)), || {
        format!("{before} turns into {after:?} where {goal} is asked for")
    })?;
    hold(after == "Idle" || at_the_asked_attempt(spec, new)?, || {
        format!("{after} at another attempt")
    })
}

fn at_the_asked_attempt(spec: &Value, new: &Value) -> Result<bool, String> {
    Ok(number(&new["attempt"])? == number(&spec["attempt"])?)
}

/// A new claim is of the granted boot, which is the agent's own, at the asked attempt. An old one goes when it is
/// spent or given up, not to be made again.
fn claim(spec: &Value, old: &Value, new: &Value) -> Objection {
    let (before, after) = (
        &old["reboot_claimed_boot_id"],
        &new["reboot_claimed_boot_id"],
    );
    if before == after {
        return Ok(());
    }
    let asked = spec["state"] == "RebootedIntoUpdate";
    if after.is_null() {
        let boot = &new["boot_id"];
        let spent = !boot.is_null() && boot != before;
        return hold(
            !asked || spent || new["current_state"] == "ErrorReset",
            || "a claim is taken back while it may still be acted on".to_owned(),
        );
    }
    hold(asked, || {
        "a reboot is claimed that nobody asks for".to_owned()
    })?;
    hold(after == &spec["reboot_granted_boot_id"], || {
        "a reboot is claimed that is not granted".to_owned()
    })?;
    hold(after == &new["boot_id"], || {
        "a reboot is claimed of another boot than the host's".to_owned()
    })?;
    hold(at_the_asked_attempt(spec, new)?, || {
        "a reboot is claimed at another attempt".to_owned()
    })
}
