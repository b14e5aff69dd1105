//! Makes merge patches for people's commands, from the objects that were read. They are like those that
//! docs/operations.md tells people to type, and name the UID of the object that was read.

use brupop_api::conditions::PROGRESSING;
use brupop_api::fleet::{ResumedVersion, VersionRecord};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, State, names};
use brupop_core::decide::Reason;
use brupop_core::objects::NodeFacts;
use brupop_core::pool::Pool;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::error::Error;
use crate::words::{self, variant, version};

/// A change, and what there is to say once it is made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedChange {
    /// `None` = all is as it should be, and nothing is written.
    pub patch: Option<Value>,
    pub says: String,
}

/// Says that nothing is to be changed.
fn unchanged(says: String) -> PlannedChange {
    PlannedChange { patch: None, says }
}

/// Pauses the fleet, or ends the pause.
pub(crate) fn pause_fleet(fleet: &BottlerocketFleet, paused: bool) -> PlannedChange {
    let stops = ": no update starts, and nodes that are cordoned already are finished";
    let patch = pause_in_spec(&fleet.metadata, paused);
    pause("the fleet", stops, [fleet.spec.paused, paused], patch)
}

/// Pauses a pool, or ends the pause.
pub(crate) fn pause_pool(pool: &Pool, paused: bool) -> PlannedChange {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let stops = ": no update of its nodes starts, and those that are cordoned already are finished";
    let (what, patch) = (
        format!("the pool {name}"),
        pause_in_spec(&pool.metadata, paused),
    );
    pause(&what, stops, [pool.paused, paused], patch)
}

/// Pauses a node, or ends the pause.
pub(crate) fn pause_node(
    node: &NodeFacts,
    shadow: Option<&BottlerocketShadow>,
    paused: bool,
) -> PlannedChange {
    let is_late = shadow.is_some_and(reboots);
    let late = "; its reboot has begun, so for this update the pause comes too late";
    let patch = annotation(node, names::PAUSE_ANNOTATION, paused.then_some("true"));
    let (what, late) = (
        format!("the node {}", node.name()),
        if is_late { late } else { "" },
    );
    pause(&what, late, [node.paused, paused], patch)
}

/// Makes this patch unless all is as it should be; `then` follows on what is said of a new pause.
fn pause(what: &str, then: &str, [is, paused]: [bool; 2], patch: Value) -> PlannedChange {
    let says = match (is, paused) {
        (true, true) => format!("{what} is paused already"),
        (false, false) => format!("{what} is not paused"),
        (false, true) => format!("{what} is paused{then}"),
        (true, false) => format!("{what} is no longer paused"),
    };
    let patch = (is != paused).then_some(patch);
    PlannedChange { patch, says }
}

fn pause_in_spec(metadata: &ObjectMeta, paused: bool) -> Value {
    json!({"metadata": {"uid": metadata.uid}, "spec": {"paused": paused}})
}

/// Whether the node of this shadow waits only because its last attempt was given up.
pub(crate) fn backs_off(shadow: &BottlerocketShadow) -> bool {
    let mut conditions = shadow.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|told| told.type_ == PROGRESSING && told.reason == Reason::BackingOff.as_str())
}

/// Whether the reboot of an update has begun on the host, and not ended. Then no pause stops it any more.
fn reboots(shadow: &BottlerocketShadow) -> bool {
    let status = shadow.status.as_ref();
    let claimed = status.and_then(|status| status.reboot_claimed_boot_id.as_deref());
    let boot = status.and_then(|status| status.boot_id.as_deref());
    shadow.spec.state == State::RebootedIntoUpdate
        && claimed.is_some()
        && claimed == shadow.spec.reboot_granted_boot_id.as_deref()
        && boot == claimed
}

/// Requests the update of a node now, of the operator in this namespace, or cancels the request.
pub(crate) fn update_now(node: &NodeFacts, namespace: &str, cancel: bool) -> PlannedChange {
    let what = format!("the update of the node {}", node.name());
    let annotated = node.annotation(names::UPDATE_NOW_ANNOTATION).is_some();
    if cancel && annotated {
        let says = format!("{what} is no longer requested");
        return annotate(node, names::UPDATE_NOW_ANNOTATION, None, says);
    }
    if cancel {
        return unchanged(format!("{what} is not requested"));
    }
    if node.update_now {
        return unchanged(format!("{what} is requested already"));
    }
    let why = words::why(node.name(), namespace);
    let says = format!(
        "{what} is requested: it starts before others, even outside the window, and the request ends with it; {why} shows \
         whether anything else holds it"
    );
    annotate(node, names::UPDATE_NOW_ANNOTATION, Some("true"), says)
}

