//! Conditions of shadows, fleet and pools, and texts of Events, for people; and when they are written.

mod events;
mod fleet;
mod pools;

use std::time::Duration;

use brupop_api::conditions::ConditionStatus::{self, False, True};
use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, IDLE, OTHER_OPERATOR, OVERDUE, PROGRESSING, READY, STALLED,
    UPDATE_AVAILABLE,
};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::facts::ShadowFacts;
use brupop_api::printable::printable;
use brupop_api::{BottlerocketShadow, BottlerocketShadowStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::{Value, json};

use crate::decide::{Reason, WHAT_TO_DO, goes_back};
use crate::facts::NodeView;
use crate::objects::read_time;
pub use events::EventText;
pub use fleet::{DesiredFleetStatus, Progress, halted_versions, halts, stalled_pools};
pub use pools::{DesiredPoolStatus, NoAnswer, pools};

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

/// The wanted content of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredCondition {
    pub type_: &'static str,
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

impl DesiredCondition {
    /// The condition Progressing of a shadow: this sentence, in the room that its remedy leaves, and the remedy.
    pub fn progressing(reason: &Reason<'_>, sentence: &str, remedy: &str) -> Self {
        let remedy = what_to_do(remedy);
        let sentence = printable(sentence, MESSAGE_MAX.saturating_sub(remedy.len()));
        let message = sentence.into_owned() + &remedy;
        Self::of(PROGRESSING, reason.status(), reason.as_str(), &message)
    }

    /// The message is made printable: it may hold the words of agents, hosts and API servers.
    fn of(
        type_: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: &str,
    ) -> Self {
        Self {
            type_,
            status,
            reason,
            message: printable(message, MESSAGE_MAX).into_owned(),
        }
    }

    /// The condition Overdue of a shadow whose update holds its slot for too long, from its condition Progressing.
    pub fn overdue(progressing: &Self) -> Self {
        let message = format!(
            "the update has held its slot for longer than this step may take: {}",
            progressing.message
        );
        Self::of(OVERDUE, True, progressing.reason, &message)
    }

    /// The condition `UpdateAvailable` of a shadow, once its agent has reported. It does not name the version, so that its time
    /// stays if another one is published meanwhile, and it needs no write then.
    pub fn update_available(shadow: &ShadowFacts<'_>) -> Option<Self> {
        shadow.status.current_version?;
        let (status, reason, message) = if shadow.update().is_some() {
            let differs =
                "the host chooses an update (status.target_version), and does not run it yet";
            (True, "TargetDiffers", differs)
        } else {
            (False, "NoneChosen", "the host chooses no update")
        };
        Some(Self::of(UPDATE_AVAILABLE, status, reason, message))
    }

    /// The condition `AdmissionEnforced` of the fleet; `Err` says what was seen instead of a refusal.
    pub fn admission(enforced: Result<(), &str>) -> Self {
        let refused = "webhook and policy refused the dry runs, as they must";
        match enforced {
            Ok(()) => Self::of(ADMISSION_ENFORCED, True, "Refused", refused),
            Err(why) => Self::of(ADMISSION_ENFORCED, False, "NotRefused", why),
        }
    }

    /// The condition `OtherOperator` of the fleet; `Err` says which one is here, or why that is not known.
    pub fn other_operator(alone: Result<(), &str>) -> Self {
        let none = "upstream's operator is not installed";
        match alone {
            Ok(()) => Self::of(OTHER_OPERATOR, False, "NoneFound", none),
            Err(why) => Self::of(OTHER_OPERATOR, True, "NotRuledOut", why),
        }
    }

    /// The condition `Idle` of the fleet, in which this many nodes are busy. The message changes only with that number.
    pub fn idle(busy_nodes: usize) -> Self {
        let none = "no node is being updated, and no Node has changes of the operator";
        let one = "1 node is being updated, has changes of the operator, or cannot be read";
        match busy_nodes {
            0 => Self::of(IDLE, True, "NothingInProgress", none),
            1 => Self::of(IDLE, False, "InProgress", one),
            many => {
                let many = format!(
                    "{many} nodes are being updated, have changes of the operator, or cannot be read"
                );
                Self::of(IDLE, False, "InProgress", &many)
            }
        }
    }

    /// The conditions `Ready` and `Stalled` of the fleet or a pool, which kstatus reads, and with it Flux and Helm. They are made from
    /// the word and the sentence that say why a person has to act, if one has to. If not, `Ready` is True, or what is given.
    ///
    /// `Stalled` is False where it might be left out: kstatus treats both alike, and `kubectl wait --for=condition=Stalled=false`
    /// finds nothing without it. There is no `Reconciling`: it would be True during each roll-out, so that a release of
    /// Bottlerocket, which changes no object, would keep Flux and Helm waiting.
    fn health(stalls: Option<(&'static str, &str)>, ready: Option<Self>) -> [Self; 2] {
        if let Some((reason, message)) = stalls {
            return [(READY, False), (STALLED, True)]
                .map(|(type_, status)| Self::of(type_, status, reason, message));
        }
        let in_force = "the spec is in force: nodes are updated, or wait, as it says";
        let well = "the spec is valid, nodes belong to one pool each, and no halt holds them";
        [
            ready.unwrap_or_else(|| Self::of(READY, True, "InForce", in_force)),
            Self::of(STALLED, False, "NotStalled", well),
        ]
    }

    /// Whether these conditions contain it for this generation of the spec.
    fn is_stored_in(&self, conditions: &[Condition], generation: Option<u64>) -> bool {
        self.found(conditions).is_some_and(|found| {
            (found.status, &*found.reason, &found.message)
                == (self.status, self.reason, &self.message)
                && found.observed_generation == generation
        })
    }

    /// The stored one of this type. One whose time nobody can read, as of the year 10000, counts as none, and is written again.
    fn found<'c>(&self, conditions: &'c [Condition]) -> Option<&'c Condition> {
        let found = conditions
            .iter()
            .find(|condition| condition.type_ == self.type_)?;
        read_time(Some(&found.last_transition_time)).and(Some(found))
    }

    /// The condition of this generation of the spec as it is to be stored over these, with the time at which its status
    /// last changed.
    fn stored_over(
        &self,
        conditions: &[Condition],
        generation: Option<u64>,
        now: &str,
    ) -> Condition {
        let found = self.found(conditions);
        let before = found.filter(|found| found.status == self.status);
        let since = before.map_or(now, |before| &before.last_transition_time);
        Condition {
            type_: self.type_.to_owned(),
            status: self.status,
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            observed_generation: generation,
            last_transition_time: since.to_owned(),
        }
    }
}

