//! The ledger: who may be updated, who is done. One conditional patch a pass gives back and takes.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use brupop_api::fleet::Slot;
use brupop_api::{Field, Object, State, Value, Write};

use super::versions::{Halted, Versions};
use super::{Reason, idle};
use crate::facts::{FleetFacts, Situation};

/// What is to become of the slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots<'a> {
    /// The ledger's next version, if it is to change.
    pub write: Option<Write<'a>>,
    /// Nodes (by index into the situations) that could begin but got no slot, and why.
    pub queued: Vec<(usize, Reason<'a>)>,
    /// Nodes (by index) that are next, and whose pods must be looked at before one of them begins.
    pub look_at: Vec<usize>,
    /// Versions that this write halts.
    pub halted: Vec<Halted<'a>>,
}

/// Gives back the slots of updates that are over, and takes slots for nodes that may begin.
pub fn slots<'a>(fleet: &FleetFacts<'a>, situations: &[Situation<'a>]) -> Slots<'a> {
    if fleet.ledger_term != Some(fleet.term) {
        return Slots::default();
    }
    let by_name: BTreeMap<&str, &Situation<'a>> =
        situations.iter().map(|situation| (situation.shadow_name, situation)).collect();
    let freed: Vec<&'a String> = fleet
        .slots
        .iter()
        .filter(|(name, slot)| is_over(slot, by_name.get(name.as_str()).copied()))
        .map(|(name, _)| name)
        .collect();
    let kept = fleet.slots.len() - freed.len();
    let keeps = |name: &str| fleet.slots.contains_key(name) && !freed.iter().any(|freed| *freed == name);
    let unavailable = situations
        .iter()
        .filter(|situation| !keeps(situation.shadow_name) && is_unavailable(situation))
        .count();
    let room = fleet.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(kept + unavailable)
    });
    let over = freed.iter().filter_map(|name| by_name.get(name.as_str()).copied());
    let versions = Versions::after(fleet, over, situations);
    let Choice { taken, queued, look_at } = choose(fleet, situations, room, &versions);

    let mut sets: Vec<(Field<'a>, Value<'a>)> =
        freed.iter().map(|name| (Field::Slot(name.as_str()), Value::Absent)).collect();
    sets.extend(taken.iter().filter_map(|&index| {
        let shadow = situations[index].shadow?;
        let attempt = next_attempt(&situations[index]);
        Some((Field::Slot(shadow.name), Value::Slot(Slot { uid: shadow.uid.to_owned(), attempt })))
    }));
    let halted = versions.halted();
    sets.extend(versions.sets(fleet));
    let write = (!sets.is_empty()).then(|| Write {
        object: Object::Fleet,
        tests: vec![
            (Field::Term, Value::Number(fleet.term)),
            (Field::Slots, Value::Slots(Cow::Borrowed(fleet.slots))),
        ],
        sets,
    });
    let why =
        if kept == 0 && unavailable > 0 { Reason::LimitUsedByUnavailableNodes } else { Reason::LimitReached };
    Slots { write, queued: queued.into_iter().map(|index| (index, why)).collect(), look_at, halted }
}

/// Is the attempt that this slot is for over, on facts that cannot be taken back?
///
/// Idle at the slot's own attempt is final: the spec left that attempt for good, and the next one needs another slot.
fn is_over(slot: &Slot, situation: Option<&Situation<'_>>) -> bool {
    let Some(situation) = situation else { return true };
    let Some(node) = situation.node else { return true };
    let tidy = node.marker.is_none();
    match situation.shadow {
        None => !node.labelled && tidy && node.ready,
        Some(shadow) if shadow.uid != slot.uid => {
            tidy && node.ready && (shadow.reports(State::Idle) || situation.time.step_overdue)
        }
        Some(shadow) => {
            shadow.spec.state == State::Idle
                && shadow.spec.attempt >= Some(slot.attempt)
                && tidy
                && (shadow.reports(State::Idle) || situation.time.step_overdue)
        }
    }
}

/// A node that is out of service.
fn is_unavailable(situation: &Situation<'_>) -> bool {
    situation.node.is_some_and(|node| node.labelled && !node.ready) || situation.marked()
}

/// The attempt that a slot taken now would be for.
fn next_attempt(situation: &Situation<'_>) -> u64 {
    situation.shadow.map_or(1, |shadow| match (shadow.spec.state, shadow.spec.attempt) {
        (State::Idle, attempt) => attempt.unwrap_or(0) + 1,
        (_, attempt) => attempt.unwrap_or(1),
    })
}

/// Who gets the room there is, who has to wait, and about whom more must be known first.
#[derive(Default)]
struct Choice {
    taken: Vec<usize>,
    queued: Vec<usize>,
    look_at: Vec<usize>,
}

/// Who gets the room there is, and who has to wait. Whose pods are not known yet holds its place.
///
/// Updates that run without a slot come first. Then: those asked for by a person, fewer failures, zones in which least is
/// going on, the reconciler's own node last, by name.
fn choose<'a>(
    fleet: &FleetFacts<'a>,
    situations: &[Situation<'a>],
    room: usize,
    versions: &Versions<'a>,
) -> Choice {
    let mut waiting: Vec<usize> = Vec::new();
    let mut taken: Vec<usize> = Vec::new();
    for (index, situation) in situations.iter().enumerate() {
        let Some(shadow) = situation.shadow else { continue };
        if situation.node.is_none() || fleet.slots.contains_key(situation.shadow_name) {
            continue;
        }
        if shadow.spec.state != State::Idle {
            taken.push(index);
        } else if situation.node.is_some_and(|node| node.marker.is_none())
            && idle::startable(fleet, situation).is_ok_and(|version| !versions.halts(version))
        {
            waiting.push(index);
        }
    }
    let left_over = taken.split_off(taken.len().min(room));
    let mut room = room - taken.len();
    let mut choice = Choice { taken, ..Choice::default() };
    let zone_of = |index: usize| situations[index].node.and_then(|node| node.zone);
    let mut busy: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for situation in situations.iter().filter(|situation| fleet.slots.contains_key(situation.shadow_name)) {
        *busy.entry(situation.node.and_then(|node| node.zone)).or_default() += 1;
    }
    // Each zone's nodes in their order: its first is all that counts of it.
    let rank = |index: usize| {
        let situation = &situations[index];
        let asked_for = situation.node.is_some_and(|node| node.update_now);
        let failures = situation.shadow.and_then(|shadow| shadow.spec.failures).map_or(0, |f| f.count);
        let ours = situation.node.is_some_and(|node| node.ours);
        (Reverse(asked_for), failures, ours)
    };
    waiting.sort_by_cached_key(|&index| (rank(index), situations[index].shadow_name));
    let mut zones: BTreeMap<Option<&str>, VecDeque<usize>> = BTreeMap::new();
    for index in waiting {
        zones.entry(zone_of(index)).or_default().push_back(index);
    }
    while room > 0 {
        let firsts = zones.values_mut().filter(|zone| !zone.is_empty());
        let first = firsts.min_by_key(|zone| {
            let going_on = busy.get(&zone_of(zone[0])).copied().unwrap_or(0);
            (rank(zone[0]), going_on, situations[zone[0]].shadow_name)
        });
        let Some(index) = first.and_then(VecDeque::pop_front) else { break };
        *busy.entry(zone_of(index)).or_default() += 1;
        room -= 1;
        let known = situations[index].pods.known;
        if known { &mut choice.taken } else { &mut choice.look_at }.push(index);
    }
    choice.queued = zones.into_values().flatten().collect();
    choice.queued.extend(left_over);
    choice
}
