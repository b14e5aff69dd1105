//! The ledger: which nodes may be updated now, and which are done. Each pass makes one conditional patch, which gives
//! slots back and takes new ones.
//!
//! Nodes that a person asked for go first, then nodes that no budget blocks, then nodes with fewer failures. Nodes whose last
//! attempt came to nothing go after the others, and the reconciler's own node goes last. Among equals, the zone with the
//! fewest updates goes first; then the name decides.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_api::crds::COUNTER_MAX;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::{Field, Object, State, Value, Write};

use super::assess::assess;
use super::capacity::{Place, Room};
use super::order::Survey;
use super::step::Assessment;
use super::versions::{Halted, VersionRecords};
use super::{Reason, StagingStep, TooManyFailures, Turn};
use crate::facts::{FleetFacts, NamedSlot, NodeView, Owner, Release, is_unavailable};

/// The pods of at most this many nodes are checked before there is room for these nodes.
const MAX_SUCCESSORS: usize = 32;

/// Which nodes get slots, and why the rest waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation<'a> {
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
    pub halted: Vec<Halted>,
    /// The slots that this write gives back, by name, and the view (by index) that each belongs to, if there is one.
    pub freed: Vec<(&'a str, Option<usize>)>,
}

impl<'a> Allocation<'a> {
    /// Returns why nodes (by index) without a step wait, or begin.
    pub(super) fn reasons<'s>(
        &'s self,
        views: &'s [NodeView<'a>],
    ) -> impl Iterator<Item = (usize, Reason<'a>)> {
        let begins = |&at: &usize| {
            let version = version_for(&views[at]).unwrap_or("");
            (at, Reason::Staging(StagingStep::Begins(version)))
        };
        let taken = self.taken.iter().map(begins);
        self.queued.iter().copied().chain(taken)
    }
}

/// Gives back the slots of updates that are over, and takes slots for nodes that may begin. The views are sorted by name of
/// the shadow.
pub(super) fn allocate<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    assessments: &[Assessment<'a>],
    holders: &Holders<'a>,
    survey: &Survey<'a>,
) -> Allocation<'a> {
    if fleet.ledger_term != Some(fleet.term) {
        return Allocation::default();
    }
    let over = holders
        .freed
        .iter()
        .map(|&(name, index)| (name, index.and_then(|index| views.get(index))));
    let mut versions = VersionRecords::after(fleet, views, over, holders.kept(views));
    versions.note_for_pools(survey);
    let canaries = Canaries::of(holders.kept(views));
    let Choice {
        taken,
        queued,
        preflight,
    } = choose(fleet, views, assessments, holders, &mut versions, canaries);

    let mut sets: Vec<(Field<'a>, Value<'a>)> = holders
        .freed
        .iter()
        .map(|&(name, _)| (Field::Slot(name), Value::Absent))
        .collect();
    sets.extend(taken.iter().filter_map(|&index| {
        let (view, shadow) = (&views[index], views[index].shadow?);
        let slot = Slot {
            uid: shadow.uid.to_owned(),
            attempt: next_attempt(&shadow),
            since: Some(fleet.now.to_owned()),
            version: version_for(view).map(str::to_owned),
            variant: view.node.map(|node| node.variant().to_owned()),
            pool: slot_pool(fleet, view),
            ..Slot::default()
        };
        Some((Field::Slot(shadow.name), Value::Slot(slot)))
    }));
    let halted = versions.halted();
    sets.extend(versions.sets());
    let write = (!sets.is_empty()).then(|| {
        let mut tests = ledger_tests(fleet, &sets);
        if !taken.is_empty() {
            // A patch that lingers must not begin an update once a person has paused the fleet, or made a new one.
            tests.push((Field::Uid, Value::text_or_absent(fleet.uid)));
            tests.push((Field::Generation, Value::number_or_absent(fleet.generation)));
        }
        Write {
            object: Object::Ledger,
            tests,
            sets,
        }
    });
    Allocation {
        write,
        taken,
        queued,
        preflight,
        halted,
        freed: holders.freed.clone(),
    }
}

/// The `BottlerocketPool` in which a slot of this node is taken, as the ledger names it; nothing for the default pool.
fn slot_pool(fleet: &FleetFacts<'_>, view: &NodeView<'_>) -> Option<String> {
    let pool = fleet
        .pool_of(view)
        .filter(|_| view.owner != Owner::DefaultPool);
    pool.map(|pool| pool.name.to_owned())
}

/// The attempt for which a slot would be taken now.
fn next_attempt(shadow: &ShadowFacts<'_>) -> u64 {
    let attempt = shadow.spec.attempt.unwrap_or(0);
    match shadow.spec.state {
        State::Idle => attempt + 1,
        _ => attempt,
    }
}

