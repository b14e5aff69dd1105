//! The ledger: which nodes may be updated now, and which are done. Each pass makes one conditional patch, which gives
//! slots back and takes new ones.
//!
//! Nodes that a person has cordoned go first, for they are out of service anyway, then nodes that a person asked for, nodes that no
//! budget blocks, then nodes with fewer failures. Nodes whose last attempt came to nothing go after the others, and the
//! reconciler's own node goes last. Among equals, the zone with the fewest updates goes first; then the name decides.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_api::crds::{COUNTER_MAX, SLOTS_MAX};
use brupop_api::fleet::{BottlerocketFleetStatus, Slot, VersionRecord};
use brupop_api::shadow::ShadowFacts;
use brupop_api::{Field, Object, State, Value, Write};

use super::assess::{Decision, wait};
use super::versions::{Survey, VersionRecords};
use super::{Candidate, Freed, Reason, assess};
use crate::drain::Obstacle;
use crate::facts::{FleetFacts, NO_ZONE, NodeView, Owner, is_unavailable};
use crate::objects::NodeFacts;
use crate::pool::Release;

/// The pods of at most this many nodes are checked before there is room for these nodes.
pub const MAX_SUCCESSORS: usize = 32;
/// The zone of a node that has left its pool.
const LEFT_POOL: &str = "of a node that has left the pool";

pub(super) fn assess_all<'v, 'a>(
    fleet: &FleetFacts<'a>,
    views: &'v [NodeView<'a>],
) -> Vec<Candidate<'v, 'a>> {
    let candidate = |view| Candidate {
        view,
        is_over: view.slot.is_some_and(|slot| is_over(slot, view)),
        asks: Reason::of_unreadable(view).map_or_else(|| assess(fleet, view), wait),
    };
    views.iter().map(candidate).collect()
}

/// The slots of updates that are over, and those without a view, by name. The nodes are sorted by name, too.
pub(super) fn freed<'a>(fleet: &FleetFacts<'a>, nodes: &[Candidate<'_, 'a>]) -> Vec<Freed<'a>> {
    debug_assert!(nodes.is_sorted_by_key(|node| node.view.shadow_name));
    let slots = fleet.slots.iter().map(|(name, slot)| {
        let at = nodes.binary_search_by_key(&name.as_str(), |node| node.view.shadow_name);
        (name.as_str(), slot, at.ok())
    });
    slots
        .filter(|(_, _, at)| at.is_none_or(|at| nodes[at].is_over))
        .collect()
}

/// The decisions for the whole fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions<'a> {
    /// The decision for each node, in the order of the views.
    pub nodes: Vec<Decision<'a>>,
    /// The write to the ledger, if it has to change.
    pub write: Option<Write<'a>>,
    /// Nodes (by index into the views) that this write gives a slot, in their order.
    pub taken: Vec<usize>,
    /// Nodes (by index into the views) that could begin but got no slot, and why.
    pub queued: Vec<(usize, Reason<'a>)>,
    /// Nodes (by index) whose turn is next, or will be once a slot is given back. Their pods must be checked before they
    /// start.
    pub preflight: Vec<usize>,
    /// Versions that this write halts.
    pub halted: Vec<VersionRecord>,
    /// The slots that this write gives back.
    pub freed: Vec<Freed<'a>>,
}

/// Gives back the slots of updates that are over, and takes slots for nodes that may begin: updates already running without a slot
/// go first, then nodes in turn. A node whose pods are not known yet keeps its place.
pub(super) fn allocate<'a>(
    fleet: &FleetFacts<'a>,
    nodes: &[Candidate<'_, 'a>],
    survey: &Survey<'a>,
) -> Decisions<'a> {
    if !fleet.is_led() {
        return Decisions::default();
    }
    let freed = freed(fleet, nodes);
    let mut versions = VersionRecords::after(fleet, nodes, &freed);
    versions.note_for_pools(survey);
    let mut decisions = Decisions {
        freed,
        ..Decisions::default()
    };
    let mut room = Room::beside(fleet, nodes);
    decisions.take_running(nodes, &mut room);
    decisions.take_next(fleet, nodes, &mut versions, &mut room);
    decisions.halted = versions.halted();
    decisions.write = decisions.write(fleet, nodes, versions);
    decisions
}

