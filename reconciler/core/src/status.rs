//! What people see: the conditions of shadows and of the fleet, and the texts of Events.

mod health;
mod pools;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use brupop_api::conditions::{
    ADMISSION_ENFORCED, Condition, ConditionStatus, HALTED, IDLE, OTHER_OPERATOR, OVERDUE, PROGRESSING,
    UPDATE_AVAILABLE, UPDATED,
};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{AcknowledgedHalt, Counts, VersionRecord};
use brupop_api::printable::printable;
use brupop_api::{BottlerocketFleet, BottlerocketShadow, BottlerocketShadowStatus, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::{Value, json};

use crate::decide::{Abort, Halted, HaltedIn, Milestone, Reason, how_to_lift};
use crate::drain::PodKey;
use crate::facts::NodeView;
pub use pools::{DesiredPoolStatus, NoAnswer, pools};

/// The action in Events about opting in.
const AUTO_LABEL: &str = "AutoLabel";
/// Most versions that a column names.
const HALTED_SHOWN: usize = 3;
/// Longest `note` of an Event that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// Longest `action` that it takes.
const MAX_ACTION: usize = 128;

/// What people have asked of a node that has no update, and may have forgotten: it takes effect with the next update.
pub fn left_by_people(view: &NodeView<'_>) -> Option<&'static str> {
    let node = view.node?;
    match (node.paused, node.update_now) {
        (true, true) => Some(
            "a person has paused the node (annotation brupop.bottlerocket.aws/pause), and asked for its update at once \
             (brupop.bottlerocket.aws/update-now)",
        ),
        (true, false) => Some("a person has paused the node (annotation brupop.bottlerocket.aws/pause)"),
        (false, true) => Some(
            "a person has asked for its next update at once (annotation brupop.bottlerocket.aws/update-now)",
        ),
        (false, false) => None,
    }
}

/// What a condition should say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of a condition")]
pub struct DesiredCondition {
    pub type_: &'static str,
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

impl DesiredCondition {
    /// The condition Progressing of a shadow.
    pub fn progressing(status: ConditionStatus, reason: &'static str, message: &str) -> Self {
        Self::of(PROGRESSING, status, reason, message)
    }

    /// The message is made printable: it may hold the words of agents, hosts and API servers.
    fn of(type_: &'static str, status: ConditionStatus, reason: &'static str, message: &str) -> Self {
        Self { type_, status, reason, message: printable(message, MESSAGE_MAX).into_owned() }
    }

    /// The condition Overdue of a shadow whose update holds its slot for too long, from its condition Progressing.
    pub fn overdue(progressing: &Self) -> Self {
        let message = format!(
            "the update has held its slot for longer than this step may take: {}",
            progressing.message
        );
        Self::of(OVERDUE, ConditionStatus::True, progressing.reason, &message)
    }

    /// The condition `UpdateAvailable` of a shadow, once its agent has reported. It does not name the version, so that its time
    /// stays if another one is published meanwhile, and it needs no write then.
    pub fn update_available(shadow: &ShadowFacts<'_>) -> Option<Self> {
        shadow.status.current_version?;
        let (status, reason, message) = match shadow.update() {
            Some(_) => (
                ConditionStatus::True,
                "TargetDiffers",
                "the host knows of an update (status.target_version), and does not run it yet",
            ),
            None => (ConditionStatus::False, "NoneKnown", "the host knows of no update that it does not run"),
        };
        Some(Self::of(UPDATE_AVAILABLE, status, reason, message))
    }

    /// The condition `AdmissionEnforced` of the fleet; `Err` says what was seen instead of a refusal.
    pub fn admission(enforced: Result<(), &str>) -> Self {
        let (status, reason, message) = match enforced {
            Ok(()) => {
                (ConditionStatus::True, "Refused", "webhook and policy refused the dry runs, as they must")
            }
            Err(why) => (ConditionStatus::False, "NotRefused", why),
        };
        Self::of(ADMISSION_ENFORCED, status, reason, message)
    }

    /// The condition `OtherOperator` of the fleet; `Err` says which one is here, or why that is not known.
    pub fn other_operator(alone: Result<(), &str>) -> Self {
        let (status, reason, message) = match alone {
            Ok(()) => (ConditionStatus::False, "NoneFound", "upstream's operator is not installed"),
            Err(why) => (ConditionStatus::True, "NotRuledOut", why),
        };
        Self::of(OTHER_OPERATOR, status, reason, message)
    }

    /// The condition `Halted` of the fleet in this namespace, from what became of each version and the halts that stand
    /// in the spec as acknowledged.
    pub fn halted(
        namespace: &str,
        versions: &BTreeMap<String, VersionRecord>,
        acknowledged: &[AcknowledgedHalt],
    ) -> Self {
        let why = |(version, record): (&String, &VersionRecord)| {
            Some(format!("{version}: {}", record.halted.as_ref()?.reason))
        };
        let why: Vec<String> = versions.iter().filter_map(why).collect();
        if why.is_empty() {
            return Self::of(HALTED, ConditionStatus::False, "WithinFailureBudget", "no version is halted");
        }
        let records: Vec<_> = versions.iter().map(|(version, record)| (version.as_str(), record)).collect();
        let how = how_to_lift(HaltedIn { namespace, pool: None }, &records, acknowledged);
        let why = printable(&why.join("; "), MESSAGE_MAX.saturating_sub(how.len())).into_owned();
        Self::of(HALTED, ConditionStatus::True, "FailureBudgetSpent", &(why + &how))
    }

    /// The condition `Idle` of the fleet, in which this many nodes are busy. The message changes only with that number.
    pub fn idle(busy_nodes: usize) -> Self {
        let (status, reason, message) = match busy_nodes {
            0 => (
                ConditionStatus::True,
                "NothingInProgress",
                "no node is being updated, and no change of the operator is left on any Node".to_owned(),
            ),
            1 => (
                ConditionStatus::False,
                "InProgress",
                "1 node is being updated, carries changes of the operator, or cannot be read".to_owned(),
            ),
            many => (
                ConditionStatus::False,
                "InProgress",
                format!("{many} nodes are being updated, carry changes of the operator, or cannot be read"),
            ),
        };
        Self::of(IDLE, status, reason, &message)
    }

    /// Does this stand among these conditions, of this generation of the spec?
    fn is_stored_in(&self, conditions: &[Condition], generation: Option<u64>) -> bool {
        self.found(conditions).is_some_and(|found| {
            (found.status, &*found.reason, &found.message) == (self.status, self.reason, &self.message)
                && found.observed_generation == generation
        })
    }

    fn found<'c>(&self, conditions: &'c [Condition]) -> Option<&'c Condition> {
        conditions.iter().find(|condition| condition.type_ == self.type_)
    }

    /// The condition of this generation of the spec as it is to be stored over these, with the time at which its status
    /// last changed.
    fn stored_over(&self, conditions: &[Condition], generation: Option<u64>, now: &str) -> Condition {
        let kept = self.found(conditions).filter(|found| found.status == self.status);
        Condition {
            type_: self.type_.to_owned(),
            status: self.status,
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            observed_generation: generation,
            last_transition_time: kept.map_or(now, |found| &found.last_transition_time).to_owned(),
        }
    }
}

/// The generation of the spec that was read.
pub(crate) fn generation(metadata: &ObjectMeta) -> Option<u64> {
    metadata.generation?.try_into().ok()
}

/// The conditions of a shadow.
pub fn shadow_conditions(shadow: &BottlerocketShadow) -> &[Condition] {
    shadow.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// Are this pool and these conditions of the shadow, as its spec is now, stored already, and no others of ours?
pub fn shadow_has(shadow: &BottlerocketShadow, pool: &str, wanted: &[DesiredCondition]) -> bool {
    let stored_pool = shadow.status.as_ref().and_then(|status| status.pool.as_deref());
    let (stored, generation) = (shadow_conditions(shadow), generation(&shadow.metadata));
    let types = [PROGRESSING, OVERDUE, UPDATE_AVAILABLE];
    let ours = |condition: &&Condition| types.contains(&condition.type_.as_str());
    stored_pool.unwrap_or_default() == pool
        && wanted.iter().all(|wanted| wanted.is_stored_in(stored, generation))
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
    let conditions: Vec<Condition> =
        wanted.iter().map(|wanted| wanted.stored_over(stored, generation, now)).collect();
    let status = BottlerocketShadowStatus { pool: Some(pool.to_owned()), conditions, ..Default::default() };
    json!({
        "apiVersion": BottlerocketShadow::api_version(&()),
        "kind": BottlerocketShadow::kind(&()),
        "metadata": {"name": shadow.metadata.name, "uid": shadow.metadata.uid},
        "status": status,
    })
}

/// The halted versions for a column of `kubectl get`: the last ones, and how many there are beside.
pub fn halted_column(versions: &[&str]) -> Option<String> {
    let (more, last) = versions.split_at(versions.len().saturating_sub(HALTED_SHOWN));
    let more = (!more.is_empty()).then(|| format!("+{}", more.len()));
    let shown = last.iter().map(|version| (*version).to_owned()).chain(more).collect::<Vec<_>>().join(",");
    (!shown.is_empty()).then(|| printable(&shown, MESSAGE_MAX).into_owned())
}

/// What the fleet's status should show to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredFleetStatus {
    /// How many nodes at once.
    pub limit: u64,
    /// How many nodes are up to date, behind and in update.
    pub counts: Counts,
    /// Versions that no new node is updated to.
    pub halted: Option<String>,
    /// Has the failure budget of a version been spent?
    pub halt: DesiredCondition,
    /// Does a node wait because of that? Once all want a later version, nobody has to act.
    pub halt_holds_nodes: bool,
    /// Is no node in mid-update?
    pub idle: DesiredCondition,
    /// Are our admission rules in force? `None` = not tried out yet.
    pub admission: Option<DesiredCondition>,
    /// Is another operator here? `None` = not looked yet.
    pub other_operator: Option<DesiredCondition>,
}

impl DesiredFleetStatus {
    /// Is all of this, of the fleet's spec as it is now, stored already?
    pub fn is_stored_in(&self, fleet: &BottlerocketFleet) -> bool {
        let generation = generation(&fleet.metadata);
        fleet.status.as_ref().is_some_and(|status| {
            let is_stored = |wanted: &DesiredCondition| wanted.is_stored_in(&status.conditions, generation);
            status.observed_generation == generation
                && status.limit == Some(self.limit)
                && status.counts == Some(self.counts)
                && status.halted == self.halted
                && [&self.halt, &self.idle, &self.updated()].into_iter().all(is_stored)
                && self.health(&status.conditions).iter().all(is_stored)
                && self.may_be_unknown().all(|(_, wanted)| wanted.is_none_or(is_stored))
        })
    }

    /// The condition `Updated`.
    fn updated(&self) -> DesiredCondition {
        let Counts { nodes, updated, pending, in_use, .. } = self.counts;
        let (status, reason, message) = if nodes == 0 {
            (ConditionStatus::Unknown, "NoNodes", "no node is opted in")
        } else if pending + in_use > 0 {
            (ConditionStatus::False, "UpdatesPending", "there is an update that is not done on each node")
        } else if updated < nodes {
            (ConditionStatus::Unknown, "NotReported", "a node has not reported, or cannot look for updates")
        } else {
            (ConditionStatus::True, "NoUpdate", "there is no update for any node")
        };
        DesiredCondition::of(UPDATED, status, reason, message)
    }

    /// The conditions that may not be known, by their types.
    fn may_be_unknown(&self) -> impl Iterator<Item = (&'static str, Option<&DesiredCondition>)> {
        let known = [&self.admission, &self.other_operator].map(Option::as_ref);
        [ADMISSION_ENFORCED, OTHER_OPERATOR].into_iter().zip(known)
    }

    /// The Event about what is in the way of all updates, if this fleet does not say so yet.
    pub fn new_obstacle(&self, fleet: &BottlerocketFleet) -> Option<EventText> {
        let stored = fleet.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let obstacle = |wanted: Option<&DesiredCondition>, status, reason, action: &str| {
            let wanted = wanted.filter(|wanted| wanted.status == status)?;
            let told = |it: &Condition| it.type_ == wanted.type_ && it.status == status;
            if stored.iter().any(told) {
                return None;
            }
            let note = format!("no update starts: {}", wanted.message);
            Some(EventText { reason, warning: true, note, action: action.to_owned() })
        };
        obstacle(self.other_operator.as_ref(), ConditionStatus::True, "OtherOperator", "LookAround").or_else(
            || obstacle(self.admission.as_ref(), ConditionStatus::False, "AdmissionNotEnforced", "DryRun"),
        )
    }

    /// The status to apply to the fleet. Where somebody else has put a field that should not be there, two such patches
    /// are needed.
    pub fn patch(&self, fleet: &BottlerocketFleet, now: &str) -> Value {
        let generation = generation(&fleet.metadata);
        let conditions = fleet.status.as_ref().map_or(&[][..], |status| &status.conditions);
        // A condition that is not known is applied as it is stored: if it were left out, it would be removed.
        let kept = |type_| conditions.iter().find(|condition| condition.type_ == type_).cloned();
        let known = self.may_be_unknown().filter_map(|(type_, wanted)| {
            wanted.map(|wanted| wanted.stored_over(conditions, generation, now)).or_else(|| kept(type_))
        });
        let mut status =
            json!({"counts": self.counts, "limit": self.limit, "observedGeneration": generation});
        // Server-side apply removes only what we have applied. What somebody else has put there is overwritten first.
        let halted = fleet.status.as_ref().and_then(|status| status.halted.as_deref());
        if let Some(halted) = self.halted.as_deref().or(halted.filter(|text| !text.is_empty()).map(|_| "")) {
            status["halted"] = json!(halted);
        }
        let health = self.health(conditions);
        let updated = self.updated();
        let always = [&self.halt, &self.idle, &updated].into_iter().chain(&health);
        let always = always.map(|wanted| wanted.stored_over(conditions, generation, now));
        status["conditions"] = json!(known.chain(always).collect::<Vec<_>>());
        json!({
            "apiVersion": BottlerocketFleet::api_version(&()),
            "kind": BottlerocketFleet::kind(&()),
            "metadata": {"name": names::FLEET, "uid": fleet.metadata.uid},
            "status": status,
        })
    }
}

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    /// `reason`: a stable word.
    pub reason: &'static str,
    /// Is it of the type Warning?
    pub warning: bool,
    /// `note`: a sentence.
    pub note: String,
    /// `action`: what was being done. It names the attempt, so that the Events of two attempts are not merged into one.
    pub action: String,
}

