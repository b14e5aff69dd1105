//! What to do for a node now, and why not more: pure functions from facts to writes.
//!
//! Each write tests the facts that it was decided on, so the API server refuses a write that was decided on a stale
//! view. The model checker runs these very functions.

mod age;
mod behind;
mod boot;
mod decision;
mod disruption;
mod drain;
mod idle;
mod order;
pub(crate) mod pool;
mod reason;
mod room;
mod slots;
mod update;
mod versions;
mod writes;

use std::collections::BTreeMap;

use crate::facts::{FirstPoolStanding, Observed};
use crate::facts::{FleetFacts, NodeFacts, NodeView, UnmanagedNode};
use crate::objects::runs_bottlerocket;
use crate::window::Starts;
use brupop_api::fleet::Slot;
use brupop_api::{Field, Object, State, Value, Write, names};
use decision::Case;
pub use decision::{Decision, Effect, Milestone};
pub use idle::candidates;
use order::Survey;
pub(crate) use pool::goes_back;
pub(crate) use reason::OVERGROWN;
pub use reason::{
    Abort, DrainStep, Gone, LimitScope, Missing, MonitorStep, Named, OtherOperator, Reason,
    RebootStep, Silence, StagingStep, TO_GO_ON, TOO_MANY_PODS, TooManyFailures, Turn, UsedUp,
};
use slots::Holders;
pub(crate) use slots::version_for;
pub use slots::{Slots, slots};
pub(crate) use versions::NOT_RETURNED;
pub use versions::{Halted, why_halted};
pub use writes::{new_shadow, new_term};

/// What to do in the whole fleet.
#[derive(Clone, Debug)]
pub struct FleetDecision<'a> {
    /// What becomes of the ledger.
    pub slots: Slots<'a>,
    /// What to do for each node, in the order of the views.
    pub nodes: Vec<Decision<'a>>,
}

/// What to do in the whole fleet now, and for each node why not more.
pub fn fleet<'o>(observed: &'o Observed<'_>) -> FleetDecision<'o> {
    let Observed {
        fleet,
        views,
        unreadable,
        ..
    } = observed;
    let holders = Holders::of(fleet, views);
    let with_slots = views.iter().zip(holders.held(views));
    let survey = Survey::of(fleet, with_slots.clone());
    let slots = slots::of_holders(fleet, views, &holders, &survey);
    let mut nodes: Vec<Decision<'o>> = with_slots
        .clone()
        .map(|(view, slot)| node_holding(fleet, view, slot))
        .collect();
    let starting = slots.taken.iter().map(|&at| {
        (
            at,
            Reason::Staging(StagingStep::Begins(version_for(&views[at]).unwrap_or(""))),
        )
    });
    for (at, reason) in slots.queued.iter().copied().chain(starting) {
        if nodes[at].effect.is_none() {
            nodes[at].reason = reason;
        }
    }
    let waiting = disruption::Waiting::of(views, holders.held(views), &nodes);
    for (decision, (view, slot)) in nodes.iter_mut().zip(with_slots) {
        disruption::release(fleet, view, slot, &waiting, decision);
    }
    for (&at, why) in unreadable {
        nodes[at] = Decision::wait(Reason::NotUnderstood(why));
    }
    name_those_behind(fleet, views, &survey, &mut nodes);
    behind::name_missing(fleet, views, &mut nodes);
    FleetDecision { slots, nodes }
}

/// Names, with each node that waits for a pool, the node that keeps that pool from being done.
fn name_those_behind<'o>(
    fleet: &FleetFacts<'o>,
    views: &[NodeView<'o>],
    survey: &Survey<'o>,
    nodes: &mut [Decision<'o>],
) {
    let mut behind = BTreeMap::new();
    for (decision, view) in nodes.iter_mut().zip(views) {
        let Reason::WaitingForPool(first) = &mut decision.reason else {
            continue;
        };
        let Some(version) = version_for(view) else {
            continue;
        };
        let found = || survey.behind(first.pool, version, fleet.versions);
        if first.standing == FirstPoolStanding::NotDone
            && let Some(node) = *behind.entry((first.pool, version)).or_insert_with(found)
        {
            first.standing = FirstPoolStanding::Behind(node);
        }
    }
}

/// What to do for one node now, if no other waits.
pub fn node<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Decision<'a> {
    let slot = view.slot(fleet);
    let mut decision = node_holding(fleet, view, slot);
    disruption::release(
        fleet,
        view,
        slot,
        &disruption::Waiting::none(),
        &mut decision,
    );
    decision
}

/// Decides for a node that has this slot. What the API server does not let us undo, or write of the shadow, is told as that.
fn node_holding<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    slot: Option<&'a Slot>,
) -> Decision<'a> {
    let mut decision = decided(fleet, view, slot);
    let write = match &mut decision.effect {
        Some(Effect::Write(write)) if matches!(write.object, Object::Node(_)) => Some(write),
        _ => None,
    };
    if let Some((write, past)) = write.zip(view.past_retry()) {
        write
            .tests
            .push((Field::Retry, Value::Text(past.to_string().into())));
        write.sets.push((Field::Retry, Value::Absent));
    }
    let undoes = matches!(
        decision.reason,
        Reason::Monitoring(MonitorStep::Returns) | Reason::Finishing | Reason::NotLabelled
    );
    let denied = match &decision.effect {
        None | Some(Effect::Evict | Effect::Delete) => None,
        Some(Effect::Write(write)) if matches!(write.object, Object::Node(_)) => {
            view.denied.filter(|_| undoes)
        }
        Some(_) => view.shadow_denied,
    };
    match denied {
        Some(why) => Decision {
            reason: Reason::NodeChangesDenied(why),
            ..decision
        },
        None => decision,
    }
}