impl<'a> Decisions<'a> {
    /// Gives slots to running updates that lost theirs with the ledger, as long as there is room. Nodes that are down for other
    /// reasons use up the limit, but do not block a node that is already out of service.
    fn take_running(&mut self, nodes: &[Candidate<'_, 'a>], room: &mut Room<'a>) {
        let runs = |view: &NodeView<'_>| {
            view.node.is_some() && view.shadow.is_some_and(|shadow| shadow.is_in_update())
        };
        let without_slot =
            (0..nodes.len()).filter(|at| nodes[*at].view.slot.is_none() && runs(nodes[*at].view));
        let (away, in_service): (Vec<_>, Vec<_>) =
            without_slot.partition(|at| is_unavailable(nodes[*at].view));
        for at in away {
            let place = Place::of(nodes[at].view);
            if room.has_places(place.pool) {
                room.take(place);
                self.taken.push(at);
            }
        }
        for (at, node) in nodes.iter().enumerate() {
            if is_unavailable(node.view) && node.kept().is_none() && !self.taken.contains(&at) {
                room.note_unavailable(node.view);
            }
        }
        for at in in_service {
            let place = Place::of(nodes[at].view);
            if room.has(place) {
                room.take(place);
                self.taken.push(at);
            }
        }
    }

    /// Gives slots to nodes in turn, as long as there is room.
    fn take_next(
        &mut self,
        fleet: &FleetFacts<'a>,
        nodes: &[Candidate<'_, 'a>],
        versions: &mut VersionRecords<'_, 'a>,
        room: &mut Room<'a>,
    ) {
        // While no node of their variant has reached a version, only as many try it at once as may fail before it is halted.
        let mut trying = trying(nodes);
        let mut queue = Queue::new(fleet, nodes, |view, version| versions.halts(view, version));
        while let Some(at) = queue.next_of(|place| room.has(place)) {
            let view = nodes[at].view;
            if let Some(release) = view.release() {
                let trying = trying.entry(release).or_default();
                let most = versions.may_still_fail(release);
                if most.is_some_and(|most| *trying >= most) {
                    self.queued.push((at, Reason::VersionUnproven(release.0)));
                    continue;
                }
                *trying += 1;
                if view.led.plan.is_some() && !versions.has_room(release) {
                    self.queued.push((at, Reason::NoRoomForVersion));
                    continue;
                }
            }
            let place = Place::of(view);
            room.take(place);
            if place.cordoned {
                // From now on its slot counts.
                room.fleet.unavailable -= 1;
                room.of_mut(place.pool).unavailable -= 1;
            }
            if view.led.plan.is_some() {
                self.taken.push(at);
            } else {
                self.queued.push((at, Reason::CheckingPods));
                self.preflight.push(at);
            }
        }
        self.preflight_successors(nodes, &mut queue, room);
        let rest = queue.waiting.into_values().flatten();
        self.queued
            .extend(rest.map(|at| (at, room.why(Place::of(nodes[at].view)))));
    }

    /// Has the next nodes assessed while others are updated, so that a slot is given back and taken again in one patch.
    fn preflight_successors(
        &mut self,
        nodes: &[Candidate<'_, 'a>],
        queue: &mut Queue<'_, '_, 'a>,
        room: &mut Room<'a>,
    ) {
        for _ in 0..MAX_SUCCESSORS {
            let Some(at) = queue.next_of(|place| room.will_have(place)) else {
                break;
            };
            let place = Place::of(nodes[at].view);
            room.of_mut(place.pool).successors += 1;
            self.queued.push((at, room.why(place)));
            // Known or not: whose pods are no longer asked for are forgotten.
            self.preflight.push(at);
        }
    }

    /// The write to the ledger, if it has to change.
    fn write(
        &self,
        fleet: &FleetFacts<'a>,
        nodes: &[Candidate<'_, 'a>],
        versions: VersionRecords<'_, 'a>,
    ) -> Option<Write<'a>> {
        let freed = self.freed.iter();
        let freed = freed.map(|(name, ..)| (Field::Slot(name), Value::Absent));
        let taken = self.taken.iter().filter_map(|&at| {
            let (view, shadow) = (nodes[at].view, nodes[at].view.shadow?);
            let pool = fleet
                .pool_of(view)
                .filter(|_| view.owner != Owner::DefaultPool);
            let slot = Slot {
                uid: shadow.uid.to_owned(),
                attempt: next_attempt(&shadow),
                since: Some(fleet.now.to_owned()),
                version: view.release().map(|(version, _)| version.to_owned()),
                variant: view.node.map(|node| node.variant().to_owned()),
                pool: pool.map(|pool| pool.name.to_owned()),
                ..Slot::default()
            };
            Some((Field::Slot(shadow.name), Value::Slot(slot)))
        });
        let mut sets: Vec<(Field<'a>, Value<'a>)> = freed.chain(taken).collect();
        let resumes = versions.resumes();
        sets.extend(versions.sets());
        if sets.is_empty() {
            return None;
        }
        let mut tests = ledger_tests(fleet, &sets);
        if !self.taken.is_empty() || resumes {
            // A patch that lingers must not begin an update once a person has paused the fleet, or made a new one, nor end a later
            // halt once a person has taken the resume out.
            tests.push((Field::Uid, Value::text_or_absent(fleet.uid)));
            tests.push((Field::Generation, Value::number_or_absent(fleet.generation)));
        }
        Some(Write {
            object: Object::Ledger,
            tests,
            sets,
        })
    }

    /// Returns why nodes (by index) without a step wait, or begin.
    pub(super) fn reasons<'s>(
        &'s self,
        nodes: &'s [Candidate<'_, 'a>],
    ) -> Vec<(usize, Reason<'a>)> {
        let begins = |&at: &usize| {
            let version = nodes[at].view.release().map_or("", |release| release.0);
            (at, Reason::StagingBegins(version))
        };
        let queued = self.queued.iter().copied();
        queued.chain(self.taken.iter().map(begins)).collect()
    }
}

