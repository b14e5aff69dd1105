//! What one node asks for: its next step, or why it waits. Which nodes get slots is not known yet.

use brupop_api::State;
use brupop_api::fleet::Slot;

use super::step::{Assessment, Case, Deletion, Step};
use super::{Gone, MonitorStep, OtherOperator, Reason, Silence};
use crate::facts::{FleetFacts, NodeView};
use crate::objects::NodeFacts;

/// The reason for a node whose kubelet's first report lacks it: nobody knows whether such a host has rebooted.
const NO_BOOT_ID: &str = "its kubelet reports no boot ID (status.nodeInfo.bootID)";

/// Assesses a node that has this slot. What the API server does not let us undo, or write of the shadow, is told as that.
pub(crate) fn assess<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    slot: Option<&'a Slot>,
) -> Assessment<'a> {
    let assessment = next_step(fleet, view, slot);
    let denied = match assessment.step {
        None | Some(Step::Evict | Step::DeletePods) => None,
        Some(step) if step.changes_node() => view.denied.filter(|_| step.undoes()),
        Some(_) => view.shadow_denied,
    };
    let reason = denied.map_or(assessment.reason, Reason::NodeChangesDenied);
    Assessment {
        reason,
        ..assessment
    }
}

fn next_step<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    slot: Option<&'a Slot>,
) -> Assessment<'a> {
    if fleet.ledger_term != Some(fleet.term) {
        return Assessment::wait(Reason::NotLeading);
    }
    let Some(node) = view.node else {
        return without_node(view);
    };
    let Some(shadow) = view.shadow else {
        return without_shadow(node);
    };
    if view
        .owner_uid
        .is_some_and(|owner| owner != node.uid.as_str())
    {
        return Assessment::take(
            Step::DeleteShadow(Deletion::NodeReplaced),
            Reason::NodeGone(Gone::Replaced),
        );
    }
    if let Some(marker) = node.marker()
        && (marker.shadow_uid != shadow.uid || Some(marker.attempt) != shadow.spec.attempt)
    {
        return undo_when_ready(node, Reason::Monitoring(MonitorStep::Returns));
    }
    if shadow.is_of_other_operator() {
        return Assessment::wait(Reason::OtherOperator(OtherOperator::LeftUpdate));
    }
    let case = Case {
        fleet,
        view,
        node,
        shadow: &shadow,
        slot,
    };
    match shadow.spec.state {
        State::Idle | State::ErrorReset => case.idle(),
        State::StagedAndPerformedUpdate | State::RebootedIntoUpdate
            if node.boot_id().is_empty() =>
        {
            Assessment::wait(Reason::NotUnderstood(NO_BOOT_ID))
        }
        State::StagedAndPerformedUpdate => case.staged(),
        State::RebootedIntoUpdate => case.rebooted(),
        State::MonitoringUpdate => case.monitoring(),
    }
}

/// The Node is gone, so its shadow is deleted: the garbage collector would do that, too, but perhaps much later.
fn without_node<'a>(view: &NodeView<'a>) -> Assessment<'a> {
    let gone = Reason::NodeGone(Gone::Deleted);
    let Some(shadow) = view.shadow else {
        return Assessment::wait(gone);
    };
    let in_service = matches!(shadow.spec.state, State::Idle | State::MonitoringUpdate);
    let updated =
        shadow.spec.version.is_some() && shadow.status.current_version == shadow.spec.version;
    let why = if in_service && updated && view.time.removed_soon {
        Deletion::UpdatedNodeGone
    } else {
        Deletion::NodeGone
    };
    Assessment::take(Step::DeleteShadow(why), gone)
}

/// A labelled node gets a shadow. On a node that lost both label and shadow, our changes are undone.
fn without_shadow(node: &NodeFacts) -> Assessment<'_> {
    if node.labelled {
        let attempt = node.marker().map(|marker| marker.attempt + 1);
        return Assessment::take(
            Step::CreateShadow { attempt },
            Reason::AgentSilent(Silence::NoReport),
        );
    }
    match node.marker() {
        Some(_) => undo_when_ready(node, Reason::NotLabelled),
        None => Assessment::wait(Reason::NotLabelled),
    }
}

/// Undoes everything that the marker names, once the node is Ready: until then it may be rebooting. A marker that names no
/// change, but only the owners of evicted pods, goes at once.
pub(super) fn undo_when_ready<'a>(node: &'a NodeFacts, reason: Reason<'a>) -> Assessment<'a> {
    match node.marker() {
        Some(marker) if node.is_ready() || !marker.holds_changes() => {
            Assessment::take(Step::Undo, reason)
        }
        _ => Assessment::wait(Reason::NodeNotReady),
    }
}
