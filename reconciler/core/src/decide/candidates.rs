//! In which order nodes start. Nodes that a person asked for go first, then nodes with fewer failures. Nodes whose last
//! attempt came to nothing go after the others, and the reconciler's own node goes last. Among equals, the zone with
//! the fewest updates goes first; then the name decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use brupop_api::State;

use super::idle;
use crate::facts::{FleetFacts, NodeView};

/// The nodes (by index into the views) that could start, in their order, regardless of the limit.
pub fn candidates<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Vec<usize> {
    let has_slot = |index: usize| fleet.slots.contains_key(views[index].shadow_name);
    Candidates::new(fleet, views, has_slot, |_| true).collect()
}

/// An iterator over the candidates. Each node that it yields makes its zone busier.
pub(super) struct Candidates<'s, 'a> {
    views: &'s [NodeView<'a>],
    /// Each zone's nodes in their order. Only the first of each zone is compared.
    waiting: BTreeMap<Option<&'a str>, VecDeque<usize>>,
    busy: BTreeMap<Option<&'a str>, usize>,
}

impl<'s, 'a> Candidates<'s, 'a> {
    /// The candidates: nodes that could start an update to a version that is not halted. Nodes (by index) with slots keep
    /// their zones busy.
    pub(super) fn new(
        fleet: &FleetFacts<'a>,
        views: &'s [NodeView<'a>],
        has_slot: impl Fn(usize) -> bool,
        goes_on: impl Fn(&str) -> bool,
    ) -> Self {
        let mut candidates = Self { views, waiting: BTreeMap::new(), busy: BTreeMap::new() };
        let mut order: Vec<usize> = Vec::new();
        for (index, view) in views.iter().enumerate() {
            let Some((node, shadow)) = view.node.zip(view.shadow) else { continue };
            if has_slot(index) {
                *candidates.busy.entry(node.zone).or_default() += 1;
            } else if shadow.spec.state == State::Idle
                && node.marker.is_none()
                && idle::startable(fleet, view).is_ok_and(&goes_on)
            {
                order.push(index);
            }
        }
        order.sort_by_cached_key(|&index| (candidates.rank(index), views[index].shadow_name));
        for index in order {
            candidates.waiting.entry(candidates.zone(index)).or_default().push_back(index);
        }
        candidates
    }

    /// The nodes that were not yielded.
    pub(super) fn rest(self) -> impl Iterator<Item = usize> + use<'s, 'a> {
        self.waiting.into_values().flatten()
    }

    fn zone(&self, index: usize) -> Option<&'a str> {
        self.views[index].node.and_then(|node| node.zone)
    }

    fn rank(&self, index: usize) -> (Reverse<bool>, u64, bool, bool) {
        let NodeView { node, shadow, .. } = self.views[index];
        let asked_for = node.is_some_and(|node| node.update_now);
        let failures = shadow.and_then(|shadow| shadow.spec.failures).map_or(0, |failures| failures.count);
        // An agent could have each attempt given up by reporting a new target: it must not keep others from their turn.
        let wanted = shadow.and_then(|shadow| shadow.spec.version);
        let had_no_effect = wanted.is_some() && wanted != node.and_then(|node| node.version);
        (Reverse(asked_for), failures, had_no_effect, node.is_some_and(|node| node.runs_this_process))
    }
}

impl Iterator for Candidates<'_, '_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let firsts = self.waiting.iter().filter_map(|(zone, nodes)| Some((*zone, *nodes.front()?)));
        let (zone, _) = firsts.min_by_key(|&(zone, index)| {
            let going_on = self.busy.get(&zone).copied().unwrap_or(0);
            (self.rank(index), going_on, self.views[index].shadow_name)
        })?;
        *self.busy.entry(zone).or_default() += 1;
        self.waiting.get_mut(&zone)?.pop_front()
    }
}
