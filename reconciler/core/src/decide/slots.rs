//! The ledger: which nodes may be updated now, and which are done. Each pass makes one conditional patch, which gives
//! slots back and takes new ones.

mod holders;

use std::collections::BTreeMap;

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{Field, Object, State, Value, Write};

use super::idle::Candidates;
use super::order::Survey;
use super::records::Halted;
use super::room::{Place, Room};
use super::versions::VersionRecords;
use super::{Reason, Turn, age, writes};
use crate::facts::{FleetFacts, NamedSlot, NodeFacts, NodeView, Steering, is_unavailable};
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
    pub halted: Vec<Halted<'a>>,
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
    let mut versions = VersionRecords::after(fleet, over, holders.kept(views));
    versions.note_done(fleet, views, survey);
    let canaries = Canaries::of(holders.kept(views));
    let Choice {
        taken,
        queued,
        preflight,
    } = choose(fleet, views, holders, &versions, canaries);

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
            pool: slot_pool(fleet, view),
            ..Slot::default()
        };
        Some((Field::Slot(shadow.name), Value::Slot(slot)))
    }));
    let halted = versions.halted.clone();
    sets.extend(versions.sets(fleet, views));
    let seen = age::notes(fleet, views).into_iter();
    sets.extend(seen.map(|(version, seen)| (Field::Seen(version), Value::text_or_absent(seen))));
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
    match shadow.spec.state {
        State::Idle => shadow.spec.attempt.unwrap_or(0) + 1,
        _ => shadow.spec.attempt.unwrap_or(1),
    }
}

/// The version to which a slot taken now would let this node be updated.
pub(crate) fn version_for<'a>(view: &NodeView<'a>) -> Option<&'a str> {
    let shadow = view.shadow?;
    match shadow.spec.state {
        State::Idle => shadow.update(),
        _ => shadow.spec.version,
    }
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
    versions: &VersionRecords<'a>,
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
        if let Some(version) = version_for(&views[index])
            && !canaries.take(fleet, versions, (version, variant_of(&views[index])))
        {
            choice
                .queued
                .push((index, Reason::VersionUnproven(version)));
            continue;
        }
        room.take(Place::of(&views[index]));
        if views[index]
            .node
            .is_some_and(|node| fleet.must_pause(&node, versions.finished))
        {
            choice.queued.push((index, Reason::PausingBetweenUpdates));
        } else if views[index].pods.known {
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

/// Nodes down for other reasons use up the limit, but do not block a node that is already out of service; among those,
/// one that only needs uncordoning goes first.
fn choose_running<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    holders: &Holders<'a>,
) -> Running<'a> {
    let mut room = Room::beside(
        fleet,
        holders
            .kept(views)
            .map(|(view, (_, slot))| (slot, Place::of(view))),
    );
    let goes_on = |at: &usize| {
        let view = &views[*at];
        runs(view) && (fleet.alone || !is_others(view)) && !awaits_agent(view)
    };
    let running = (0..views.len()).filter(|at| !holders.have(*at) && goes_on(at));
    let (mut at_once, mut others): (Vec<_>, Vec<_>) =
        running.partition(|&at| goes_on_at_once(&views[at]));
    at_once.sort_by_key(|&at| !only_comes_back(&views[at]));
    others.sort_by_key(|&at| is_unavailable(&views[at]));
    let (mut taken, mut left_over) = (vec![], vec![]);
    for at in at_once {
        // Whatever zones are busy: it is out of service already, and comes back.
        let place = Place::of(&views[at]);
        if room.has_places(place.pool) {
            room.take(place);
            taken.push(at);
        } else {
            left_over.push(at);
        }
    }
    let unavailable =
        |at: &usize| !holders.keep(*at) && is_unavailable(&views[*at]) && !taken.contains(at);
    for at in (0..views.len()).filter(unavailable) {
        let name = views[at]
            .node
            .map_or(views[at].shadow_name, |node| node.name);
        room.note_unavailable(Place::of(&views[at]), name);
    }
    for at in others {
        let place = Place::of(&views[at]);
        if room.has(place) {
            room.take(place);
            taken.push(at);
        } else {
            left_over.push(at);
        }
    }
    Running {
        taken,
        left_over,
        room,
    }
}

/// Does an update of this node run?
fn runs(view: &NodeView<'_>) -> bool {
    view.node.is_some()
        && view
            .shadow
            .is_some_and(|shadow| shadow.spec.state != State::Idle)
}

/// Did another operator begin what runs on this node? It may still be at it.
fn is_others(view: &NodeView<'_>) -> bool {
    view.shadow
        .is_some_and(|shadow| shadow.spec.attempt.is_none())
}

/// Has another operator only staged an update on this node, and is no agent of ours there yet to take it up? A slot would begin
/// the time in which the agent has to. Without the label none comes.
pub(super) fn awaits_agent(view: &NodeView<'_>) -> bool {
    let staged = view
        .shadow
        .is_some_and(|shadow| shadow.spec.state == State::StagedAndPerformedUpdate);
    let away = view
        .node
        .is_some_and(|node| node.labelled && !node.agent_ready);
    is_others(view) && staged && away && !goes_on_at_once(view)
}

/// Is the node of this running update out of service already, and Ready? Then it goes on at once, no matter how many
/// others are down: that can only bring it back.
fn goes_on_at_once(view: &NodeView<'_>) -> bool {
    let Some((node, shadow)) = view.node.zip(view.shadow) else {
        return false;
    };
    // Before the reboot is wanted, a cordon is a person's, and the node may be full of pods.
    let cordoned = node.unschedulable && shadow.spec.state != State::StagedAndPerformedUpdate;
    node.ready && (cordoned || view.marked() || only_comes_back(view))
}

/// Does the host run the update already, so that the node only has to be put back into service?
fn only_comes_back(view: &NodeView<'_>) -> bool {
    let of_update = |(node, shadow): (NodeFacts<'_>, ShadowFacts<'_>)| {
        node.version.is_some() && node.version == shadow.spec.version
    };
    view.node.zip(view.shadow).is_some_and(of_update)
}

/// A version, and the variant of the node that is to run it.
type Release<'a> = (&'a str, Option<&'a str>);

fn variant_of<'a>(view: &NodeView<'a>) -> Option<&'a str> {
    view.node.and_then(|node| node.variant)
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
            if let Some(version) = slot.version.as_deref().filter(|_| tries) {
                *trying.entry((version, variant_of(view))).or_default() += 1;
            }
        }
        Self { trying }
    }

    /// May one more node begin with this version, by what becomes of its record in this pass? If so, it counts from now on.
    fn take(
        &mut self,
        fleet: &FleetFacts<'a>,
        versions: &VersionRecords<'a>,
        release: Release<'a>,
    ) -> bool {
        let trying = self.trying.entry(release).or_default();
        let most = versions.may_still_fail(fleet, release);
        let takes = most.is_none_or(|most| *trying < most);
        *trying += u64::from(takes);
        takes
    }
}