/// Returns how many nodes with slots are trying each release.
fn trying<'a>(nodes: &[Candidate<'_, 'a>]) -> BTreeMap<Release<'a>, u64> {
    let mut trying = BTreeMap::new();
    for (view, slot) in nodes.iter().filter_map(|it| Some((it.view, it.kept()?))) {
        let tries = view.holds(slot) && !slot.counted && !view.time.trial_overdue;
        if let Some(version) = slot.version.as_deref().filter(|_| tries)
            && let Some(node) = view.node
        {
            *trying.entry((version, node.variant())).or_default() += 1;
        }
    }
    trying
}

/// The attempt for which a slot would be taken now.
fn next_attempt(shadow: &ShadowFacts<'_>) -> u64 {
    let attempt = shadow.spec.attempt.unwrap_or(0);
    attempt + u64::from(shadow.spec.state == State::Idle)
}

/// Returns the nodes (by index into the views, which are sorted by name) that could start, in their order, regardless of limits.
pub fn candidates<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Vec<usize> {
    let nodes = assess_all(fleet, views);
    let mut queue = Queue::new(fleet, &nodes, |_, _| false);
    std::iter::from_fn(|| queue.next_of(|_| true)).collect()
}

/// The nodes that may begin. Each node that is taken from them makes its zone busier.
struct Queue<'s, 'v, 'a> {
    nodes: &'s [Candidate<'v, 'a>],
    /// The nodes of each pool and zone, in their order. Only the first of each is compared.
    waiting: BTreeMap<Place<'a>, VecDeque<usize>>,
    /// The pools whose zones are updated one after the other.
    zone_by_zone: BTreeSet<Option<usize>>,
    busy: BTreeMap<Option<&'a str>, usize>,
}