/// A wanted write of one object. It is made once it has been stable for a moment, for most reasons last no longer;
/// or once others have been wanted before it for long enough.
#[derive(Debug)]
pub struct Debounced<W> {
    wanted: Option<W>,
    since: Duration,
    /// The time since which this, or something else before it, could not be written.
    waiting_since: Duration,
}

impl<W> Default for Debounced<W> {
    fn default() -> Self {
        Self {
            wanted: None,
            since: Duration::ZERO,
            waiting_since: Duration::ZERO,
        }
    }
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
pub fn shadow_has(shadow: &BottlerocketShadow, pool: &str, wanted: &[DesiredCondition]) -> bool {
    let status = shadow.status.as_ref();
    let stored_pool = status.and_then(|status| status.pool.as_deref());
    let (stored, generation) = (shadow_conditions(shadow), generation(&shadow.metadata));
    let types = [PROGRESSING, OVERDUE, UPDATE_AVAILABLE];
    let ours = |condition: &&Condition| types.contains(&condition.type_.as_str());
    stored_pool.unwrap_or_default() == pool
        && wanted
            .iter()
            .all(|wanted| wanted.is_stored_in(stored, generation))
        && stored.iter().filter(ours).count() == wanted.len()
}

/// The status to apply to a shadow, so that it has this pool (empty: none) and the wanted conditions. It names the
/// shadow's UID, so the API server applies it to this very object only.
pub fn shadow_patch(
    shadow: &BottlerocketShadow,
    pool: &str,
    wanted: &[DesiredCondition],
    now: &str,
) -> Value {
    let (stored, generation) = (shadow_conditions(shadow), generation(&shadow.metadata));
    let wanted = wanted.iter();
    let conditions = wanted.map(|wanted| wanted.stored_over(stored, generation, now));
    let status = BottlerocketShadowStatus {
        pool: Some(pool.to_owned()),
        conditions: conditions.collect(),
        ..Default::default()
    };
    json!({
        "apiVersion": BottlerocketShadow::api_version(&()),
        "kind": BottlerocketShadow::kind(&()),
        "metadata": {"name": shadow.metadata.name, "uid": shadow.metadata.uid},
        "status": status,
    })
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
