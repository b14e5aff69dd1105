//! What is told of a step or an outcome: Events, and how long updates and their phases took.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use brupop_api::conditions::{ConditionStatus, UPDATE_AVAILABLE};
use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::printable::printable;
use brupop_api::shadow::ShadowFacts;
use brupop_api::{BottlerocketShadow, State, names};
use jiff::{SignedDuration, Timestamp};

use super::{found, shadow_conditions, what_to_do};
use crate::cluster::{Cluster, NodeRecord};
use crate::decide::{Abort, Decisions, NOT_RETURNED, Reason, Step, why_halted};
use crate::drain::PodKey;
use crate::facts::{FleetFacts, NodeView};
use crate::objects::read_time;
use crate::workloads::Evicted;

/// The action in Events about opting in.
const AUTO_LABEL: &str = "AutoLabel";
/// Longest `note` of an Event that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;
/// Longest `action` that it takes.
const MAX_ACTION: usize = 128;
/// Most pods that one Event names.
const PODS_NAMED: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    /// The field `reason`: a stable word.
    pub reason: &'static str,
    /// Whether it is of the type Warning.
    pub warning: bool,
    /// The field `note`: a sentence.
    pub note: String,
    /// `action`: what was being done. It names the attempt, so that the Events of two attempts are not merged into one.
    pub action: String,
}

impl EventText {
    fn new(view: &NodeView<'_>, reason: &'static str, warning: bool, note: String) -> Self {
        let attempt = view
            .shadow
            .and_then(|shadow| shadow.spec.attempt)
            .unwrap_or(0);
        Self {
            reason,
            warning,
            note,
            action: format!("UpdateAttempt{attempt}"),
        }
    }

    /// Note and action as they are published: they may quote agents, hosts and API servers. Events that differ in nothing but
    /// their notes would be merged, and the later note lost; so the action tells them apart.
    pub fn printable(&self) -> (String, String) {
        let mut hasher = DefaultHasher::new();
        self.note.hash(&mut hasher);
        let which = format!("-{:08x}", hasher.finish() & 0xffff_ffff);
        let action = printable(&self.action, MAX_ACTION - which.len());
        (
            printable(&self.note, MAX_NOTE).into_owned(),
            format!("{action}{which}"),
        )
    }

    /// The Event of this step, if people are told of it.
    pub fn of_step(view: &NodeView<'_>, step: Step<'_>) -> Option<Self> {
        let shadow = view.shadow?;
        let version = shadow.spec.version.as_deref().unwrap_or("its new version");
        let current = shadow.status.current_version.as_deref();
        let current = current.unwrap_or("an unknown version");
        let (reason, warning, note) = match step {
            Step::Stage(to) => {
                let note = format!("the update from {current} to {to} begins");
                ("UpdateStarted", false, note)
            }
            Step::Cordon if view.node?.unschedulable => {
                let note = format!(
                    "the node is drained for {version}; it was cordoned before, and stays cordoned"
                );
                ("StaysCordoned", false, note)
            }
            Step::CordonAgain => {
                let note = format!(
                    "somebody uncordoned the node during its drain for {version}, so it may have new pods, and is drained again; \
                     to keep it in service, annotate it with {}=true",
                    names::PAUSE_ANNOTATION
                );
                ("CordonedAgain", true, note)
            }
            Step::Grant => {
                let plan = view
                    .led
                    .plan
                    .as_ref()
                    .filter(|plan| !plan.left.is_empty())?;
                ("PodsLeft", true, left_pods(&plan.left))
            }
            Step::Finish if let Evicted::Missing(owner) = view.evicted => {
                let note = format!(
                    "the node runs {version}, but {owner}, whose pods were evicted from it, still has fewer pods available than \
                     before; the node gives its slot back: repair the workload"
                );
                ("UpdatedWithoutWorkloads", true, note)
            }
            Step::Finish => ("Updated", false, format!("the node runs {version}")),
            Step::Abort(why) => {
                let (left, what_to_do) = (left_behind(&shadow, why), what_to_do(why.remedy()));
                let why = Reason::Aborting(why).message();
                let current = view.node.and_then(|node| node.version()).unwrap_or(current);
                let note = format!("{why} ({current}, wanted {version}){left}{what_to_do}");
                ("UpdateAborted", true, note)
            }
            Step::DeleteShadow if view.is_removed_after_update() => {
                let note = format!(
                    "the node {} was deleted soon after its update to {version}; if this happens again, an autoscaler may remove \
                     updated nodes: see Autoscalers in docs/operations.md",
                    names::node_of_shadow(view.shadow_name).unwrap_or(view.shadow_name)
                );
                ("UpdatedNodeRemoved", false, note)
            }
            Step::DeleteShadow if view.is_opted_out() => {
                let note = format!(
                    "the label {}={} is gone, so the node is no longer updated; it runs {current}",
                    names::UPDATER_INTERFACE_LABEL,
                    names::UPDATER_INTERFACE_VERSION
                );
                ("OptedOut", false, note)
            }
            _ => return None,
        };
        Some(Self::new(view, reason, warning, note))
    }

