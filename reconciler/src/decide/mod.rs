//! What to do for a node now, and why not more: pure functions from facts to writes.
//!
//! Each write carries the facts it was decided on as tests, so a decision made on a stale view comes to nothing.
//! The model checker runs these very functions.

mod counts;
mod drain;
mod idle;
mod new_term;
mod opt_in;
mod reason;
mod slots;
mod turns;
mod update;
mod versions;
mod writes;

use brupop_api::{State, Write};

use crate::facts::{FleetFacts, NodeFacts, Situation};
pub use counts::counts;
pub use new_term::new_term;
pub use opt_in::opt_in;
pub use reason::{Abort, Reason};
pub use slots::{Slots, slots};
pub use turns::turns;
pub use versions::Halted;

/// Something to be done in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// A conditional write.
    Write(Write<'a>),
    /// A conditional write that says "drained", or rests on it: to be made only after a fresh list of the node's pods
    /// agrees.
    ConfirmDrained(Write<'a>),
    /// Create the shadow, Idle, owned by the Node; at this attempt, if an earlier shadow had got that far.
    CreateShadow {
        /// `spec.attempt` to begin with.
        attempt: Option<u64>,
    },
    /// Delete the shadow with this UID.
    DeleteShadow {
        /// Precondition of the deletion.
        uid: &'a str,
    },
    /// Evict what a drain evicts.
    Evict,
    /// Delete what a drain has not brought to go in time, and what no drain evicts.
    Delete,
}

/// What to do for a node, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What is to be done now; `None` = wait.
    pub effect: Option<Effect<'a>>,
    /// Why the node moves, or why not.
    pub reason: Reason<'a>,
}

impl<'a> Decision<'a> {
    fn wait(reason: Reason<'a>) -> Self {
        Self { effect: None, reason }
    }

    fn write(write: Write<'a>, reason: Reason<'a>) -> Self {
        Self { effect: Some(Effect::Write(write)), reason }
    }
}

/// What to do for one node now.
pub fn node<'a>(fleet: &FleetFacts<'a>, situation: &Situation<'a>) -> Decision<'a> {
    if fleet.ledger_term != Some(fleet.term) {
        return Decision::wait(Reason::NotLeading);
    }
    let Some(node) = situation.node else { return without_node(situation) };
    let Some(shadow) = situation.shadow else { return without_shadow(&node) };
    if situation.owner_uid.is_some_and(|owner| owner != node.uid) {
        let effect = Some(Effect::DeleteShadow { uid: shadow.uid });
        return Decision { effect, reason: Reason::NodeReplaced };
    }
    // A shadow that is being adopted has a marker first, and the slot's attempt then.
    let attempt = shadow.spec.attempt.or_else(|| situation.slot(fleet).map(|slot| slot.attempt));
    if let Some(marker) = node.marker
        && (marker.shadow_uid != shadow.uid || Some(marker.attempt) != attempt)
    {
        return undo_when_ready(&node, Reason::ReturningToService);
    }
    match shadow.spec.state {
        State::Idle | State::ErrorReset => idle::decide(fleet, situation, &node, &shadow),
        _ if shadow.spec.attempt.is_none() => update::adopt(fleet, situation, &node, &shadow),
        State::StagedAndPerformedUpdate => update::staged(fleet, situation, &node, &shadow),
        State::RebootedIntoUpdate => update::rebooted(fleet, situation, &node, &shadow),
        State::MonitoringUpdate => update::monitoring(fleet, situation, &node, &shadow),
    }
}

/// The Node is gone; its shadow goes, too, also when the garbage collector sleeps.
fn without_node<'a>(situation: &Situation<'a>) -> Decision<'a> {
    let effect = situation.shadow.map(|shadow| Effect::DeleteShadow { uid: shadow.uid });
    Decision { effect, reason: Reason::NodeGone }
}

/// A labelled node gets a shadow; a node that lost both label and shadow gets back what we changed.
fn without_shadow<'a>(node: &NodeFacts<'a>) -> Decision<'a> {
    if node.labelled {
        let attempt = node.marker.map(|marker| marker.attempt + 1);
        return Decision { effect: Some(Effect::CreateShadow { attempt }), reason: Reason::NotReported };
    }
    match node.marker {
        Some(_) => undo_when_ready(node, Reason::NotLabelled),
        None => Decision::wait(Reason::NotLabelled),
    }
}

/// Takes back everything that the marker names, once the node is Ready: it may be rebooting.
fn undo_when_ready<'a>(node: &NodeFacts<'a>, reason: Reason<'a>) -> Decision<'a> {
    match node.marker {
        Some(marker) if node.ready => Decision::write(writes::undo(node, marker, false), reason),
        _ => Decision::wait(Reason::NodeNotReady),
    }
}

#[cfg(test)]
mod tests;
