//! A node that is Idle: what is left of its last update, whether the next one begins, and in which order nodes begin.
//!
//! Nodes that a person asked for go first, then nodes that no budget blocks, then nodes with fewer failures. Nodes whose last
//! attempt came to nothing go after the others, and the reconciler's own node goes last. Among equals, the zone with the
//! fewest updates goes first; then the name decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_api::facts::ShadowFacts;
use brupop_api::{Problem, State};

use super::pool::{self, Stage};
use super::room::Place;
use super::{
    Case, Decision, Effect, Gone, Milestone, OVERGROWN, OtherOperator, Reason, Silence,
    StagingStep, TOO_MANY_PODS, TooManyFailures, Turn, undo_when_ready, writes,
};
use crate::facts::{FleetFacts, NodeView};
use crate::window::Starts;

impl<'a> Case<'_, 'a> {
    /// Wanted: nothing. What is left of the last update is undone first; then the next one begins if the node has a
    /// slot.
    pub(super) fn idle(self) -> Decision<'a> {
        let Self {
            fleet,
            view,
            node,
            shadow,
            slot,
        } = self;
        if node
            .marker
            .is_some_and(|marker| !marker.is_kept() || !node.labelled)
        {
            return undo_when_ready(node, Reason::Finishing);
        }
        if !node.labelled {
            let delete = Effect::DeleteShadow { uid: shadow.uid };
            return Decision::carry_out(delete, Reason::NotLabelled).reaching(Milestone::OptedOut);
        }
        let slot = match slot {
            Some(slot) if Some(slot.attempt) > shadow.spec.attempt => slot,
            Some(_) => return Decision::wait(finishing(shadow)),
            None => {
                return Decision::wait(
                    startable(fleet, view)
                        .err()
                        .unwrap_or(Reason::LimitReached(Turn::NoSlot)),
                );
            }
        };
        let skip = |reason| Decision::write(writes::skip_attempt(fleet, shadow, slot), reason);
        match able(fleet, view) {
            Err(reason) if pool::awaited(fleet, view) == Some(reason) => Decision::wait(reason),
            Err(reason) => skip(reason),
            // The slot was taken for another version, and counts as a try of that.
            Ok(version) if slot.version.as_deref().is_some_and(|its| its != version) => {
                skip(Reason::LimitReached(Turn::NoSlot))
            }
            Ok(version) => {
                let write = writes::stage(fleet, shadow, node, slot, version);
                Decision::write(write, Reason::Staging(StagingStep::Begins(version)))
                    .reaching(Milestone::Started)
            }
        }
    }
}

/// The version to which this node could be updated now, or why not.
pub(super) fn startable<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
) -> Result<&'a str, Reason<'a>> {
    let version = able(fleet, view)?;
    match view.pods.blocked {
        Some(why) if !view.force && !view.pods.waited => Err(Reason::BudgetAllowsNone(why)),
        _ => Ok(version),
    }
}

/// The version to which the node could be updated, whatever budgets allow now, or why not: a node with a slot waits for
/// budgets before its cordon.
fn able<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Result<&'a str, Reason<'a>> {
    let (Some(node), Some(shadow)) = (view.node, view.shadow) else {
        return Err(Reason::NodeGone(Gone::Deleted));
    };
    first([
        (!node.labelled, Reason::NotLabelled),
        (!node.ready, Reason::NodeNotReady),
        (node.leaving, Reason::NodeLeaving),
        (node.overgrown, Reason::NodeChangesDenied(OVERGROWN)),
        (node.version.is_none(), Reason::NotBottlerocket),
        (!view.has_reported(), Reason::AgentSilent(Silence::NoReport)),
        (!shadow.reports(State::Idle), finishing(&shadow)),
        (!node.agent_ready, Reason::AgentSilent(Silence::NoPod)),
    ])?;
    // Each update begins with a refresh, which would fail.
    if shadow.status.cannot_update()
        && let Some(reason) = Reason::of_status(&shadow.status)
    {
        return Err(reason);
    }
    // The Node says which version runs, whatever its agent says: no node is updated to the version that it runs.
    let update = shadow
        .update()
        .filter(|version| Some(*version) != node.version);
    let version = update.ok_or_else(|| no_update(&shadow))?;
    first([
        (node.paused, Reason::NodePaused),
        (
            fleet.is_halted_for(view, version),
            Reason::VersionHalted(TooManyFailures::Version(version)),
        ),
    ])?;
    let (allows, allows_version) = (
        pool::allows(fleet, view, &node, Stage::Start),
        pool::allows_version(fleet, view, version),
    );
    // What a person has to lift is told before a window that is closed: the agent downloads nothing ahead meanwhile.
    for told in [&allows, &allows_version] {
        if let Err(reason) = told
            && reason.forbids_download()
        {
            return Err(*reason);
        }
    }
    first([
        (fleet.starts == Starts::Paused, Reason::FleetPaused),
        (
            !fleet.alone,
            Reason::OtherOperator(OtherOperator::Installed),
        ),
    ])?;
    if let Some(first) = fleet.pool_left_out {
        return Err(Reason::TooManyPools(first));
    }
    allows.and(allows_version)?;
    first([
        (
            fleet.starts == Starts::AdmissionNotEnforced,
            Reason::AdmissionNotEnforced,
        ),
        // It ends by itself, so whatever else holds the node is told first.
        (view.time.backing_off, Reason::BackingOff),
        (view.time.young && !node.update_now, Reason::NodeTooYoung),
    ])?;
    match (view.denied.or(view.shadow_denied), view.pods.undrainable) {
        (Some(why), _) => Err(Reason::NodeChangesDenied(why)),
        _ if view.pods.too_many => Err(Reason::CannotDrain(TOO_MANY_PODS)),
        (None, Some(why)) if !view.force => Err(Reason::CannotDrain(why)),
        _ => view
            .busy_control_plane
            .map_or(Ok(version), |node| Err(Reason::ControlPlaneBusy(node))),
    }
}