    /// The Event for versions that are halted now; `None` if there are none.
    pub fn of_halts(halted: &[VersionRecord]) -> Option<Self> {
        let each = halted.iter().map(|halted| {
            let (version, variant) = (&halted.version, &halted.variant);
            format!("{version} for {variant}: {}", why_halted(halted))
        });
        let note = each.collect::<Vec<_>>().join("; ");
        let action = &halted.first()?.version;
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
        let ours = ["ValidatingAdmissionPolicy", names::LABEL_RULE]
            .iter()
            .all(|part| why.contains(part));
        let note = if ours {
            "AUTO_LABEL is true, but the policy does not let the reconciler label nodes: apply an overlay with the component \
             auto-label, or set AUTO_LABEL to false"
                .to_owned()
        } else {
            format!("AUTO_LABEL is true, but this node could not be labelled: {why}")
        };
        Self {
            reason: "NotOptedIn",
            warning: true,
            note,
            action: AUTO_LABEL.to_owned(),
        }
    }

    /// The Event of a drain that is held up: the pod whose eviction is refused, and the refusal.
    pub fn of_refusal(view: &NodeView<'_>, pod: &PodKey, why: &str) -> Self {
        let note = format!("{}/{} is not evicted: {why}", pod.namespace, pod.name);
        Self::new(view, "DrainBlocked", true, note)
    }

    /// The Event of a node whose reason becomes this one without a write of ours; `None` for most reasons.
    pub fn of_reason(view: &NodeView<'_>, reason: &Reason<'_>, message: &str) -> Option<Self> {
        let (word, warning) = match reason {
            Reason::RebootOverdue(_) => ("RebootOverdue", true),
            Reason::NodeChangesDenied(_) => ("NodeChangesDenied", true),
            Reason::NotUnderstood(_) | Reason::ShadowUnreadable(_) => ("NotUnderstood", true),
            _ => return None,
        };
        Some(Self::new(view, word, warning, message.to_owned()))
    }
}

/// Says that the drain does not wait for these pods. Names some of them.
fn left_pods(pods: &[PodKey]) -> String {
    let first = pods.iter().take(PODS_NAMED);
    let names: Vec<_> = first
        .map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect();
    let more = match pods.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "these pods tolerate the cordon and came after it, so they stay until the host reboots: {}{more}",
        names.join(", ")
    )
}

/// Says, as the end of a sentence, what an attempt that is given up leaves on the host; empty if it leaves nothing.
fn left_behind(shadow: &ShadowFacts<'_>, why: Abort) -> String {
    let (status, spec) = (&shadow.status, &shadow.spec);
    match spec.version.as_deref() {
        _ if status.attempt != spec.attempt => String::new(),
        // The host already runs the image that it would undo.
        _ if matches!(why, Abort::FellBack | Abort::NotConfirmed) => String::new(),
        _ if spec.version == status.current_version => String::new(),
        // The DaemonSet's pod went with the label.
        Some(version) if why == Abort::NotLabelled => format!(
            "; its agent is gone and cannot undo anything: if {version} is activated, the host boots it at its next reboot"
        ),
        _ if why == Abort::NotLabelled => String::new(),
        _ => "; its agent undoes its changes to the host".to_owned(),
    }
}

// The result of an update, and the durations of its phases. All of it is computed from what stands in the cluster at the
// moment of the write that ends the phase, so it does not matter which process led meanwhile.

brupop_api::words! {
    /// A part of an update. They follow one another without a gap; what an update that is given up was at is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Phase {
        /// From when the update was known, or the last attempt ended, until the node got its slot.
        Waiting => "waiting",
        /// From the slot until the first change of the Node: the host downloads and activates, then budgets are waited for.
        Staging => "staging",
        /// From that change until the reboot is granted: load balancers forget the node, and its pods go.
        Draining => "draining",
        /// From the grant until the node is back in service.
        Rebooting => "rebooting",
        /// From then until the update counts as done.
        Soaking => "soaking",
    }
}

/// An outcome that is known once a write is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A phase is over, and took so long.
    Phase(Phase, SignedDuration),
    /// A Node was deleted soon after its update.
    Removed,
    /// An update of this pool has ended although a workload has not come back.
    WithoutWorkloads(String),
    Update {
        /// Its result, one of the words of [`results`].
        result: &'static str,
        /// From its slot on; `None` if it did not reach its version, or nobody knows since when it has had its slot.
        took: Option<SignedDuration>,
    },
}

/// The node runs the wanted version, and is in service.
const UPDATED: &str = "Updated";
/// The update was given up for what is no failure of the node, such as a person's pause.
const GIVEN_UP: &str = "GivenUp";
/// The slot was taken, but not wanted any more.
const NOT_BEGUN: &str = "NotBegun";
/// The Node or its shadow was deleted meanwhile.
const NODE_GONE: &str = "NodeGone";
/// It failed in a way that only another release of the operator knows.
const OTHER: &str = "Other";