/// Stands in a sentence: a kubelet's first report may lack it, and then nobody knows whether the host has rebooted.
const NO_BOOT_ID: &str = "its kubelet reports no boot ID (status.nodeInfo.bootID)";

fn decided<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    slot: Option<&'a Slot>,
) -> Decision<'a> {
    if fleet.ledger_term != Some(fleet.term) {
        return Decision::wait(Reason::NotLeading);
    }
    let Some(node) = view.node else {
        return without_node(view);
    };
    let Some(shadow) = view.shadow else {
        return without_shadow(&node);
    };
    if view.owner_uid.is_some_and(|owner| owner != node.uid) {
        return Decision::carry_out(
            Effect::DeleteShadow { uid: shadow.uid },
            Reason::NodeGone(Gone::Replaced),
        );
    }
    if let Some(marker) = node.marker
        && (marker.shadow_uid != shadow.uid || Some(marker.attempt) != shadow.spec.attempt)
    {
        return undo_when_ready(&node, Reason::Monitoring(MonitorStep::Returns));
    }
    if shadow.is_of_other_operator() {
        return Decision::wait(Reason::OtherOperator(OtherOperator::LeftUpdate));
    }
    let case = Case {
        fleet,
        view,
        node: &node,
        shadow: &shadow,
        slot,
    };
    match shadow.spec.state {
        State::Idle | State::ErrorReset => case.idle(),
        State::StagedAndPerformedUpdate | State::RebootedIntoUpdate if node.boot_id.is_empty() => {
            Decision::wait(Reason::NotUnderstood(NO_BOOT_ID))
        }
        State::StagedAndPerformedUpdate => case.staged(),
        State::RebootedIntoUpdate => case.rebooted(),
        State::MonitoringUpdate => case.monitoring(),
    }
}

/// The Node is gone, so its shadow is deleted: the garbage collector would do that, too, but perhaps much later.
fn without_node<'a>(view: &NodeView<'a>) -> Decision<'a> {
    let Some(shadow) = view.shadow else {
        return Decision::wait(Reason::NodeGone(Gone::Deleted));
    };
    let in_service = matches!(shadow.spec.state, State::Idle | State::MonitoringUpdate);
    let updated = in_service
        && shadow
            .spec
            .version
            .is_some_and(|it| shadow.status.current_version == Some(it));
    let milestone = (updated && view.time.removed_soon).then_some(Milestone::Removed);
    let delete = Effect::DeleteShadow { uid: shadow.uid };
    Decision {
        milestone,
        ..Decision::carry_out(delete, Reason::NodeGone(Gone::Deleted))
    }
}

/// A labelled node gets a shadow. On a node that lost both label and shadow, our changes are undone.
fn without_shadow<'a>(node: &NodeFacts<'a>) -> Decision<'a> {
    if node.labelled {
        let attempt = node.marker.map(|marker| marker.attempt + 1);
        return Decision::carry_out(
            Effect::CreateShadow { attempt },
            Reason::AgentSilent(Silence::NoReport),
        );
    }
    match node.marker {
        Some(_) => undo_when_ready(node, Reason::NotLabelled),
        None => Decision::wait(Reason::NotLabelled),
    }
}

/// Undoes everything that the marker names, once the node is Ready: until then it may be rebooting. A marker that names no
/// change, but only the owners of evicted pods, goes at once.
fn undo_when_ready<'a>(node: &NodeFacts<'a>, reason: Reason<'a>) -> Decision<'a> {
    match node.marker {
        Some(marker) if node.ready || !marker.holds_changes() => {
            Decision::write(writes::undo(node, marker), reason)
        }
        _ => Decision::wait(Reason::NodeNotReady),
    }
}

/// The write that labels this node, if it runs Bottlerocket and does not have the label. With any value of the label,
/// somebody has decided about the node, and it is left alone. While the fleet is paused, or another operator would update the
/// node, too, no node is labelled.
pub fn opt_in<'a>(fleet: &FleetFacts<'a>, node: &UnmanagedNode<'a>) -> Option<Write<'a>> {
    let wanted = fleet.ledger_term == Some(fleet.term)
        && fleet.starts != Starts::Paused
        && fleet.alone
        && node.label.is_none()
        && runs_bottlerocket(node.os_image)
        && !node.young;
    wanted.then(|| Write {
        object: Object::Node(node.name),
        tests: vec![
            (Field::Uid, Value::text(node.uid)),
            (Field::OsImage, Value::text(node.os_image)),
            (Field::UpdaterInterface, Value::Absent),
        ],
        sets: vec![(
            Field::UpdaterInterface,
            Value::text(names::UPDATER_INTERFACE_VERSION),
        )],
    })
}

#[cfg(test)]
mod tests;