impl<'s, 'v, 'a> Queue<'s, 'v, 'a> {
    /// The nodes that may start an update to a version that is not halted after this pass. Nodes with slots keep their zones
    /// busy.
    fn new(
        fleet: &FleetFacts<'a>,
        nodes: &'s [Candidate<'v, 'a>],
        is_halted: impl Fn(&NodeView<'a>, &str) -> bool,
    ) -> Self {
        let pools = fleet.pools.iter().enumerate();
        let one_by_one = pools.filter(|(_, pool)| pool.one_zone_at_a_time());
        let mut queue = Self {
            nodes,
            waiting: BTreeMap::new(),
            zone_by_zone: one_by_one.map(|(index, _)| Some(index)).collect(),
            busy: BTreeMap::new(),
        };
        let mut order: Vec<usize> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let (view, may_start) = (node.view, node.asks.may_start);
            if view.slot.is_none() {
                let starts = may_start.filter(|version| !is_halted(view, version));
                order.extend(starts.map(|_| at));
            } else if view.node.is_some() {
                *queue.busy.entry(view.zone).or_default() += 1;
            }
        }
        // Among equals they stay sorted by name. Most are equals, so there is little to sort.
        order.sort_by_key(|&at| queue.rank(at));
        for at in order {
            let place = Place::of(nodes[at].view);
            queue.waiting.entry(place).or_default().push_back(at);
        }
        queue
    }

    /// The next of those in places that have room.
    fn next_of(&mut self, has_room: impl Fn(Place<'a>) -> bool) -> Option<usize> {
        let with_room = self.waiting.iter().filter(|(place, _)| has_room(**place));
        let firsts = with_room.filter_map(|(place, nodes)| Some((*place, *nodes.front()?)));
        let (place, _) = firsts.min_by_key(|&(place, index)| {
            let zone_by_zone = self.zone_by_zone.contains(&place.pool);
            let busy = self.busy.get(&place.zone).filter(|_| !zone_by_zone);
            let zone = place.zone.filter(|_| zone_by_zone);
            (self.rank(index), busy.copied().unwrap_or(0), zone, index)
        })?;
        *self.busy.entry(place.zone).or_default() += 1;
        self.waiting.get_mut(&place)?.pop_front()
    }

    fn rank(&self, index: usize) -> ([Reverse<bool>; 2], bool, u64, bool, bool) {
        let view = self.nodes[index].view;
        let NodeView {
            node, shadow, led, ..
        } = view;
        let asked_for = node.is_some_and(|node| node.update_now);
        let failures = shadow
            .and_then(|shadow| shadow.spec.last_failure.as_ref())
            .map_or(0, |failures| failures.count);
        // An agent could have each attempt given up by reporting a new target: it must not keep others from their turn.
        let wanted = shadow.and_then(|shadow| shadow.spec.version.as_deref());
        let had_no_effect = wanted.is_some() && wanted != node.and_then(|node| node.version());
        (
            [Place::of(view).cordoned, asked_for].map(Reverse),
            matches!(led.obstacle, Some(Obstacle::Budget { .. })),
            failures,
            had_no_effect,
            view.runs_this_process,
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place<'a> {
    /// The `BottlerocketPool` (by index) in whose limit it counts; `None` = the default pool, as for nodes that no pool may
    /// update.
    pub(super) pool: Option<usize>,
    /// Its zone, if it has one.
    zone: Option<&'a str>,
    /// Its own name, if it is of the control plane.
    control_plane: Option<&'a str>,
    /// A person has cordoned it, so it is out of service anyway.
    cordoned: bool,
}

impl<'a> Place<'a> {
    pub(super) fn of(view: &NodeView<'a>) -> Self {
        let pool = match view.owner {
            Owner::Pool(index) => Some(index),
            Owner::DefaultPool | Owner::Conflict(..) | Owner::Unknown => None,
        };
        let node = view.node.filter(|node| node.control_plane);
        Self {
            pool,
            zone: view.zone,
            control_plane: node.map(NodeFacts::name),
            cordoned: view.time.cordoned_lately && view.node.is_some_and(NodeFacts::is_ready),
        }
    }
}

/// The room within the limits: how many more nodes may be out of service in each pool, and in the whole fleet.
struct Room<'a> {
    fleet: Limit<'a>,
    /// The default pool's, and then those of the others.
    pools: Vec<Limit<'a>>,
    /// The node of the control plane that has a slot.
    control_plane: Option<&'a str>,
}

/// The room within one limit.
#[derive(Default)]
struct Limit<'a> {
    most: u64,
    slots: u64,
    /// Used by nodes that are out of service without a slot.
    unavailable: u64,
    unavailable_node: Option<&'a str>,
    /// Nodes that get the places of these slots once they are given back.
    successors: u64,
    /// The zones that have an unavailable node, if it is of a pool that keeps zones apart. Nodes that have none are a zone, too.
    busy: Option<BTreeSet<&'a str>>,
}

impl Limit<'_> {
    /// The ledger has room for this many slots, however many nodes may be unavailable.
    fn is_full(&self) -> bool {
        self.is_full_for(false)
    }

