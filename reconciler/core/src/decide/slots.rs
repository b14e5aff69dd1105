//! The ledger: which nodes may be updated now, and which are done. Each pass makes one conditional patch, which gives
//! slots back and takes new ones.

mod holders;

use std::collections::BTreeMap;

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{Field, Object, State, Value, Write};

use super::idle::Candidates;
use super::order::Survey;
use super::room::{Place, Room};
use super::versions::{Halted, VersionRecords};
use super::{Reason, TooManyFailures, Turn, writes};
use crate::facts::{FleetFacts, NamedSlot, NodeView, Release, Steering, is_unavailable};
pub(super) use holders::Holders;

/// The pods of at most this many nodes are checked before there is room for these nodes.
const MAX_SUCCESSORS: usize = 32;

/// What to do with the slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots<'a> {
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

/// Gives back the slots of updates that are over, and takes slots for nodes that may begin. The views are sorted by name of
/// the shadow.
pub fn slots<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Slots<'a> {
    let holders = Holders::of(fleet, views);
    let survey = Survey::of(fleet, views.iter().zip(holders.held(views)));
    of_holders(fleet, views, &holders, &survey)
}

/// What becomes of the slots, once it is known which nodes have one, and what nodes say of pools that go first.
pub(super) fn of_holders<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    holders: &Holders<'a>,
    survey: &Survey<'a>,
) -> Slots<'a> {
    if fleet.ledger_term != Some(fleet.term) {
        return Slots::default();
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
    } = choose(fleet, views, holders, &mut versions, canaries);

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
            variant: view.node.map(|node| node.variant.to_owned()),
            pool: slot_pool(fleet, view),
            ..Slot::default()
        };
        Some((Field::Slot(shadow.name), Value::Slot(slot)))
    }));
    let halted = versions.halted();
    sets.extend(versions.sets());
    let write = (!sets.is_empty()).then(|| {
        let mut tests = writes::ledger_tests(fleet, &sets);
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
    Slots {
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
        .filter(|_| view.steering != Steering::Default);
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
    let mut candidates = Candidates::new(
        fleet,
        views,
        |at| holders.have(at),
        |view, version| !versions.halts(view, version),
    );
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
            let name = view.node.map_or(view.shadow_name, |node| node.name);
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

/// Does an update of this node run?
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
                *trying.entry((version, node.variant)).or_default() += 1;
            }
        }
        Self { trying }
    }

    /// May one more node begin with this version, by what becomes of its record in this pass? If so, it counts from now on.
    fn take(&mut self, versions: &VersionRecords<'_, 'a>, release: Release<'a>) -> bool {
        let trying = self.trying.entry(release).or_default();
        let most = versions.may_still_fail(release);
        let takes = most.is_none_or(|most| *trying < most);
        *trying += u64::from(takes);
        takes
    }
}
