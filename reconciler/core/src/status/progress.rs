//! How far the nodes of the fleet or of a pool are.

use brupop_api::NodeCounts;
use brupop_api::conditions::{ConditionStatus, UPDATED};
use semver::Version;

use super::DesiredCondition;
use crate::decide::{Decision, Reason};
use crate::facts::{NodeView, Observed, PoolFacts, in_order, is_unavailable};

/// How far opted-in nodes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is counted; without the limit, which is no count.
    pub counts: NodeCounts,
    /// They have not reported, or cannot look for updates.
    pub unknown: u64,
    /// The first by name of those that are behind and have no update to go to, and why.
    pub behind: Option<(&'a str, Reason<'a>)>,
}

impl<'a> Progress<'a> {
    /// The progress of the fleet, from what was decided for each node.
    pub fn of_fleet(observed: &Observed<'a>, decisions: &[Decision<'a>]) -> Self {
        let fleet = &observed.fleet;
        let (mut progress, mut slot_of) = (Self::default(), in_order(fleet.slots));
        for (view, decision) in observed.views.iter().zip(decisions) {
            let has_slot = slot_of(view.shadow_name).is_some_and(|slot| view.holds(slot));
            progress.count(view, fleet.pool_of(view), has_slot, decision.reason);
        }
        progress.counts.updating_nodes = u64::try_from(fleet.slots.len()).unwrap_or(u64::MAX);
        progress
    }

    /// Counts a node of this pool. Returns whether it waits for an update that has not begun.
    pub(super) fn count(
        &mut self,
        view: &NodeView<'a>,
        pool: Option<&PoolFacts<'a>>,
        has_slot: bool,
        reason: Reason<'a>,
    ) -> bool {
        let Some(node) = view.node.filter(|node| node.labelled) else {
            return false;
        };
        let counts = &mut self.counts;
        counts.nodes += 1;
        counts.unavailable_nodes += u64::from(is_unavailable(view));
        let waits = !has_slot
            && view
                .shadow
                .is_some_and(|it| it.status.current_version.is_some() && it.update().is_some());
        let asks_for_more = || {
            let (runs, rules) = (Version::parse(node.version()?).ok()?, pool?.rules?);
            Some(rules.asks_for_more_than(&runs))
        };
        let cannot_update = || {
            view.shadow
                .is_some_and(|shadow| shadow.status.cannot_update())
        };
        let (group, is_behind) = match reason {
            _ if has_slot => (&mut counts.updating_nodes, false),
            _ if waits && reason.waits_for_turn() => (&mut counts.pending_nodes, false),
            _ if waits => (&mut counts.blocked_nodes, false),
            Reason::NotOffered(_) => (&mut counts.not_offered_nodes, true),
            Reason::NoUpdateChosen(_) => (&mut counts.locked_nodes, asks_for_more() == Some(true)),
            // What such a host said last is no look: it may be behind by now.
            Reason::NotUnderstood(_) | Reason::NodeNotReady | Reason::AgentSilent(_) => {
                (&mut self.unknown, false)
            }
            _ if !view.has_reported() || cannot_update() => (&mut self.unknown, false),
            _ => (&mut counts.updated_nodes, false),
        };
        *group += 1;
        if is_behind {
            self.behind = self.behind.or(Some((node.name(), reason)));
        }
        waits
    }

    /// The condition `Updated`, of a fleet or pool of which this is said while it has no nodes.
    pub fn updated_condition(&self, no_nodes: &str) -> DesiredCondition {
        let counts = self.counts;
        let (status, reason, message) = match self.behind {
            _ if counts.nodes == 0 => (ConditionStatus::Unknown, "NoNodes", no_nodes.to_owned()),
            _ if counts.updating_nodes + counts.pending_nodes + counts.blocked_nodes > 0 => (
                ConditionStatus::False,
                "UpdatesPending",
                "there is an update that is not done on each node".to_owned(),
            ),
            Some((node, reason)) => (
                ConditionStatus::False,
                reason.as_str(),
                format!("{node}: {}", reason.message()),
            ),
            None if self.unknown > 0 => (
                ConditionStatus::Unknown,
                "NotReported",
                "a node has not reported in its present boot, or cannot look for updates"
                    .to_owned(),
            ),
            None => (
                ConditionStatus::True,
                "NoUpdate",
                "there is no update for any node".to_owned(),
            ),
        };
        DesiredCondition::of(UPDATED, status, reason, &message)
    }
}

#[cfg(test)]
mod tests;
