//! What people change, as patches: from what was read and what they ask for.
//!
//! Annotations and the pause are merge patches, like those that docs/operations.md tells people to type, and name the UID of
//! the object that was read. The list of lifted halts is replaced as a whole, so its patch tests that it is as it was read.

use brupop_api::conditions::PROGRESSING;
use brupop_api::crds::ACKNOWLEDGED_HALTS_MAX;
use brupop_api::fleet::AcknowledgedHalt;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, State, names};
use brupop_core::decide::Reason;
use brupop_core::objects::{WatchedFleet, WatchedNode};
use brupop_core::pool::Pool;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::api::{ObjectMeta, Patch};
use serde_json::{Value, json};

use crate::words::{self, Argument, brupop};

/// Where the halts stand that people have lifted.
const ACKNOWLEDGED: [&str; 2] = ["spec", "acknowledgedHalts"];

/// A change, and what there is to say once it is made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedChange {
    /// `None` = all is as it should be, and nothing is written.
    pub body: Option<Patch<Value>>,
    pub says: String,
}

/// Why there is no change to make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSteered {
    /// The version is not halted.
    #[error("the version {version} is not halted; halted are: {halted}")]
    NotHalted {
        /// The version.
        version: String,
        /// Those that are.
        halted: String,
    },
    /// There is no room for another one.
    #[error(
        "the fleet has no room for another lifted halt: remove entries from spec.acknowledgedHalts that are no longer needed \
         (`kubectl edit brf fleet -n {namespace}`)"
    )]
    NoRoom {
        /// The fleet's.
        namespace: String,
    },
}

impl PlannedChange {
    fn none(says: String) -> Self {
        Self { body: None, says }
    }

    fn merge(patch: Value, says: String) -> Self {
        Self {
            body: Some(Patch::Merge(patch)),
            says,
        }
    }
}

/// Pauses the fleet, or takes the pause back.
pub(crate) fn pause_fleet(fleet: &BottlerocketFleet, paused: bool) -> PlannedChange {
    pause(
        "the fleet",
        "no update",
        &fleet.metadata,
        fleet.spec.paused,
        paused,
    )
}

/// Pauses a pool, or takes the pause back. What cannot be understood of it holds its nodes, too.
pub(crate) fn pause_pool(pool: &Pool, paused: bool) -> PlannedChange {
    let what = format!(
        "the pool {}",
        pool.metadata.name.as_deref().unwrap_or_default()
    );
    pause(
        &what,
        "no update of its nodes",
        &pool.metadata,
        pool.paused,
        paused,
    )
}

/// `stops` says what does not start while it is paused.
fn pause(
    what: &str,
    stops: &str,
    metadata: &ObjectMeta,
    is_paused: bool,
    paused: bool,
) -> PlannedChange {
    if is_paused == paused {
        let word = if paused { "paused" } else { "not paused" };
        return PlannedChange::none(format!("{what} is {word} already"));
    }
    let says = if paused {
        format!("{what} is paused: {stops} starts, and what is cordoned is finished")
    } else {
        format!("{what} is no longer paused")
    };
    PlannedChange::merge(
        json!({"metadata": {"uid": metadata.uid}, "spec": {"paused": paused}}),
        says,
    )
}

/// Whether the node of this shadow waits only because its last attempt was given up.
pub(crate) fn backs_off(shadow: &BottlerocketShadow) -> bool {
    let mut conditions = shadow.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|told| told.type_ == PROGRESSING && told.reason == Reason::BackingOff.as_str())
}

/// Has the reboot of an update begun on the host, and not ended? Then no pause stops it any more.
pub(crate) fn reboots(shadow: &BottlerocketShadow) -> bool {
    let status = shadow.status.as_ref();
    let claimed = status.and_then(|status| status.reboot_claimed_boot_id.as_deref());
    let boot = status.and_then(|status| status.boot_id.as_deref());
    shadow.spec.state == State::RebootedIntoUpdate
        && claimed.is_some()
        && claimed == shadow.spec.reboot_granted_boot_id.as_deref()
        && boot == claimed
}

/// Pauses a node, whose host may be rebooting now.
pub(crate) fn pause_node(node: &WatchedNode, reboots: bool) -> PlannedChange {
    let name = node.name();
    let late = if reboots {
        "; its reboot has begun, so for this update the pause comes too late"
    } else {
        ""
    };
    if node.is_paused() {
        return PlannedChange::none(format!("the node {name} is paused already{late}"));
    }
    annotate(
        node,
        names::PAUSE_ANNOTATION,
        Some("true"),
        format!("the node {name} is paused{late}"),
    )
}

/// Takes the pause of a node back.
pub(crate) fn resume_node(node: &WatchedNode) -> PlannedChange {
    let name = node.name();
    if !node.is_paused() {
        return PlannedChange::none(format!("the node {name} is not paused"));
    }
    annotate(
        node,
        names::PAUSE_ANNOTATION,
        None,
        format!("the node {name} is no longer paused"),
    )
}