/// Ends the back-off of a node after its last attempt, which the annotation names.
pub(crate) fn retry(
    node: &NodeFacts,
    shadow: Option<&BottlerocketShadow>,
    namespace: &str,
) -> PlannedChange {
    let name = node.name();
    let refused = |why| unchanged(format!("the node {name} does not back off: {why}"));
    let attempt = match shadow {
        None => return refused("it has no shadow that can be read"),
        Some(it) if it.spec.state != State::Idle => return refused("it is being updated"),
        Some(it) if it.spec.last_failure.is_none() && !backs_off(it) => {
            return refused("no attempt has failed since its last success");
        }
        Some(it) => it.spec.attempt.unwrap_or_default().to_string(),
    };
    let ended = format!("the back-off of the node {name} after its attempt {attempt} is ended");
    if node.annotation(names::RETRY_ANNOTATION) == Some(&attempt) {
        return unchanged(format!("{ended} already"));
    }
    let why = words::why(name, namespace);
    let says = format!(
        "{ended}: it is updated in its turn, and backs off again if that fails; {why} shows whether anything else holds it"
    );
    annotate(node, names::RETRY_ANNOTATION, Some(&attempt), says)
}

fn annotate(node: &NodeFacts, key: &str, value: Option<&str>, says: String) -> PlannedChange {
    let patch = Some(annotation(node, key, value));
    PlannedChange { patch, says }
}

fn annotation(node: &NodeFacts, key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"uid": node.uid, "annotations": {key: value}}})
}

/// Resumes a version for each variant for which it is halted, or for this one, by the times of the halts as they were read. The
/// list is replaced as a whole, so the patch also names the revision of the fleet that was read.
pub(crate) fn resume_version(
    fleet: &BottlerocketFleet,
    resumed: &str,
    of_variant: Option<&str>,
) -> Result<PlannedChange, Error> {
    let records = fleet.status.iter().flat_map(|status| &status.versions);
    let halts: Vec<ResumedVersion> = records.filter_map(halt_of).collect();
    let is_meant = |halt: &ResumedVersion| {
        halt.version == resumed && of_variant.is_none_or(|variant| halt.variant == variant)
    };
    let meant: Vec<&ResumedVersion> = halts.iter().filter(|halt| is_meant(halt)).collect();
    if meant.is_empty() {
        let halted = halts.iter().map(|halt| {
            let (version, variant) = (version(&halt.version), variant(&halt.variant));
            format!("{version} for {variant}")
        });
        let halted = halted.collect::<Vec<_>>().join(", ");
        let halted = if halted.is_empty() { "none" } else { &halted };
        let of = of_variant.map_or(String::new(), |variant| format!(" for {variant}"));
        return Err(Error::NotHalted(format!(
            "{resumed} is not halted{of}; halted versions: {halted}"
        )));
    }
    let variants: Vec<&str> = meant.iter().map(|halt| halt.variant.as_str()).collect();
    let what = format!("{resumed} for {}", variants.join(", "));
    let named = &fleet.spec.resumed_versions;
    if meant.iter().all(|halt| named.contains(halt)) {
        return Ok(unchanged(format!(
            "{what} is resumed already, but the reconciler has not acted on it yet"
        )));
    }
    // An entry that names no halt has no effect any more.
    let all: Vec<_> = halts
        .iter()
        .filter(|halt| is_meant(halt) || named.contains(halt))
        .collect();
    let ObjectMeta {
        uid,
        resource_version,
        ..
    } = &fleet.metadata;
    let patch = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}, "spec": {"resumedVersions": all}});
    let says = format!("{what} is resumed: nodes may be updated to it again");
    Ok(PlannedChange {
        patch: Some(patch),
        says,
    })
}

/// Returns the entry that resumes the version with this record, if it is halted.
fn halt_of(record: &VersionRecord) -> Option<ResumedVersion> {
    Some(ResumedVersion {
        version: record.version.clone(),
        variant: record.variant.clone(),
        halted_at: record.halted_at.clone()?,
    })
}

#[cfg(test)]
mod tests;
