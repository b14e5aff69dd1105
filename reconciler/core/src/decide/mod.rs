//! Decides the next write for each node, and explains why not more: pure functions from facts to writes.
//!
//! Each write tests the facts that it was decided on, so the API server refuses a write that was decided on a stale
//! view. The model checker runs these very functions.

mod allocate;
mod assess;
mod eligibility;
mod reason;
mod step;
mod versions;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{FirstPool, FleetFacts, NodeView, Observed};
use crate::objects::{NodeFacts, runs_bottlerocket};
use crate::window::Starts;
pub use allocate::{Decisions, MAX_SUCCESSORS, candidates, new_term};
use allocate::{Place, allocate, assess_all};
pub(crate) use assess::assess;
pub use assess::{Decision, holds};
use brupop_api::fleet::Slot;
use brupop_api::{Field, Marker, Object, State, Value, Write, names};
pub(crate) use eligibility::goes_back;
pub(crate) use reason::OVERGROWN;
pub use reason::{Abort, Named, Reason, WHAT_TO_DO};
pub use step::{Step, drained, new_shadow};
pub(crate) use versions::NOT_RETURNED;
pub use versions::why_halted;
use versions::{Survey, not_offered, run_by};

impl Observed<'_> {
    /// Decides what to do in this fleet now; see [`decide`].
    pub fn decide(&self) -> Decisions<'_> {
        decide(&self.fleet, &self.views)
    }
}

/// Decides what to do in the whole fleet now, and for each node why not more: each node is assessed, slots are allocated among
/// those that ask for one, and then each node's step and reason are settled. The views are sorted by name of the shadow; those
/// that cannot be read keep their slots, and nothing is done for them.
pub fn decide<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Decisions<'a> {
    let mut nodes = assess_all(fleet, views);
    let survey = Survey::of(fleet, &nodes);
    let mut decisions = allocate(fleet, &nodes, &survey);
    for (at, reason) in decisions.reasons(&nodes) {
        if nodes[at].asks.step.is_none() && !nodes[at].view.is_unreadable() {
            nodes[at].asks.reason = reason;
        }
    }
    let needed = needed_versions(&nodes);
    let run_by = LazyCell::new(|| run_by(views));
    let mut behind = BTreeMap::new();
    let settled = nodes.iter().map(|node| {
        let view = node.view;
        let released = || release(fleet, view, &needed);
        let step = node
            .asks
            .step
            .or_else(|| released().filter(|_| !view.is_unreadable()));
        let reason = match node.asks.reason {
            Reason::NoUpdate => {
                let run_by = view.node.and_then(|node| run_by.get(node.variant()));
                let missing = not_offered(fleet, view, run_by);
                missing.unwrap_or(Reason::NoUpdate)
            }
            // Names what keeps the other pool from being done.
            Reason::WaitingForPool(FirstPool::NotDone(pool)) => {
                let version = view.release().map_or("", |release| release.0);
                let node = *behind
                    .entry((pool, version))
                    .or_insert_with(|| survey.behind(pool, version, fleet.versions));
                Reason::WaitingForPool(match node {
                    Some(node) => FirstPool::Behind(pool, node),
                    None if fleet.pool(pool).is_some_and(|pool| pool.nodes == 0) => {
                        FirstPool::Empty(pool)
                    }
                    None => FirstPool::NotDone(pool),
                })
            }
            reason => reason,
        };
        Decision {
            step,
            reason,
            ..node.asks
        }
    });
    decisions.nodes = settled.collect();
    decisions
}

/// The pools (by index), and the versions, in which an update is under way, or a node lacks nothing but a place: there an updated
/// node, which came back empty, keeps the annotations that keep autoscalers from removing it. The pods of the nodes after it go
/// there: were it removed, an autoscaler would launch others for them, perhaps of the old version, without end.
///
/// An update counts to its end: while its node reboots and is monitored, an autoscaler launches a node of the old version for
/// its pods. That one has to be removed, and none that is up to date.
fn needed_versions<'a>(nodes: &[Candidate<'_, 'a>]) -> BTreeSet<(Option<usize>, &'a str)> {
    // Most of the time no node is kept.
    if !nodes.iter().any(|node| is_kept(node.view)) {
        return BTreeSet::new();
    }
    let waits =
        |node: &&Candidate<'_, 'a>| node.view.held().is_some() || node.asks.reason.needs_place();
    let waiting = nodes.iter().filter(waits).map(|node| node.view);
    let needed = waiting.filter_map(|view| Some((Place::of(view).pool, view.release()?.0)));
    needed.collect()
}

fn is_kept(view: &NodeView<'_>) -> bool {
    let marker = view.node.and_then(|node| node.marker());
    marker.is_some_and(Marker::is_kept)
}

/// Returns the step that gives the node's annotations back, once no other node needs the node any more, or something else comes
/// first: a pause, a halt, or somebody who would replace a node that does not come back. Any other step of the node goes first.
fn release<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    needed: &BTreeSet<(Option<usize>, &'a str)>,
) -> Option<Step<'a>> {
    let node = view.node.filter(|_| fleet.is_led() && is_kept(view))?;
    let pool = fleet.pool_of(view);
    let is_paused = fleet.paused || pool.is_some_and(|pool| pool.starts == Starts::Paused);
    let is_halted = (node.version()).is_some_and(|it| fleet.is_halted_for(view, it));
    let must_go = !node.labelled || is_paused || is_halted || view.time.lost;
    let is_needed = (node.version()).is_some_and(|it| needed.contains(&(Place::of(view).pool, it)));
    if !must_go && (view.held().is_some() || is_needed && !view.time.kept_for_long) {
        return None;
    }
    // Until its update is over, the owners that the marker names are watched.
    let is_over = view
        .shadow
        .is_none_or(|shadow| shadow.spec.state == State::Idle);
    Some(if is_over { Step::Undo } else { Step::Release })
}

/// The write that labels this node, if it runs Bottlerocket and does not have the label. With any value of the label,
/// somebody has decided about the node, and it is left alone. While the fleet is paused, or another operator would update the
/// node, too, no node is labelled.
pub fn opt_in<'a>(fleet: &FleetFacts<'_>, node: &'a NodeFacts) -> Option<Write<'a>> {
    let wanted = fleet.is_led()
        && !fleet.paused
        && fleet.alone
        && node.label(names::UPDATER_INTERFACE_LABEL).is_none()
        && runs_bottlerocket(&node.os_image);
    wanted.then(|| Write {
        object: Object::Node(&node.name),
        tests: vec![
            (Field::Uid, Value::text(&node.uid)),
            (Field::OsImage, Value::text(&node.os_image)),
            (Field::UpdaterInterface, Value::Absent),
        ],
        sets: vec![(
            Field::UpdaterInterface,
            Value::text(names::UPDATER_INTERFACE_VERSION),
        )],
    })
}

/// A slot that is given back: its name, and the view (by index) of that name, if there is one.
pub type Freed<'a> = (&'a str, &'a Slot, Option<usize>);

/// A node in this pass.
pub(crate) struct Candidate<'v, 'a> {
    pub(super) view: &'v NodeView<'a>,
    /// Its update is over, so this pass gives the slot back.
    pub(super) is_over: bool,
    pub(super) asks: Decision<'a>,
}

impl<'a> Candidate<'_, 'a> {
    /// The slot, if it is not given back.
    pub(super) fn kept(&self) -> Option<&'a Slot> {
        self.view.slot.filter(|_| !self.is_over)
    }
}

#[cfg(test)]
mod tests;
