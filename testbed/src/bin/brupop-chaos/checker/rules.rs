//! The rules for each revision. They are pure: each looks at an object before and after, and at the others.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::json::{
    COMPONENT, EXCLUDED, is_cordoned, is_halted, is_only_kept, is_set, marker, members, node_of,
    number, shadow_of, text,
};
use super::objects::{Objects, PodState};
use super::{GRACE, Violation};
use brupop_testbed::operator::NAMESPACE;

/// This long after the last cordon for a drain, pods that come and tolerate the cordon are no longer waited for.
const LATE: Duration = Duration::from_mins(1);

/// The ledger is written: the limit holds, no slot is lost, and no halted version gets another slot.
pub(crate) fn ledger(after: &Json, objects: &Objects) -> Vec<Violation> {
    let (before, limit) = (&objects.ledger, objects.limit);
    let mut found = vec![];
    // A ledger that a person has deleted is made again from the updates that run.
    if !is_kept(after) || !is_kept(before) {
        return found;
    }
    let count = |ledger| members(ledger, "/status/slots").count();
    let (slots, had) = (count(after), count(before));
    let taken = || {
        let is_new = |shadow: &str, slot: &Json| {
            before["status"]["slots"]
                .get(shadow)
                .is_none_or(|had| !is_same(had, slot))
        };
        members(after, "/status/slots").filter(move |(shadow, slot)| is_new(shadow, slot))
    };
    // One that is given back must not be taken again either, while there are too many.
    let another_begins = || taken().any(|(shadow, slot)| begins(shadow, slot, objects));
    if slots > limit && (slots > had || another_begins()) {
        found.push(Violation::new(
            "limit",
            format!(
                "{slots} slots are in use, {limit} may be: {}",
                after["status"]["slots"]
            ),
        ));
    }
    if number(after, "/status/term") < number(before, "/status/term") {
        found.push(Violation::new("term", "the ledger's term falls".to_owned()));
    }
    for (shadow, slot) in members(before, "/status/slots") {
        let kept = after["status"]["slots"].get(shadow);
        if !kept.is_some_and(|kept| is_same(kept, slot)) {
            found.extend(given_back(shadow, slot, objects));
        }
    }
    for (shadow, slot) in taken() {
        let version = text(slot, "/version");
        let halted = |ledger: &Json| {
            let node = objects.nodes.get(node_of(shadow));
            node.is_some_and(|node| is_halted(ledger, version, &node.object))
        };
        if halted(before) && halted(after) {
            found.push(Violation::new(
                "halt",
                format!("{shadow} gets a slot for {version}, which is halted"),
            ));
        }
    }
    found
}

/// The highest limit that a reconciler among these pods is set to.
pub(crate) fn highest_limit<'a>(pods: impl Iterator<Item = &'a Json>) -> usize {
    let reconcilers = pods.filter(|pod| text(pod, COMPONENT) == "reconciler");
    let limit_of = |pod: &Json| {
        let variables = pod
            .pointer("/spec/containers/0/env")
            .and_then(Json::as_array);
        let limit = variables
            .into_iter()
            .flatten()
            .find(|set| set["name"] == "MAX_CONCURRENT_UPDATE");
        limit.and_then(|set| text(set, "/value").parse().ok())
    };
    // As shipped.
    reconcilers
        .map(|pod| limit_of(pod).unwrap_or(1))
        .max()
        .unwrap_or(0)
}

/// Whether a ledger exists in which a leader has begun its term.
fn is_kept(ledger: &Json) -> bool {
    is_set(ledger, "/status/term")
}

/// Does an update begin with this new slot? One whose mark is on its Node goes on, in a new ledger or without its shadow.
fn begins(shadow: &str, slot: &Json, objects: &Objects) -> bool {
    let goes_on = objects
        .nodes
        .get(node_of(shadow))
        .is_some_and(|node| is_of(&marker(&node.object), slot));
    objects.shadows.get(shadow).is_none_or(is_idle) && !goes_on
}

