//! Conditions of shadows, fleet and pools, and texts of Events, for people; and when they are written.

mod events;
mod fleet;

use std::borrow::Cow;
use std::time::Duration;

use brupop_api::conditions::ConditionStatus::{self, False, True};
use brupop_api::conditions::{Condition, OVERDUE, PROGRESSING, UPDATE_AVAILABLE};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::printable::printable;
use brupop_api::shadow::ShadowFacts;
use brupop_api::{BottlerocketShadow, BottlerocketShadowStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::decide::{Reason, WHAT_TO_DO, goes_back};
use crate::facts::NodeView;
use crate::objects::read_time;
pub use events::{Ended, EventText, Phase, ended_by, results, update_known_since, updates_of};
pub use fleet::{
    Progress, fleet, fleet_has, fleet_patch, halted_versions, halts, new_obstacle, pool_has,
    pool_patch, pools, stalled_pools,
};

/// Time for which a condition must stay the same before it is written: one that passes at once is not worth a request.
const SETTLED: Duration = Duration::from_secs(1);
/// Interval of writes under constant change: changes of one node must not keep the fleet's
/// status from being written.
const WRITTEN_AT_LATEST: Duration = Duration::from_secs(5);

/// Returns what people have asked of a node that has no update, and may have forgotten: it takes effect with the next update.
pub fn left_by_people(view: &NodeView<'_>) -> Option<&'static str> {
    let node = view.node?;
    Some(match (node.paused, node.update_now) {
        (true, true) => {
            "a person has paused the node (annotation brupop.bottlerocket.aws/pause), and requested its update at once \
             (brupop.bottlerocket.aws/update-now)"
        }
        (true, false) => "a person has paused the node (annotation brupop.bottlerocket.aws/pause)",
        (false, true) => {
            "a person has requested its next update at once (annotation brupop.bottlerocket.aws/update-now)"
        }
        (false, false) => return None,
    })
}

/// Says that the node would be updated to an older version than it runs; `None` if it would not.
pub fn going_back(view: &NodeView<'_>) -> Option<String> {
    let to = view.release()?.0;
    if !goes_back(view, to) {
        return None;
    }
    let runs = view.node?.version()?;
    Some(format!(
        "its host chooses {to}, which is older than the {runs} that it runs, so spec.dependsOn and spec.versions.minAge of its pool \
         do not apply"
    ))
}

/// The remedy as the end of a sentence; empty if there is none.
fn what_to_do(remedy: &str) -> String {
    if remedy.is_empty() {
        String::new()
    } else {
        format!("{WHAT_TO_DO}{remedy}")
    }
}

/// A condition as it is wanted: its generation and its time are known once it is stored. The message is made printable: it may
/// hold the words of agents, hosts and API servers.
fn condition(
    type_: &'static str,
    status: ConditionStatus,
    reason: impl Into<Cow<'static, str>>,
    message: &str,
) -> Condition {
    Condition {
        type_: type_.into(),
        status,
        reason: reason.into(),
        message: printable(message, MESSAGE_MAX).into_owned(),
        observed_generation: None,
        last_transition_time: String::new(),
    }
}

/// The condition Progressing of a shadow: this sentence, in the room that its remedy leaves, and the remedy.
pub fn progressing(reason: &Reason<'_>, sentence: &str, remedy: &str) -> Condition {
    let remedy = what_to_do(remedy);
    let sentence = printable(sentence, MESSAGE_MAX.saturating_sub(remedy.len()));
    let message = sentence.into_owned() + &remedy;
    condition(PROGRESSING, reason.status(), reason.as_str(), &message)
}

/// The condition Overdue of a shadow whose update holds its slot for too long, from its condition Progressing.
pub fn overdue(progressing: &Condition) -> Condition {
    let message = format!(
        "the update has held its slot for longer than this step may take: {}",
        progressing.message
    );
    condition(OVERDUE, True, progressing.reason.clone(), &message)
}

/// The condition `UpdateAvailable` of a shadow, once its agent has reported. It does not name the version, so that its time
/// stays if another one is published meanwhile, and it needs no write then.
pub fn update_available(shadow: &ShadowFacts<'_>) -> Option<Condition> {
    shadow.status.current_version.as_ref()?;
    let (status, reason, message) = if shadow.update().is_some() {
        let differs = "the host chooses an update (status.target_version), and does not run it yet";
        (True, "TargetDiffers", differs)
    } else {
        (False, "NoneChosen", "the host chooses no update")
    };
    Some(condition(UPDATE_AVAILABLE, status, reason, message))
}

/// Whether these conditions, for this generation of the spec, are among those that are stored. One whose time nobody can read,
/// as of the year 10000, counts as none, and is written again.
fn are_stored(wanted: &[Condition], stored: &[Condition], generation: Option<u64>) -> bool {
    let is_stored = |wanted: &Condition| {
        found(stored, &wanted.type_).is_some_and(|found| {
            (found.status, &found.reason, &found.message)
                == (wanted.status, &wanted.reason, &wanted.message)
                && found.observed_generation == generation
                && read_time(Some(&found.last_transition_time)).is_some()
        })
    };
    wanted.iter().all(is_stored)
}

/// These conditions as they are to be stored over others: of this generation of the spec, each with the time at which its
/// status last changed.
fn over(
    stored: &[Condition],
    wanted: &[Condition],
    generation: Option<u64>,
    now: &str,
) -> Vec<Condition> {
    let stored_over = |wanted: &Condition| {
        let before = found(stored, &wanted.type_).filter(|it| it.status == wanted.status);
        let since = before.map(|before| before.last_transition_time.as_str());
        let since = since.filter(|since| read_time(Some(since)).is_some());
        Condition {
            observed_generation: generation,
            last_transition_time: since.unwrap_or(now).to_owned(),
            ..wanted.clone()
        }
    };
    wanted.iter().map(stored_over).collect()
}

fn found<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|it| it.type_ == type_)
}