/// Each word that says what became of an update: our own, and those of failures.
pub fn results() -> impl Iterator<Item = &'static str> {
    let failures = Abort::WORDS.iter().copied();
    let failures = failures.filter(|word| Abort::of_word(word).is_some_and(Abort::is_failure));
    [UPDATED, GIVEN_UP, NOT_BEGUN, NODE_GONE, NOT_RETURNED, OTHER]
        .into_iter()
        .chain(failures)
}

/// Returns what is over once this step is taken; updates are over with their slots.
pub fn ended_by(
    cluster: &Cluster,
    fleet: &FleetFacts<'_>,
    view: &NodeView<'_>,
    step: Step<'_>,
) -> Vec<Ended> {
    let phase = phase_ended_by(cluster, fleet, view, step);
    let other = match step {
        Step::DeleteShadow if view.is_removed_after_update() => Some(Ended::Removed),
        Step::Finish if matches!(view.evicted, Evicted::Missing(_)) => {
            let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
            Some(Ended::WithoutWorkloads(pool.to_owned()))
        }
        _ => None,
    };
    phase.into_iter().chain(other).collect()
}

fn phase_ended_by(
    cluster: &Cluster,
    fleet: &FleetFacts<'_>,
    view: &NodeView<'_>,
    step: Step<'_>,
) -> Option<Ended> {
    let now = read_time(Some(fleet.now))?;
    let record = cluster.records.get(view.shadow_name)?;
    let (shadow, spec) = (record.shadow()?, &record.shadow()?.spec);
    let transition = || read_time(spec.state_transition_timestamp.as_deref());
    let slot_since = || read_time(view.held()?.since.as_deref());
    let (phase, since, until) = match step {
        Step::Stage(_) => {
            let known = read_time(update_known_since(shadow))?;
            let ended = transition().unwrap_or(known);
            (Phase::Waiting, known.max(ended), slot_since()?)
        }
        Step::Exclude | Step::Cordon if node_changed_since(record).is_none() => {
            (Phase::Staging, slot_since()?, now)
        }
        // A grant that was taken back and is given once more ends no drain that was not counted.
        Step::Grant if spec.state == State::StagedAndPerformedUpdate => {
            (Phase::Draining, node_changed_since(record)?, now)
        }
        // A host that rebooted by itself needed no grant, and nobody saw when it began.
        Step::Monitor if spec.reboot_granted_boot_id.is_some() => {
            (Phase::Rebooting, transition()?, now)
        }
        Step::Finish => (Phase::Soaking, transition()?, now),
        _ => return None,
    };
    Some(Ended::Phase(phase, lasted(since, until)))
}

/// The updates that are over once these slots are given back.
pub fn updates_of(
    fleet: &FleetFacts<'_>,
    views: &[NodeView<'_>],
    decisions: &Decisions<'_>,
) -> Vec<Ended> {
    let now = read_time(Some(fleet.now));
    let over = decisions.freed.iter().map(|&(_, slot, index)| {
        let result = result(slot, index.and_then(|index| views.get(index)));
        let since = read_time(slot.since.as_deref()).filter(|_| result == UPDATED);
        Ended::Update {
            result,
            took: since.zip(now).map(|(since, now)| lasted(since, now)),
        }
    });
    over.collect()
}

/// Returns what became of the update that had this slot.
fn result(slot: &Slot, view: Option<&NodeView<'_>>) -> &'static str {
    let view = view.filter(|view| view.holds(slot) && view.node.is_some());
    let Some(view) = view else {
        return if slot.lost { NOT_RETURNED } else { NODE_GONE };
    };
    if let Some(failure) = view.failure_in(slot) {
        return Abort::of_word(&failure.reason).map_or(OTHER, |abort| abort.as_str());
    }
    // An attempt that is skipped has no version.
    let Some(version) = view
        .shadow
        .and_then(|shadow| shadow.spec.version.as_deref())
    else {
        return NOT_BEGUN;
    };
    let runs = view.node.and_then(|node| node.version());
    if runs == Some(version) {
        UPDATED
    } else {
        GIVEN_UP
    }
}

/// Returns since when the host of this shadow has known of an update that it does not run yet, as its condition says.
pub fn update_known_since(shadow: &BottlerocketShadow) -> Option<&str> {
    let known = found(shadow_conditions(shadow), UPDATE_AVAILABLE)?;
    (known.status == ConditionStatus::True).then_some(known.last_transition_time.as_str())
}

/// Returns since when the Node carries a change for its update.
fn node_changed_since(record: &NodeRecord) -> Option<Timestamp> {
    let marker = record.marker()?;
    let since = marker
        .excluded_at
        .as_ref()
        .or(marker.drain_started_at.as_ref());
    read_time(since.map(String::as_str))
}

/// The clocks of two leaders may differ, so an end may lie before its beginning.
fn lasted(since: Timestamp, until: Timestamp) -> SignedDuration {
    until.duration_since(since).max(SignedDuration::ZERO)
}

#[cfg(test)]
mod tests {
    mod phases;
    mod texts;
}