/// The version to which a slot taken now would let this node be updated.
pub(crate) fn version_for<'a>(view: &NodeView<'a>) -> Option<&'a str> {
    Some(view.release()?.0)
}

/// Which nodes (by index) get the room there is, which wait and why, and whose pods must be checked first.
struct Choice<'a> {
    taken: Vec<usize>,
    queued: Vec<(usize, Reason<'a>)>,
    preflight: Vec<usize>,
}

/// Updates already running without a slot go first, then nodes in turn. A node whose pods are not known yet keeps its
/// place.
fn choose<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    assessments: &[Assessment<'a>],
    holders: &Holders<'a>,
    versions: &mut VersionRecords<'_, 'a>,
    mut canaries: Canaries<'a>,
) -> Choice<'a> {
    let Running {
        taken,
        left_over,
        mut room,
    } = choose_running(fleet, views, holders);
    let mut choice = Choice {
        taken,
        queued: vec![],
        preflight: vec![],
    };
    let mut candidates = Candidates::new(fleet, views, assessments, holders, |view, version| {
        versions.halts(view, version)
    });
    while let Some(index) = candidates.next_of(|place| room.has(place)) {
        if let Some(release) = views[index].release() {
            let refused = if !canaries.take(versions, release) {
                Some(Reason::VersionUnproven(release.0))
            } else if views[index].pods.known && !versions.has_room(release) {
                Some(Reason::VersionHalted(TooManyFailures::NoRoom))
            } else {
                None
            };
            if let Some(reason) = refused {
                choice.queued.push((index, reason));
                continue;
            }
        }
        room.take(Place::of(&views[index]));
        if views[index].pods.known {
            choice.taken.push(index);
        } else {
            choice
                .queued
                .push((index, Reason::LimitReached(Turn::ChecksPods)));
            choice.preflight.push(index);
        }
    }
    // Who follows is looked at while others are updated, so a slot is given back and taken again in one patch.
    for _ in 0..MAX_SUCCESSORS {
        let Some(index) = candidates.next_of(|place| room.will_have(place)) else {
            break;
        };
        let place = Place::of(&views[index]);
        room.note_successor(place);
        choice.queued.push((index, room.why(place)));
        // Known or not: whose pods are no longer asked for are forgotten.
        choice.preflight.push(index);
    }
    let rest = candidates.rest().chain(left_over);
    choice
        .queued
        .extend(rest.map(|index| (index, room.why(Place::of(&views[index])))));
    choice
}

/// Which updates that run without a slot get one.
struct Running<'a> {
    taken: Vec<usize>,
    left_over: Vec<usize>,
    /// How many nodes may begin beside them.
    room: Room<'a>,
}

/// Gives slots to running updates that lost theirs with the ledger. Nodes that are down for other reasons use up the limit, but
/// do not block a node that is already out of service.
fn choose_running<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    holders: &Holders<'a>,
) -> Running<'a> {
    let kept = holders.kept(views);
    let slots = kept.map(|(view, (_, slot))| (slot, Place::of(view)));
    let mut running = Running {
        taken: vec![],
        left_over: vec![],
        room: Room::beside(fleet, slots),
    };
    let without_slot = (0..views.len()).filter(|at| !holders.have(*at) && runs(&views[*at]));
    let (away, in_service): (Vec<_>, Vec<_>) =
        without_slot.partition(|at| is_unavailable(&views[*at]));
    for at in away {
        let place = Place::of(&views[at]);
        running.take(at, place, running.room.has_places(place.pool));
    }
    for (at, view) in views.iter().enumerate() {
        if is_unavailable(view) && !holders.keep(at) && !running.taken.contains(&at) {
            let name = view.node.map_or(view.shadow_name, |node| node.name());
            running.room.note_unavailable(Place::of(view), name);
        }
    }
    for at in in_service {
        let place = Place::of(&views[at]);
        running.take(at, place, running.room.has(place));
    }
    running
}

impl<'a> Running<'a> {
    fn take(&mut self, at: usize, place: Place<'a>, has_room: bool) {
        if has_room {
            self.room.take(place);
            self.taken.push(at);
        } else {
            self.left_over.push(at);
        }
    }
}

/// Whether an update of this node runs.
fn runs(view: &NodeView<'_>) -> bool {
    view.node.is_some() && view.shadow.is_some_and(|shadow| shadow.is_in_update())
}

/// How many nodes are trying each version. While no node of their variant has reached it, only as many try it at once as may
/// fail before it is halted.
struct Canaries<'a> {
    trying: BTreeMap<Release<'a>, u64>,
}