/// What applies this status to the object with this metadata. It names the UID, so the API server applies it to this very object
/// only.
fn apply<K: Resource<DynamicType = ()>>(metadata: &ObjectMeta, status: impl Serialize) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": metadata.name, "uid": metadata.uid},
        "status": status,
    })
}

/// A wanted write of one object. It is made once it has been stable for a moment, for most reasons last no longer;
/// or once others have been wanted before it for long enough.
#[derive(Debug, Default)]
pub struct Debounced<W> {
    wanted: Option<W>,
    since: Duration,
    /// The time since which this, or something else before it, could not be written.
    waiting_since: Duration,
}

impl<W: PartialEq> Debounced<W> {
    /// This is wanted now. Returns when to ask again; `None` if it has been wanted for long enough to be written.
    pub fn waits_until(&mut self, wanted: W, now: Duration) -> Option<Duration> {
        if self.wanted.is_none() {
            self.waiting_since = now;
        }
        if self.wanted.as_ref() != Some(&wanted) {
            self.since = now;
        }
        self.wanted = Some(wanted);
        let due = (self.since + SETTLED).min(self.waiting_since + WRITTEN_AT_LATEST);
        if now >= due {
            self.waiting_since = now;
        }
        (now < due).then_some(due)
    }

    /// Nothing is to be written any more.
    pub fn forget(&mut self) {
        self.wanted = None;
    }
}

/// The generation of the spec that was read.
pub(crate) fn generation(metadata: &ObjectMeta) -> Option<u64> {
    metadata.generation?.try_into().ok()
}

pub fn shadow_conditions(shadow: &BottlerocketShadow) -> &[Condition] {
    let status = shadow.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

/// Whether this pool and these conditions of the shadow, as its spec is now, are stored already, and no others of ours.
pub fn shadow_has(shadow: &BottlerocketShadow, pool: &str, wanted: &[Condition]) -> bool {
    let status = shadow.status.as_ref();
    let stored_pool = status.and_then(|status| status.pool.as_deref());
    let stored = shadow_conditions(shadow);
    let types = [PROGRESSING, OVERDUE, UPDATE_AVAILABLE];
    let ours = |condition: &&Condition| types.contains(&&*condition.type_);
    stored_pool.unwrap_or_default() == pool
        && are_stored(wanted, stored, generation(&shadow.metadata))
        && stored.iter().filter(ours).count() == wanted.len()
}

/// The status to apply to a shadow, so that it has this pool (empty: none) and the wanted conditions.
pub fn shadow_patch(
    shadow: &BottlerocketShadow,
    pool: &str,
    wanted: &[Condition],
    now: &str,
) -> Value {
    let (stored, generation) = (shadow_conditions(shadow), generation(&shadow.metadata));
    let status = BottlerocketShadowStatus {
        pool: Some(pool.to_owned()),
        conditions: over(stored, wanted, generation, now),
        ..Default::default()
    };
    apply::<BottlerocketShadow>(&shadow.metadata, status)
}

/// Returns why a node that has a slot for this version has not begun: the spec of its shadow is not stored.
pub fn not_stored_yet(version: &str) -> String {
    format!(
        "the update to {version} begins; the API server has not stored the reconciler's first write yet. If that lasts, see the \
         fleet's condition AdmissionEnforced and the log of the reconciler that leads"
    )
}

#[cfg(test)]
mod tests;