impl EventText {
    fn new(view: &NodeView<'_>, reason: &'static str, warning: bool, note: String) -> Self {
        let attempt = view.shadow.and_then(|shadow| shadow.spec.attempt).unwrap_or(0);
        Self { reason, warning, note, action: format!("UpdateAttempt{attempt}") }
    }

    /// Is it published on the Node, too? What begins and what ends an update is, and all that is wrong. Steps between are told
    /// by the shadow's condition: each Event is a write to the API server.
    pub fn concerns_node(&self) -> bool {
        self.warning || matches!(self.reason, "UpdateStarted" | "UpdateAdopted" | "Updated" | "OptedOut")
    }

    /// Note and action as they are published: they may quote agents, hosts and API servers. Events that differ in nothing but
    /// their notes would be merged, and the later note lost; so the action tells them apart.
    pub fn printable(&self) -> (String, String) {
        let mut hasher = DefaultHasher::new();
        self.note.hash(&mut hasher);
        let which = format!("-{:08x}", hasher.finish() & 0xffff_ffff);
        let action = printable(&self.action, MAX_ACTION - which.len());
        (printable(&self.note, MAX_NOTE).into_owned(), format!("{action}{which}"))
    }

    /// The Event of this milestone.
    pub fn of_milestone(view: &NodeView<'_>, milestone: Milestone) -> Option<Self> {
        let shadow = view.shadow?;
        let version = shadow.spec.version.unwrap_or("its new version");
        let current = shadow.status.current_version.unwrap_or("an unknown version");
        let (reason, warning, note) = match milestone {
            Milestone::Started => {
                let to = shadow.update().unwrap_or(version);
                ("UpdateStarted", false, format!("the update from {current} to {to} begins"))
            }
            Milestone::Adopted => {
                ("UpdateAdopted", false, format!("an update to {version} that was in progress is taken over"))
            }
            Milestone::Cordoned if !is_persons_cordon(view) => return None,
            Milestone::Cordoned => (
                "StaysCordoned",
                false,
                format!("the node is drained for {version}; it was cordoned before, and stays cordoned"),
            ),
            Milestone::CordonedAgain => {
                let note = format!(
                    "somebody uncordoned the node during its drain for {version}, so pods may have come: it is drained \
                     again; to keep it in service, annotate it with {}=true",
                    names::PAUSE_ANNOTATION
                );
                ("CordonedAgain", true, note)
            }
            Milestone::PodsLeft => ("PodsLeft", true, left_pods(view.pods.returning)),
            Milestone::Updated => ("Updated", false, format!("the node runs {version}")),
            Milestone::Aborted(why) => {
                let (left, why) = (left_behind(&shadow, why), Reason::Aborting(why).message());
                ("UpdateAborted", true, format!("{why} ({current}, wanted {version}){left}"))
            }
            Milestone::Removed => (
                "UpdatedNodeRemoved",
                false,
                format!(
                    "the node {} was deleted soon after its update to {version}; if that goes on, an autoscaler removes what \
                     is updated: docs/operations.md says under Autoscalers what to set",
                    names::node_of_shadow(view.shadow_name).unwrap_or(view.shadow_name)
                ),
            ),
            Milestone::OptedOut => (
                "OptedOut",
                false,
                format!(
                    "the label {}={} is gone, so the node is no longer updated: it ran {current}",
                    names::UPDATER_INTERFACE_LABEL,
                    names::UPDATER_INTERFACE_VERSION
                ),
            ),
        };
        Some(Self::new(view, reason, warning, note))
    }