    /// For a node that is out of service anyway, only slots count.
    fn is_full_for(&self, cordoned: bool) -> bool {
        let others = if cordoned { 0 } else { self.unavailable };
        self.slots >= SLOTS_MAX || self.slots + others >= self.most
    }
}

impl<'a> Room<'a> {
    /// Returns what the slots that are kept leave. A slot counts in the pool in which it was taken and, if its node has changed
    /// its pool since, in the one that owns it now.
    fn beside(fleet: &FleetFacts<'a>, nodes: &[Candidate<'_, 'a>]) -> Self {
        let limited = |most| Limit {
            most,
            ..Limit::default()
        };
        let pools = fleet.pools.iter().map(|pool| Limit {
            busy: pool.one_zone_at_a_time().then(BTreeSet::new),
            ..limited(pool.limit)
        });
        let default_pool = limited(fleet.default_pool.limit);
        let mut room = Self {
            fleet: limited(fleet.ceiling),
            pools: std::iter::once(default_pool).chain(pools).collect(),
            control_plane: None,
        };
        for (view, slot) in nodes.iter().filter_map(|it| Some((it.view, it.kept()?))) {
            let now = Place::of(view);
            let index = |name: &str| fleet.pools.binary_search_by_key(&name, |pool| pool.name);
            let taken_in = match &slot.pool {
                None => Some(None),
                Some(pool) => index(pool).ok().map(Some),
            };
            if let Some(pool) = taken_in.filter(|pool| now.pool != *pool) {
                let limit = room.of_mut(pool);
                limit.slots += 1;
                limit.busy.as_mut().map(|busy| busy.insert(LEFT_POOL));
            }
            room.take(now);
        }
        room
    }