impl<'a> Canaries<'a> {
    /// From those that keep their slots.
    fn of<'v>(kept: impl Iterator<Item = (&'v NodeView<'a>, NamedSlot<'a>)>) -> Self
    where
        'a: 'v,
    {
        let mut trying: BTreeMap<Release<'a>, u64> = BTreeMap::new();
        for (view, (_, slot)) in kept {
            let tries = view.holds(slot) && !slot.counted && !view.time.trial_overdue;
            if let Some(version) = slot.version.as_deref().filter(|_| tries)
                && let Some(node) = view.node
            {
                *trying.entry((version, node.variant())).or_default() += 1;
            }
        }
        Self { trying }
    }

    /// Returns whether one more node may begin with this version, by what becomes of its record in this pass. If so, it counts from now on.
    fn take(&mut self, versions: &VersionRecords<'_, 'a>, release: Release<'a>) -> bool {
        let trying = self.trying.entry(release).or_default();
        let most = versions.may_still_fail(release);
        let takes = most.is_none_or(|most| *trying < most);
        *trying += u64::from(takes);
        takes
    }
}

/// Returns the nodes (by index into the views, which are sorted by name) that could start, in their order, regardless of limits.
pub fn candidates<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Vec<usize> {
    let holders = Holders::of(fleet, views);
    let with_slots = views.iter().zip(holders.held(views));
    let assessed = with_slots.map(|(view, slot)| assess(fleet, view, slot));
    let assessments: Vec<Assessment<'a>> = assessed.collect();
    let mut candidates = Candidates::new(fleet, views, &assessments, &holders, |_, _| false);
    std::iter::from_fn(|| candidates.next_of(|_| true)).collect()
}

/// The candidates. Each node that is taken from them makes its zone busier.
struct Candidates<'s, 'a> {
    views: &'s [NodeView<'a>],
    /// The nodes of each pool and zone, in their order. Only the first of each is compared.
    waiting: BTreeMap<Place<'a>, VecDeque<usize>>,
    /// The pools whose zones are updated one after the other.
    zone_by_zone: BTreeSet<Option<usize>>,
    busy: BTreeMap<Option<&'a str>, usize>,
}

