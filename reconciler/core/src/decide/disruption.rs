//! How long an updated node, which came back empty, keeps the annotations that keep autoscalers from removing it. The pods of
//! the nodes after it go there: were it removed, an autoscaler would launch others for them, perhaps of the old version, without
//! end.

use std::collections::BTreeSet;

use brupop_api::fleet::Slot;
use brupop_api::{Marker, State};

use super::allocate::version_for;
use super::capacity::Place;
use super::step::{Assessment, Step};
use super::{OtherOperator, Reason};
use crate::facts::{FleetFacts, NodeView};
use crate::window::Starts;

/// The pools, and the versions, in which an update is under way, or a node lacks nothing but a place.
///
/// An update counts to its end: while its node reboots and is monitored, an autoscaler launches a node of the old version for
/// its pods. That one has to be removed, and none that is up to date.
pub(super) struct Waiting<'a>(BTreeSet<(Option<usize>, &'a str)>);

impl<'a> Waiting<'a> {
    /// No node waits.
    pub(super) fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Of these views with their slots, by why each waits.
    pub(super) fn of<'s>(
        views: &[NodeView<'a>],
        held: impl Iterator<Item = Option<&'s Slot>>,
        assessments: &[Assessment<'_>],
    ) -> Self {
        // Most of the time no node is kept.
        if !views.iter().any(is_kept) {
            return Self::none();
        }
        let waiting = views.iter().zip(held).zip(assessments);
        let waiting =
            waiting.filter(|((_, slot), assessment)| slot.is_some() || waits(&assessment.reason));
        Self(
            waiting
                .filter_map(|((view, _), _)| pool_and_version(view))
                .collect(),
        )
    }

    /// Whether one of them is in the node's pool, and is to run what the node runs.
    fn needs(&self, view: &NodeView<'a>) -> bool {
        let version = view.node.and_then(|node| node.version());
        version.is_some_and(|version| self.0.contains(&(Place::of(view).pool, version)))
    }
}

/// Returns the step that gives the node's annotations back, once no other node needs the node any more, or something else comes
/// first: a pause, a halt, or somebody who would replace a node that does not come back. Any other step of the node goes first.
pub(super) fn release<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    slot: Option<&Slot>,
    waiting: &Waiting<'a>,
) -> Option<Step<'a>> {
    if fleet.ledger_term != Some(fleet.term) || !is_kept(view) {
        return None;
    }
    let in_use = || slot.is_some() || (waiting.needs(view) && !view.time.kept_for_long);
    if !must_go(fleet, view) && in_use() {
        return None;
    }
    // Until its update is over, the owners that the marker names are watched.
    let is_over = view
        .shadow
        .is_none_or(|shadow| shadow.spec.state == State::Idle);
    Some(if is_over { Step::Undo } else { Step::Release })
}

/// Whether the annotations go, even if another node needs the node.
fn must_go(fleet: &FleetFacts<'_>, view: &NodeView<'_>) -> bool {
    let Some(node) = view.node else { return false };
    let pool_paused = fleet
        .pool_of(view)
        .is_some_and(|pool| pool.starts == Starts::Paused);
    let halted = node
        .version()
        .is_some_and(|version| fleet.is_halted_for(view, version));
    !node.labelled
        || fleet.starts == Starts::Paused
        || pool_paused
        || halted
        || view.time.kept_is_lost
}

fn is_kept(view: &NodeView<'_>) -> bool {
    view.node
        .and_then(|node| node.marker())
        .is_some_and(Marker::is_kept)
}

/// Whether the node would begin if there was room, once others are done, or once something is over that ends by itself or that a
/// new leader does not know yet.
fn waits(reason: &Reason<'_>) -> bool {
    match reason {
        Reason::Finishing
        | Reason::OutsideWindow(_)
        | Reason::WaitingForPool(_)
        | Reason::VersionTooYoung(_) => false,
        Reason::BudgetAllowsNone(_) | Reason::AgentSilent(_) => true,
        reason => {
            reason.waits_for_turn() && !reason.forbids_download()
                || *reason == Reason::OtherOperator(OtherOperator::Installed)
        }
    }
}

fn pool_and_version<'a>(view: &NodeView<'a>) -> Option<(Option<usize>, &'a str)> {
    Some((Place::of(view).pool, version_for(view)?))
}