/// Why a host that can look for updates names none.
fn no_update<'a>(shadow: &ShadowFacts<'a>) -> Reason<'a> {
    match shadow.status.problem {
        Some(problem @ Problem::NoUpdateChosen) => {
            Reason::NoUpdateChosen(shadow.status.message.unwrap_or(problem.as_str()))
        }
        _ => Reason::NoUpdate,
    }
}

/// Why the last update is not over yet: the agent undoes what its attempt did, or its host keeps it from that.
fn finishing<'a>(shadow: &ShadowFacts<'a>) -> Reason<'a> {
    let told = Reason::against_report(&shadow.status).filter(|_| !shadow.reports(State::Idle));
    told.unwrap_or(Reason::Finishing)
}

/// The first of these obstacles that is there, as an error.
fn first<'a>(obstacles: impl IntoIterator<Item = (bool, Reason<'a>)>) -> Result<(), Reason<'a>> {
    obstacles
        .into_iter()
        .find(|(is_there, _)| *is_there)
        .map_or(Ok(()), |(_, reason)| Err(reason))
}

/// The nodes (by index into the views, which are sorted by name) that could start, in their order, regardless of the limit.
pub fn candidates<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Vec<usize> {
    let has_slot = |index: usize| fleet.slots.contains_key(views[index].shadow_name);
    let mut candidates = Candidates::new(fleet, views, has_slot, |_, _| true);
    std::iter::from_fn(|| candidates.next_of(|_| true)).collect()
}

/// The candidates. Each node that is taken from them makes its zone busier.
pub(super) struct Candidates<'s, 'a> {
    views: &'s [NodeView<'a>],
    /// The nodes of each pool and zone, in their order. Only the first of each is compared.
    waiting: BTreeMap<Place<'a>, VecDeque<usize>>,
    /// The pools whose zones are updated one after the other.
    zone_by_zone: BTreeSet<Option<usize>>,
    busy: BTreeMap<Option<&'a str>, usize>,
}

impl<'s, 'a> Candidates<'s, 'a> {
    /// The candidates: nodes that could start an update to a version that is not halted. Nodes (by index) with slots keep
    /// their zones busy.
    pub(super) fn new(
        fleet: &FleetFacts<'a>,
        views: &'s [NodeView<'a>],
        has_slot: impl Fn(usize) -> bool,
        goes_on: impl Fn(&NodeView<'a>, &str) -> bool,
    ) -> Self {
        let one_by_one = fleet
            .pools
            .iter()
            .enumerate()
            .filter(|(_, pool)| pool.one_zone_at_a_time);
        let zone_by_zone = one_by_one.map(|(index, _)| Some(index)).collect();
        let mut candidates = Self {
            views,
            waiting: BTreeMap::new(),
            zone_by_zone,
            busy: BTreeMap::new(),
        };
        let mut order: Vec<usize> = Vec::new();
        for (index, view) in views.iter().enumerate() {
            let Some((node, shadow)) = view.node.zip(view.shadow) else {
                continue;
            };
            if has_slot(index) {
                *candidates.busy.entry(node.zone).or_default() += 1;
            } else if shadow.spec.state == State::Idle
                && node.is_tidy()
                && startable(fleet, view).is_ok_and(|version| goes_on(view, version))
            {
                order.push(index);
            }
        }
        // Among equals they stay sorted by name. Most are equals, so there is little to sort.
        order.sort_by_key(|&index| candidates.rank(index));
        for index in order {
            candidates
                .waiting
                .entry(Place::of(&views[index]))
                .or_default()
                .push_back(index);
        }
        candidates
    }

    /// The next of those in places that have room.
    pub(super) fn next_of(&mut self, has_room: impl Fn(Place<'a>) -> bool) -> Option<usize> {
        let with_room = self.waiting.iter().filter(|(place, _)| has_room(**place));
        let firsts = with_room.filter_map(|(place, nodes)| Some((*place, *nodes.front()?)));
        let (place, _) = firsts.min_by_key(|&(place, index)| {
            let zone_by_zone = self.zone_by_zone.contains(&place.pool);
            let going_on = self
                .busy
                .get(&place.zone)
                .copied()
                .filter(|_| !zone_by_zone);
            let zone = place.zone.filter(|_| zone_by_zone);
            (self.rank(index), going_on.unwrap_or(0), zone, index)
        })?;
        *self.busy.entry(place.zone).or_default() += 1;
        self.waiting.get_mut(&place)?.pop_front()
    }

    /// The nodes that were not taken.
    pub(super) fn rest(self) -> impl Iterator<Item = usize> + use<'s, 'a> {
        self.waiting.into_values().flatten()
    }

    fn rank(&self, index: usize) -> (Reverse<bool>, bool, u64, bool, bool) {
        let NodeView {
            node, shadow, pods, ..
        } = self.views[index];
        let asked_for = node.is_some_and(|node| node.update_now);
        let failures = shadow
            .and_then(|shadow| shadow.spec.last_failure)
            .map_or(0, |failures| failures.count);
        // An agent could have each attempt given up by reporting a new target: it must not keep others from their turn.
        let wanted = shadow.and_then(|shadow| shadow.spec.version);
        let had_no_effect = wanted.is_some() && wanted != node.and_then(|node| node.version);
        let is_own = node.is_some_and(|node| node.runs_this_process);
        (
            Reverse(asked_for),
            pods.blocked.is_some(),
            failures,
            had_no_effect,
            is_own,
        )
    }
}
