//! Texts of Events, and which Events there are.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::VersionRecord;
use brupop_api::names;
use brupop_api::printable::printable;

use super::what_to_do;
use crate::decide::{Abort, Reason, Step, why_halted};
use crate::drain::PodKey;
use crate::facts::NodeView;
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
        let version = shadow.spec.version.unwrap_or("its new version");
        let current = shadow.status.current_version;
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
            Step::Finish { workloads_back } if workloads_back => {
                ("Updated", false, format!("the node runs {version}"))
            }
            Step::Finish { .. } => {
                let owner = match view.evicted {
                    Evicted::Missing(owner) => owner,
                    Evicted::Back | Evicted::Unknown => "a workload",
                };
                let note = format!(
                    "the node runs {version}, but {owner}, whose pods were evicted from it, still has fewer pods available than \
                     before; the node gives its slot back: repair the workload"
                );
                ("UpdatedWithoutWorkloads", true, note)
            }
            Step::Abort(why) => {
                let (left, what_to_do) = (left_behind(&shadow, why), what_to_do(why.remedy()));
                let why = Reason::Aborting(why).message();
                let note = format!("{why} ({current}, wanted {version}){left}{what_to_do}");
                ("UpdateAborted", true, note)
            }
            Step::DeleteShadow { just_updated: true } => {
                let note = format!(
                    "the node {} was deleted soon after its update to {version}; if this happens again, an autoscaler may remove \
                     updated nodes: see Autoscalers in docs/operations.md",
                    names::node_of_shadow(view.shadow_name).unwrap_or(view.shadow_name)
                );
                ("UpdatedNodeRemoved", false, note)
            }
            Step::DeleteShadow { .. } if view.node.is_some_and(|node| !node.labelled) => {
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
    match spec.version {
        _ if status.attempt != spec.attempt => String::new(),
        // The host already runs the image that it would undo.
        _ if why == Abort::FellBack || spec.version == status.current_version => String::new(),
        // The DaemonSet's pod went with the label.
        Some(version) if why == Abort::NotLabelled => format!(
            "; its agent is gone and cannot undo anything: if {version} is activated, the host boots it at its next reboot"
        ),
        _ if why == Abort::NotLabelled => String::new(),
        _ => "; its agent undoes its changes to the host".to_owned(),
    }
}

#[cfg(test)]
mod tests;