    /// The Event for versions that are halted now; `None` if there are none.
    pub fn of_halts(halted: &[Halted<'_>]) -> Option<Self> {
        let each = halted.iter().map(|halted| format!("{}: {}", halted.version, halted.why));
        let note = each.collect::<Vec<_>>().join("; ");
        let action = halted.first()?.version;
        Some(Self {
            reason: "VersionHalted",
            warning: true,
            note: format!(
                "no further node is updated to these versions, because too many nodes failed to reach them: {note}"
            ),
            action: format!("Update to {action}"),
        })
    }

    /// The Event of the node of this name, when the reconciler has opted it in (`AUTO_LABEL`).
    pub fn of_opt_in(node: &str) -> Self {
        let label = names::UPDATER_INTERFACE_LABEL;
        Self {
            reason: "OptedIn",
            warning: false,
            note: format!(
                "labelled {label}={}, because it runs Bottlerocket (AUTO_LABEL); to opt it out: kubectl label node {node} \
                 {label}={} --overwrite",
                names::UPDATER_INTERFACE_VERSION,
                names::LEFT_OUT
            ),
            action: AUTO_LABEL.to_owned(),
        }
    }

    /// The Event of a node that could not be opted in. `why` is the answer of the API server, or the error on the way to
    /// it.
    pub fn of_no_opt_in(why: &str) -> Self {
        let ours = ["ValidatingAdmissionPolicy", names::LABEL_RULE].iter().all(|part| why.contains(part));
        let note = if ours {
            "AUTO_LABEL is true, but the policy does not let the reconciler label nodes: apply an overlay with the component \
             auto-label, or set AUTO_LABEL to false"
                .to_owned()
        } else {
            format!("AUTO_LABEL is true, but this node could not be labelled: {why}")
        };
        Self { reason: "NotOptedIn", warning: true, note, action: AUTO_LABEL.to_owned() }
    }

    /// The Event of a drain that is held up: which eviction is refused, and in which words.
    pub fn of_refusal(view: &NodeView<'_>, pod: &PodKey, why: &str) -> Self {
        let note = format!("{}/{} is not evicted: {why}", pod.namespace, pod.name);
        Self::new(view, "DrainBlocked", true, note)
    }

    /// The Event of a node whose reason becomes this one without a write of ours; `None` for most reasons.
    pub fn of_reason(view: &NodeView<'_>, reason: &Reason<'_>) -> Option<Self> {
        let (word, warning) = match reason {
            Reason::RebootOverdue(_) => ("RebootOverdue", true),
            _ => return None,
        };
        Some(Self::new(view, word, warning, reason.message().into_owned()))
    }
}

/// Has a person cordoned the node, before its drain?
fn is_persons_cordon(view: &NodeView<'_>) -> bool {
    view.node.is_some_and(|node| {
        node.unschedulable && node.marker.is_none_or(|marker| marker.cordoned_at.is_none())
    })
}

/// Why a node that has a slot for this version has not begun: the spec of its shadow is not stored.
pub fn not_stored_yet(version: &str) -> String {
    format!(
        "the update to {version} begins: the API server has not stored the reconciler's first write yet; if that lasts, see the \
         fleet's condition AdmissionEnforced and the log of the reconciler that leads"
    )
}

/// What becomes of pods of these workloads, which came back each time that they were evicted.
pub fn left_pods(owners: &[String]) -> String {
    format!(
        "pods of {} came back each time they were evicted: they stay until the host reboots",
        owners.join(", ")
    )
}

/// What an attempt that is given up leaves on the host, as the end of a sentence; empty if nothing.
fn left_behind(shadow: &ShadowFacts<'_>, why: Abort) -> String {
    let (status, spec) = (&shadow.status, &shadow.spec);
    match spec.version {
        _ if status.attempt != spec.attempt => String::new(),
        // It runs what it booted into, and nothing is undone.
        _ if matches!(why, Abort::FellBack | Abort::FellBackDeactivated)
            || spec.version == status.current_version =>
        {
            String::new()
        }
        // The DaemonSet's pod went with the label.
        Some(version) if why == Abort::NotLabelled => format!(
            "; its agent is gone and cannot undo anything: if {version} was activated, it stays so, and the host's next \
             reboot will boot it"
        ),
        _ if why == Abort::NotLabelled => String::new(),
        _ => "; its agent undoes its changes to the host".to_owned(),
    }
}

#[cfg(test)]
mod tests;