    fn of(&self, pool: Option<usize>) -> &Limit<'a> {
        let at = pool.map_or(0, |index| index + 1);
        self.pools.get(at).unwrap_or(&self.pools[0])
    }

    fn of_mut(&mut self, pool: Option<usize>) -> &mut Limit<'a> {
        let at = pool.map_or(0, |index| index + 1);
        let at = if at < self.pools.len() { at } else { 0 };
        &mut self.pools[at]
    }

    /// Whether one more node may be taken out of service there.
    fn has(&self, place: Place<'a>) -> bool {
        let keeps_quorum = place.control_plane.is_none() || self.control_plane.is_none();
        let limits = [&self.fleet, self.of(place.pool)];
        let is_full = limits.iter().any(|it| it.is_full_for(place.cordoned));
        keeps_quorum && !is_full && self.busy_elsewhere(place).is_none()
    }

    /// Whether the limits of this pool and of the fleet leave a place, whatever zone or node of the control plane is busy.
    fn has_places(&self, pool: Option<usize>) -> bool {
        !self.fleet.is_full() && !self.of(pool).is_full()
    }

    /// Whether there will be room for one more node there, beside those that follow already, once all updates there are over.
    fn will_have(&self, place: Place<'a>) -> bool {
        let limit = self.of(place.pool);
        limit.successors < limit.slots && self.busy_elsewhere(place).is_none()
    }

    /// A node gets a slot there.
    fn take(&mut self, place: Place<'a>) {
        self.fleet.slots += 1;
        self.of_mut(place.pool).slots += 1;
        self.keep_busy(place);
        self.control_plane = self.control_plane.or(place.control_plane);
    }

    /// This node is out of service without a slot.
    fn note_unavailable(&mut self, view: &NodeView<'a>) {
        let place = Place::of(view);
        let name = view.node.map_or(view.shadow_name, NodeFacts::name);
        self.keep_busy(place);
        let pool = place.pool.map_or(0, |index| index + 1);
        for limit in [&mut self.fleet]
            .into_iter()
            .chain(self.pools.get_mut(pool))
        {
            limit.unavailable += 1;
            limit.unavailable_node.get_or_insert(name);
        }
    }

    fn keep_busy(&mut self, place: Place<'a>) {
        if let Some(busy) = &mut self.of_mut(place.pool).busy {
            busy.insert(place.zone.unwrap_or(NO_ZONE));
        }
    }

    /// Another zone than this, in a pool that keeps them apart, that has an unavailable node.
    fn busy_elsewhere(&self, place: Place<'a>) -> Option<&'a str> {
        let mut busy = self.of(place.pool).busy.iter().flatten();
        busy.find(|zone| **zone != place.zone.unwrap_or(NO_ZONE))
            .copied()
    }

    /// Returns what the others there wait for.
    fn why(&self, place: Place<'a>) -> Reason<'a> {
        let pool = self.of(place.pool);
        let fleet_is_lower = self.fleet.most <= pool.most;
        let (full, limit) = match place.pool {
            // The fleet's may be the lower one, also for the default pool.
            _ if !pool.is_full() || fleet_is_lower => {
                (&self.fleet, "of the fleet (spec.maxUnavailable)")
            }
            Some(_) => (pool, "of this pool (spec.maxUnavailable)"),
            None => (pool, "MAX_CONCURRENT_UPDATE"),
        };
        let waits = Reason::LimitReached;
        if full.is_full() {
            let by_others = full.unavailable_node.filter(|_| full.slots == 0);
            return by_others.map_or(waits, |node| {
                Reason::LimitUsedByUnavailableNodes(node, limit)
            });
        }
        let quorum = self.control_plane.filter(|_| place.control_plane.is_some());
        let busy = self.busy_elsewhere(place).map(Reason::WaitingForZone);
        busy.or(quorum.map(Reason::ControlPlaneBusy))
            .unwrap_or(waits)
    }
}

/// Whether the attempt that this slot is for is over. This rests only on facts that stay true.
///
/// A spec that is Idle at the slot's own attempt is final: it never goes back to that attempt, and the next attempt
/// needs another slot.
fn is_over(slot: &Slot, view: &NodeView<'_>) -> bool {
    let Some(node) = view.node else { return true };
    if view.is_unreadable() {
        return false;
    }
    let tidy = node.is_tidy();
    match view.shadow {
        None => !node.labelled && tidy && node.is_ready(),
        Some(shadow) if shadow.uid != slot.uid => {
            tidy && node.is_ready() && (shadow.reports(State::Idle) || view.time.step_overdue)
        }
        Some(shadow) => {
            shadow.spec.state == State::Idle
                && shadow.spec.attempt >= Some(slot.attempt)
                && tidy
                && (shadow.reports(State::Idle) || view.time.step_overdue)
        }
    }
}

/// The write to the ledger with which a process begins to lead, before it writes anything else; and the term in which it
/// then leads.
///
/// The term is higher than the ledger's, and higher than every term in a shadow or a marker. So it rises even if the ledger
/// was lost. The slots of a lost ledger are made again from the updates that run, and from the markers of nodes whose shadows
/// are lost, too.
pub fn new_term<'a>(
    ledger: Option<&'a BottlerocketFleetStatus>,
    views: &[NodeView<'a>],
) -> (u64, Write<'a>) {
    let marker = |view: &NodeView<'a>| view.node.and_then(NodeFacts::marker);
    let in_shadows = views
        .iter()
        .filter_map(|view| view.shadow?.spec.leader_term);
    let in_markers = views.iter().filter_map(|view| Some(marker(view)?.term));
    // The ledger has no room for what is beyond; in a marker anything may stand.
    let seen = in_shadows.chain(in_markers).filter(|it| *it < COUNTER_MAX);
    let read = ledger.and_then(|ledger| ledger.term);
    let term = read.max(seen.max()).unwrap_or(0).saturating_add(1);
    let slots = ledger.map_or_else(
        || Cow::Owned(BTreeMap::new()),
        |ledger| Cow::Borrowed(&ledger.slots),
    );
    let lost_slot = |view: &NodeView<'a>| {
        let Some(shadow) = view.shadow else {
            let marker = marker(view).filter(|marker| marker.holds_changes())?;
            return Some(Slot {
                // The marker's UID of the shadow may be absent, and the next shadow has another one anyway.
                uid: view.node?.uid.clone(),
                attempt: marker.attempt.min(COUNTER_MAX),
                ..Slot::default()
            });
        };
        (view.marked() || shadow.is_in_update()).then(|| Slot {
            uid: shadow.uid.to_owned(),
            attempt: shadow.spec.attempt.unwrap_or(1),
            version: shadow.spec.version.clone(),
            ..Slot::default()
        })
    };
    let views = views.iter().filter(|_| read.is_none());
    let slots_again = views.filter_map(|view| {
        let slot = lost_slot(view)?;
        Some((Field::Slot(view.shadow_name), Value::Slot(slot)))
    });
    let write = Write {
        object: Object::Ledger,
        tests: vec![
            (Field::Term, Value::number_or_absent(read)),
            (Field::Slots, Value::Slots(slots)),
        ],
        sets: std::iter::once((Field::Term, Value::Number(term)))
            .chain(slots_again)
            .collect(),
    };
    (term, write)
}

/// Returns what must still be so when these fields of the ledger are set: the leader, the slots, and the lists that change as
/// they were read, so that a write that lingers does not undo what was counted or halted since.
pub(super) fn ledger_tests<'a>(
    fleet: &FleetFacts<'a>,
    sets: &[(Field<'a>, Value<'a>)],
) -> Vec<(Field<'a>, Value<'a>)> {
    let lists = sets.iter().filter_map(|(field, _)| {
        let read = match field {
            Field::Versions => Value::Versions(Cow::Borrowed(fleet.versions)),
            Field::DonePools => Value::DonePools(Cow::Borrowed(fleet.done_pools)),
            _ => return None,
        };
        Some((*field, read))
    });
    let fixed = [
        (Field::Term, Value::Number(fleet.term)),
        (Field::Slots, Value::Slots(Cow::Borrowed(fleet.slots))),
    ];
    fixed.into_iter().chain(lists).collect()
}
