//! What to do for a node now, and why not more: pure functions from facts to writes.
//!
//! Each write tests the facts that it was decided on, so the API server refuses a write that was decided on a stale
//! view. The model checker runs these very functions.

mod age;
mod allocate;
mod assess;
mod behind;
mod capacity;
mod disruption;
mod drain;
mod eligibility;
mod order;
mod reason;
mod step;
mod update;
mod versions;

use std::cell::LazyCell;
use std::collections::BTreeMap;

use crate::facts::{FirstPoolStanding, FleetFacts, NodeView, Observed, UnmanagedNode};
use crate::objects::runs_bottlerocket;
use crate::window::Starts;
pub(crate) use allocate::version_for;
pub use allocate::{Allocation, candidates, new_term};
use allocate::{Holders, allocate};
use assess::assess;
use behind::Offers;
use brupop_api::{Field, Object, Value, Write, names};
pub(crate) use eligibility::goes_back;
use order::Survey;
pub(crate) use reason::OVERGROWN;
pub use reason::{
    Abort, Contenders, DrainStep, Gone, LimitScope, Missing, MonitorStep, Named, OtherOperator,
    Reason, RebootStep, Silence, StagingStep, TO_GO_ON, TOO_MANY_PODS, TooManyFailures, Turn,
    UsedUp,
};
use step::Assessment;
pub use step::{Decision, Deletion, Effect, Step, new_shadow};
pub(crate) use versions::NOT_RETURNED;
pub use versions::{Halted, why_halted};

/// What to do in the whole fleet.
#[derive(Clone, Debug)]
pub struct Decisions<'a> {
    /// Which nodes get slots.
    pub allocation: Allocation<'a>,
    /// What to do for each node, in the order of the views.
    pub nodes: Vec<Decision<'a>>,
}

impl Observed<'_> {
    /// Decides what to do in this fleet now; see [`decide`].
    pub fn decide(&self) -> Decisions<'_> {
        decide(&self.fleet, &self.views, &self.unreadable)
    }
}

/// Decides what to do in the whole fleet now, and for each node why not more: each node is assessed, slots are allocated among
/// those that ask for one, and then each node's step and reason are settled. The views are sorted by name of the shadow; those
/// that cannot be interpreted (by index, and why) keep their slots, and nothing is done for them.
pub fn decide<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    unreadable: &'a BTreeMap<usize, String>,
) -> Decisions<'a> {
    let holders = Holders::of(fleet, views);
    let with_slots = || views.iter().zip(holders.held(views));
    let assessed = with_slots().enumerate().map(|(at, (view, slot))| {
        unreadable.get(&at).map_or_else(
            || assess(fleet, view, slot),
            |why| Assessment::wait(Reason::NotUnderstood(why)),
        )
    });
    let mut assessments: Vec<Assessment<'a>> = assessed.collect();
    let survey = Survey::of(fleet, with_slots());
    let allocation = allocate(fleet, views, &assessments, &holders, &survey);
    for (at, reason) in allocation.reasons(views) {
        if assessments[at].step.is_none() && !unreadable.contains_key(&at) {
            assessments[at].reason = reason;
        }
    }
    let waiting = disruption::Waiting::of(views, holders.held(views), &assessments);
    let offers = LazyCell::new(|| Offers::of(views));
    let mut behind = BTreeMap::new();
    let settled = with_slots().zip(&assessments).map(|((view, slot), it)| {
        let released = || disruption::release(fleet, view, slot, &waiting);
        let step = it
            .step
            .or_else(|| if view.unreadable { None } else { released() });
        let reason = match it.reason {
            Reason::NoUpdate => offers
                .missing(fleet, view)
                .map_or(Reason::NoUpdate, Reason::NotOffered),
            // Names the node that keeps the other pool from being done.
            Reason::WaitingForPool(mut first) if first.standing == FirstPoolStanding::NotDone => {
                let version = version_for(view).unwrap_or_default();
                let node = *behind
                    .entry((first.pool, version))
                    .or_insert_with(|| survey.behind(first.pool, version, fleet.versions));
                if let Some(node) = node {
                    first.standing = FirstPoolStanding::Behind(node);
                }
                Reason::WaitingForPool(first)
            }
            reason => reason,
        };
        Decision { step, reason }
    });
    let nodes = settled.collect();
    Decisions { allocation, nodes }
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