/// Asks for the update of a node now, of the operator in this namespace.
pub(crate) fn update_now(node: &WatchedNode, namespace: &str) -> PlannedChange {
    let name = node.name();
    if node.is_asked_for() {
        return PlannedChange::none(format!(
            "the update of the node {name} is asked for already"
        ));
    }
    let why = brupop("why", Some(Argument::Node(name)), namespace);
    let says = format!(
        "the update of the node {name} is asked for: it begins before others, also outside the window, and this stays so \
         until it is cancelled; {why} says whether anything else is in its way"
    );
    annotate(node, names::UPDATE_NOW_ANNOTATION, Some("true"), says)
}

/// Asks no longer for the update of a node.
pub(crate) fn not_now(node: &WatchedNode) -> PlannedChange {
    let name = node.name();
    if node.annotation(names::UPDATE_NOW_ANNOTATION).is_none() {
        return PlannedChange::none(format!("the update of the node {name} is not asked for"));
    }
    let says = format!("the update of the node {name} is no longer asked for");
    annotate(node, names::UPDATE_NOW_ANNOTATION, None, says)
}

/// Ends the back-off of a node after its last attempt, which the annotation names.
pub(crate) fn retry(
    node: &WatchedNode,
    shadow: Option<&BottlerocketShadow>,
    namespace: &str,
) -> PlannedChange {
    let name = node.name();
    let attempt = match shadow {
        None => Err("it has no shadow that can be read"),
        Some(shadow) if shadow.spec.state != State::Idle => Err("it is being updated"),
        Some(shadow) if shadow.spec.last_failure.is_none() && !backs_off(shadow) => {
            Err("no attempt has failed since its last success")
        }
        Some(shadow) => shadow.spec.attempt.ok_or("it has made no attempt"),
    };
    let attempt = match attempt {
        Ok(attempt) => attempt.to_string(),
        Err(why) => {
            return PlannedChange::none(format!("the node {name} does not back off: {why}"));
        }
    };
    let ended = format!("the back-off of the node {name} after its attempt {attempt} is ended");
    if node.annotation(names::RETRY_ANNOTATION) == Some(&attempt) {
        return PlannedChange::none(format!("{ended} already"));
    }
    let why = brupop("why", Some(Argument::Node(name)), namespace);
    let says = format!(
        "{ended}: it is updated in its turn, and backs off again if that fails; {why} says whether anything else is in its way"
    );
    annotate(node, names::RETRY_ANNOTATION, Some(&attempt), says)
}

fn annotate(node: &WatchedNode, key: &str, value: Option<&str>, says: String) -> PlannedChange {
    PlannedChange::merge(
        json!({"metadata": {"uid": node.uid(), "annotations": {key: value}}}),
        says,
    )
}

/// Lifts the halt of a version up to its last failure, as it was read.
pub(crate) fn resume_version(
    fleet: &WatchedFleet,
    version: &str,
) -> Result<PlannedChange, NotSteered> {
    let WatchedFleet {
        object: fleet,
        quoted,
    } = fleet;
    let versions = fleet.status.as_ref().map(|status| &status.versions);
    let record = |version: &str| versions.and_then(|versions| versions.get(version));
    let Some(halt) = record(version).and_then(|record| record.halted.as_ref()) else {
        let halted = versions
            .into_iter()
            .flatten()
            .filter(|(_, record)| record.halted.is_some());
        let halted: Vec<String> = halted.map(|(version, _)| words::version(version)).collect();
        let halted = if halted.is_empty() {
            "none".to_owned()
        } else {
            halted.join(", ")
        };
        return Err(NotSteered::NotHalted {
            version: version.to_owned(),
            halted,
        });
    };
    let lifted = AcknowledgedHalt {
        version: version.to_owned(),
        halted_at: halt.at.clone(),
    };
    if fleet.spec.acknowledged_halts.contains(&lifted) {
        return Ok(PlannedChange::none(format!(
            "the halt of {version} is lifted already: the reconciler will follow"
        )));
    }
    let mut all: Vec<AcknowledgedHalt> = fleet
        .spec
        .acknowledged_halts
        .iter()
        .filter(|other| other.version != version)
        .cloned()
        .collect();
    if all.len() >= ACKNOWLEDGED_HALTS_MAX {
        // What the ledger knows nothing of any more, nothing rests on.
        all.retain(|other| record(&other.version).is_some());
    }
    if all.len() >= ACKNOWLEDGED_HALTS_MAX {
        return Err(NotSteered::NoRoom {
            namespace: fleet.metadata.namespace.clone().unwrap_or_default(),
        });
    }
    all.push(lifted);
    let halted_at = ["status", "versions", version, "halted", "at"];
    let as_read = quoted["spec"]["acknowledgedHalts"].clone();
    let patch = json_patch::Patch(vec![
        test(&["metadata", "uid"], json!(fleet.metadata.uid)),
        test(&ACKNOWLEDGED, as_read),
        test(&halted_at, json!(halt.at)),
        PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(ACKNOWLEDGED),
            value: json!(all),
        }),
    ]);
    let says = format!("the halt of {version} is lifted: nodes may be updated to it again");
    Ok(PlannedChange {
        body: Some(Patch::Json(patch)),
        says,
    })
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(path.iter().copied()),
        value,
    })
}

#[cfg(test)]
mod tests;