/// Whether this marker belongs to the update with this slot.
fn is_of(marker: &Json, slot: &Json) -> bool {
    text(marker, "/shadow_uid") == text(slot, "/uid")
        && number(marker, "/attempt") == number(slot, "/attempt")
}

/// Whether this shadow's spec asks for nothing.
fn is_idle(shadow: &Json) -> bool {
    matches!(text(shadow, "/spec/state"), "Idle" | "")
}

fn is_same(one: &Json, other: &Json) -> bool {
    one["uid"] == other["uid"] && one["attempt"] == other["attempt"]
}

/// Whether this very Node, not an earlier one, owns this shadow.
fn is_owner(node: &Json, shadow: &Json) -> bool {
    text(shadow, "/metadata/ownerReferences/0/uid") == text(node, "/metadata/uid")
}

/// A slot is given back: its attempt must be over, for good, and nothing of it left on the Node.
fn given_back(shadow: &str, slot: &Json, objects: &Objects) -> Option<Violation> {
    let (uid, attempt) = (text(slot, "/uid"), number(slot, "/attempt"));
    let violated = |what: &str| {
        Some(Violation::new(
            "slot",
            format!("{shadow} loses its slot {slot}, but {what}"),
        ))
    };
    // With the Node goes what was out of service; the shadow follows it.
    let node = objects.nodes.get(shadow.trim_start_matches("brs-"))?;
    let of_slot = objects
        .shadows
        .get(shadow)
        .filter(|object| text(object, "/metadata/uid") == uid);
    if let Some(object) = of_slot.filter(|shadow| is_owner(&node.object, shadow)) {
        if text(object, "/spec/state") != "Idle" {
            return violated("its spec is not Idle");
        }
        if number(object, "/spec/attempt") < attempt {
            return violated("its spec has not reached that attempt");
        }
    }
    let marker = marker(&node.object);
    if is_of(&marker, slot) && !is_only_kept(&marker) {
        violated("its Node is still marked for that attempt")
    } else {
        None
    }
}

/// Checks that each node that the operator took out of service has a slot.
pub(crate) fn marked_without_slot(node: &str, object: &Json, ledger: &Json) -> Option<Violation> {
    let marker = marker(object);
    let ours = ["cordoned_at", "excluded_at"]
        .iter()
        .any(|field| marker[field].is_string());
    let slot = ledger["status"]["slots"].get(shadow_of(node));
    (ours && slot.is_none() && is_kept(ledger)).then(|| {
        Violation::new(
            "limit",
            format!("{node} is marked {marker} and has no slot"),
        )
    })
}

/// A spec leaves Idle: it has the slot for that very attempt.
pub(crate) fn begins_without_slot(
    name: &str,
    before: &Json,
    after: &Json,
    objects: &Objects,
) -> Option<Violation> {
    if is_idle(after) || !is_idle(before) || !is_kept(&objects.ledger) {
        return None;
    }
    let has_slot = |ledger: &Json| {
        let slot = &ledger["status"]["slots"][name];
        text(slot, "/uid") == text(after, "/metadata/uid")
            && number(slot, "/attempt") == number(after, "/spec/attempt")
    };
    // It may have been asked for with a slot of a ledger before this one.
    let mut deleted = objects
        .deleted
        .iter()
        .filter(|(at, _)| objects.is_recent(*at));
    if has_slot(&objects.ledger) || deleted.any(|(_, ledger)| has_slot(ledger)) {
        return None;
    }
    let slot = &objects.ledger["status"]["slots"][name];
    Some(Violation::new(
        "limit",
        format!("{name} begins {} with the slot {slot}", after["spec"]),
    ))
}