impl<'s, 'a> Candidates<'s, 'a> {
    /// The nodes that may start an update to a version that is not halted after this pass. Nodes with slots keep their zones
    /// busy.
    fn new(
        fleet: &FleetFacts<'a>,
        views: &'s [NodeView<'a>],
        assessments: &[Assessment<'a>],
        holders: &Holders<'a>,
        is_halted: impl Fn(&NodeView<'a>, &str) -> bool,
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
        for (index, (view, assessment)) in views.iter().zip(assessments).enumerate() {
            if holders.have(index) {
                if view.node.is_some() && view.shadow.is_some() {
                    *candidates.busy.entry(view.zone).or_default() += 1;
                }
            } else if assessment
                .may_start
                .is_some_and(|version| !is_halted(view, version))
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
    fn next_of(&mut self, has_room: impl Fn(Place<'a>) -> bool) -> Option<usize> {
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
    fn rest(self) -> impl Iterator<Item = usize> + use<'s, 'a> {
        self.waiting.into_values().flatten()
    }

    fn rank(&self, index: usize) -> (Reverse<bool>, bool, u64, bool, bool) {
        let view = &self.views[index];
        let NodeView {
            node, shadow, pods, ..
        } = view;
        let asked_for = node.is_some_and(|node| node.update_now);
        let failures = shadow
            .and_then(|shadow| shadow.spec.last_failure)
            .map_or(0, |failures| failures.count);
        // An agent could have each attempt given up by reporting a new target: it must not keep others from their turn.
        let wanted = shadow.and_then(|shadow| shadow.spec.version);
        let had_no_effect = wanted.is_some() && wanted != node.and_then(|node| node.version());
        (
            Reverse(asked_for),
            pods.blocked.is_some(),
            failures,
            had_no_effect,
            view.runs_this_process,
        )
    }
}

/// Which views have slots. It is found out once, in one walk along both, because to search for each name waits for memory.
pub(super) struct Holders<'a> {
    /// For each view, by index: the slot of its name, and whether it keeps it.
    slots: Vec<Option<(NamedSlot<'a>, bool)>>,
    /// The slots that are given back, and the view (by index) that each belongs to, if there is one.
    pub(super) freed: Vec<(&'a str, Option<usize>)>,
}

impl<'a> Holders<'a> {
    /// Of these views, which are sorted by name.
    pub(super) fn of(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Self {
        debug_assert!(
            views.is_sorted_by_key(|view| view.shadow_name),
            "the views are sorted"
        );
        let mut holders = Self {
            slots: vec![None; views.len()],
            freed: vec![],
        };
        let mut rest = views.iter().enumerate().peekable();
        for (name, slot) in fleet.slots {
            while rest
                .next_if(|(_, view)| view.shadow_name < name.as_str())
                .is_some()
            {}
            let found = rest.next_if(|(_, view)| view.shadow_name == name);
            let over = is_over(slot, found.map(|(_, view)| view));
            if over {
                holders.freed.push((name, found.map(|(index, _)| index)));
            }
            if let Some((index, _)) = found {
                holders.slots[index] = Some(((name, slot), !over));
            }
        }
        holders
    }

    /// The slot of each view, if the slot of its name is for this very shadow.
    pub(super) fn held(
        &self,
        views: &[NodeView<'a>],
    ) -> impl Iterator<Item = Option<&'a Slot>> + Clone {
        let slots = self
            .slots
            .iter()
            .map(|found| found.map(|((_, slot), _)| slot));
        views
            .iter()
            .zip(slots)
            .map(|(view, slot)| slot.filter(|slot| view.holds(slot)))
    }

    /// The slots that are kept, with the views of their names.
    pub(super) fn kept<'v>(
        &self,
        views: &'v [NodeView<'a>],
    ) -> impl Iterator<Item = (&'v NodeView<'a>, NamedSlot<'a>)> + Clone {
        let kept = views.iter().zip(&self.slots);
        kept.filter_map(|(view, found)| {
            found
                .filter(|(_, keeps)| *keeps)
                .map(|(slot, _)| (view, slot))
        })
    }

    /// Whether this view (by index) has a slot.
    pub(super) fn have(&self, index: usize) -> bool {
        self.slots[index].is_some()
    }

    /// Whether this view (by index) keeps its slot.
    pub(super) fn keep(&self, index: usize) -> bool {
        self.slots[index].is_some_and(|(_, keeps)| keeps)
    }
}

/// Whether the attempt that this slot is for is over. This rests only on facts that stay true.
///
/// A spec that is Idle at the slot's own attempt is final: it never goes back to that attempt, and the next attempt
/// needs another slot.
fn is_over(slot: &Slot, view: Option<&NodeView<'_>>) -> bool {
    let Some(view) = view else { return true };
    let Some(node) = view.node else { return true };
    if view.unreadable {
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
    let shadows = || views.iter().filter_map(|view| Some((view, view.shadow?)));
    let markers = || {
        views
            .iter()
            .filter_map(|view| Some((view, view.node?, view.node?.marker()?)))
    };
    let seen = shadows().filter_map(|(_, shadow)| shadow.spec.leader_term);
    // The ledger has no room for what is beyond; in a marker anything may stand.
    let seen = seen
        .chain(markers().map(|(.., marker)| marker.term))
        .filter(|term| *term < COUNTER_MAX)
        .max();
    let read = ledger.and_then(|ledger| ledger.term);
    let term = read.max(seen).unwrap_or(0).saturating_add(1);
    let slots = ledger.map_or_else(
        || Cow::Owned(BTreeMap::new()),
        |ledger| Cow::Borrowed(&ledger.slots),
    );

    let tests = vec![
        (Field::Term, Value::number_or_absent(read)),
        (Field::Slots, Value::Slots(slots)),
    ];
    let mut sets = vec![(Field::Term, Value::Number(term))];
    if read.is_none() {
        let running = shadows().filter(|(view, shadow)| view.marked() || shadow.is_in_update());
        sets.extend(running.map(|(_, shadow)| {
            let slot = Slot {
                uid: shadow.uid.to_owned(),
                attempt: shadow.spec.attempt.unwrap_or(1),
                version: shadow.spec.version.map(str::to_owned),
                ..Slot::default()
            };
            (Field::Slot(shadow.name), Value::Slot(slot))
        }));
        let alone =
            markers().filter(|(view, _, marker)| view.shadow.is_none() && marker.holds_changes());
        sets.extend(alone.map(|(view, node, marker)| {
            // The Node's UID: what the marker calls the shadow's may be no UID, and the next shadow has another one anyway.
            let (uid, attempt) = (
                node.uid.as_str().to_owned(),
                marker.attempt.min(COUNTER_MAX),
            );
            (
                Field::Slot(view.shadow_name),
                Value::Slot(Slot {
                    uid,
                    attempt,
                    ..Slot::default()
                }),
            )
        }));
    }
    (
        term,
        Write {
            object: Object::Ledger,
            tests,
            sets,
        },
    )
}

/// What must still be so when these fields of the ledger are set: the leader, the slots, and the lists that change as they
/// were read, so that a write that lingers does not undo what was counted or halted since.
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
