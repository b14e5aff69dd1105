//! The ledger: who may be updated, who is done. One conditional patch a pass gives back and takes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::fleet::Slot;
use brupop_api::{Field, Object, State, Value, Write};

use super::Reason;
use super::turns::Turns;
use super::versions::{Halted, Versions};
use crate::facts::{FleetFacts, Situation};

/// What is to become of the slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots<'a> {
    /// The ledger's next version, if it is to change.
    pub write: Option<Write<'a>>,
    /// Nodes (by index into the situations) that this write gives a slot, in their order.
    pub taken: Vec<usize>,
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
    let holders = Holders::of(fleet, situations);
    let kept = fleet.slots.len() - holders.freed.len();
    let unavailable = situations
        .iter()
        .enumerate()
        .filter(|&(index, situation)| !holders.keep(index) && is_unavailable(situation))
        .count();
    let room = fleet.limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(kept + unavailable)
    });
    let over = holders.freed.iter().filter_map(|&(_, index)| situations.get(index?));
    let holding: Vec<Situation<'a>> =
        (0..situations.len()).filter(|&index| holders.have(index)).map(|index| situations[index]).collect();
    let versions = Versions::after(fleet, over, &holding);
    let Choice { taken, resting, queued, look_at } = choose(fleet, situations, room, &holders, &versions);

    let mut sets: Vec<(Field<'a>, Value<'a>)> =
        holders.freed.iter().map(|&(name, _)| (Field::Slot(name), Value::Absent)).collect();
    sets.extend(taken.iter().filter_map(|&index| {
        let shadow = situations[index].shadow?;
        let attempt = next_attempt(&situations[index]);
        let slot = Slot { uid: shadow.uid.to_owned(), attempt, since: Some(fleet.now.to_owned()) };
        Some((Field::Slot(shadow.name), Value::Slot(slot)))
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
    let others_use_it_up = kept == 0 && room == 0;
    let why = if others_use_it_up { Reason::LimitUsedByUnavailableNodes } else { Reason::LimitReached };
    let queued = queued.into_iter().map(|index| (index, why));
    let looked_at = look_at.iter().map(|&index| (index, Reason::LookingAtPods));
    let resting = resting.into_iter().map(|index| (index, Reason::PausingBetweenUpdates));
    Slots { write, taken, queued: queued.chain(looked_at).chain(resting).collect(), look_at, halted }
}

/// Which situations have slots: found once by going through the slots, for there are far fewer of them.
struct Holders<'a> {
    /// Of each situation, by index: has it a slot, and does it keep it?
    standing: Vec<(bool, bool)>,
    /// The slots that are given back, and whose they are (by index) if that is known.
    freed: Vec<(&'a str, Option<usize>)>,
}

impl<'a> Holders<'a> {
    fn of(fleet: &FleetFacts<'a>, situations: &[Situation<'a>]) -> Self {
        let by_name: BTreeMap<&str, usize> =
            situations.iter().enumerate().map(|(index, situation)| (situation.shadow_name, index)).collect();
        let mut holders = Self { standing: vec![(false, false); situations.len()], freed: vec![] };
        for (name, slot) in fleet.slots {
            let index = by_name.get(name.as_str()).copied();
            let over = is_over(slot, index.map(|index| &situations[index]));
            if over {
                holders.freed.push((name, index));
            }
            if let Some(index) = index {
                holders.standing[index] = (true, !over);
            }
        }
        holders
    }

    fn have(&self, index: usize) -> bool {
        self.standing[index].0
    }

    fn keep(&self, index: usize) -> bool {
        self.standing[index].1
    }
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
struct Choice {
    taken: Vec<usize>,
    /// Those for whom there is room, but an update ended not long ago.
    resting: Vec<usize>,
    queued: Vec<usize>,
    look_at: Vec<usize>,
}

/// Updates that run without a slot come first, then those whose turn it is. Whose pods are not known yet holds its place.
fn choose<'a>(
    fleet: &FleetFacts<'a>,
    situations: &[Situation<'a>],
    room: usize,
    holders: &Holders<'a>,
    versions: &Versions<'a>,
) -> Choice {
    let mut taken: Vec<usize> =
        (0..situations.len()).filter(|&at| !holders.have(at) && runs(&situations[at])).collect();
    let left_over = taken.split_off(taken.len().min(room));
    let mut turns = Turns::new(fleet, situations, |at| holders.have(at), |version| !versions.halts(version));
    let (mut resting, mut look_at) = (Vec::new(), Vec::new());
    for index in turns.by_ref().take(room - taken.len()) {
        let rests = situations[index].node.is_some_and(|node| fleet.rests(&node));
        let chosen = match situations[index].pods.known {
            _ if rests => &mut resting,
            true => &mut taken,
            false => &mut look_at,
        };
        chosen.push(index);
    }
    Choice { taken, resting, queued: turns.rest().chain(left_over).collect(), look_at }
}

/// Does an update run?
fn runs(situation: &Situation<'_>) -> bool {
    situation.node.is_some() && situation.shadow.is_some_and(|shadow| shadow.spec.state != State::Idle)
}