/// A reboot is granted: the Node is written as drained for this attempt, was cordoned before and is, and no pod of then is
/// left.
pub(crate) fn grant(node: &str, shadow: &Json, objects: &Objects) -> Vec<Violation> {
    let violated = |what: String| {
        Violation::new(
            "drain",
            format!("a reboot of {node} is granted, but {what}"),
        )
    };
    let Some(state) = objects.nodes.get(node) else {
        return vec![];
    };
    // A grant is asked for after the Node was read. The Node may be deleted and made again in between, and its shadow goes
    // with it.
    if !is_owner(&state.object, shadow) && objects.is_recent(state.made) {
        return vec![];
    }
    let attempt = number(shadow, "/spec/attempt").unwrap_or(0);
    let Some(drained) = state.drained.filter(|drained| drained.attempt == attempt) else {
        return vec![violated(
            "it is not written as drained for this attempt".to_owned(),
        )];
    };
    if !drained.cordoned {
        return vec![violated(
            "it was not cordoned when its pods were listed".to_owned(),
        )];
    }
    if !is_cordoned(&state.object) && state.uncordoned.is_some_and(|at| !objects.is_recent(at)) {
        return vec![violated("it has not been cordoned for long".to_owned())];
    }
    let left = objects.pods.iter().filter(|(key, pod)| {
        text(&pod.object, "/spec/nodeName") == node
            && pod.bound < drained.listed_after
            && must_go(key, pod, state.drain_began)
    });
    left.map(|(key, pod)| {
        violated(format!(
            "{key} ({}) is there",
            text(&pod.object, "/metadata/uid")
        ))
    })
    .collect()
}

/// Does a drain that began then wait until this pod is gone? Not for those of daemons, nor for mirrors of static pods; the
/// operator's own may come back, and those that tolerate every taint may come a minute later. The leader may see them late.
fn must_go(key: &str, pod: &PodState, drain_began: Duration) -> bool {
    let object = &pod.object;
    let is_mirror = is_set(object, "/metadata/annotations/kubernetes.io~1config.mirror");
    let is_ours = key.starts_with(NAMESPACE) && is_set(object, COMPONENT);
    let is_daemon = text(object, "/metadata/ownerReferences/0/kind") == "DaemonSet";
    let tolerates = object["spec"]["tolerations"]
        .as_array()
        .is_some_and(|all| all.contains(&json!({"operator": "Exists"})));
    let is_left = tolerates && pod.bound_at + GRACE > drain_began + LATE;
    !is_daemon && !is_mirror && !is_ours && !is_left
}

/// A cordon that came or went without the marker's word; who did it is in the audit log.
pub(crate) fn odd_cordon(before: &Json, after: &Json) -> Option<String> {
    let (was, is) = (marker(before), marker(after));
    let (had, has) = (is_cordoned(before), is_cordoned(after));
    if had && !has && !was["cordoned_at"].is_string() {
        return Some(format!("a cordon goes that is not ours; marker {was}"));
    }
    if !had && has && is["cordoned_at"] == was["cordoned_at"] {
        return Some(format!(
            "a cordon comes that the marker does not tell; marker {is}"
        ));
    }
    let excluded = |node: &Json| is_set(node, EXCLUDED);
    if excluded(before) && !excluded(after) && !was["excluded_at"].is_string() {
        return Some(format!("an exclusion goes that is not ours; marker {was}"));
    }
    if !excluded(before) && excluded(after) && is["excluded_at"] == was["excluded_at"] {
        return Some(format!(
            "an exclusion comes that the marker does not tell; marker {is}"
        ));
    }
    None
}

/// Whether spec, metadata or conditions differ.
pub(crate) fn changes_more_than_status(before: &Json, after: &Json) -> bool {
    let rest = |object: &Json| {
        let mut rest = object.clone();
        let conditions = rest.pointer("/status/conditions").cloned();
        for (parent, field) in [
            ("/metadata", "resourceVersion"),
            ("/metadata", "generation"),
            ("", "status"),
        ] {
            if let Some(parent) = rest.pointer_mut(parent).and_then(Json::as_object_mut) {
                parent.remove(field);
            }
        }
        (rest, conditions)
    };
    rest(before) != rest(after)
}

#[cfg(test)]
mod tests;
