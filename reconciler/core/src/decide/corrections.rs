//! Times that a leader whose clock was ahead has written, and that have not come yet: each is written again, as now, in a
//! write that changes nothing else. After that none lies ahead, so it is written once.

use brupop_api::fleet::{Done, Slot, VersionRecord};
use brupop_api::{Field, Marker, Object, Value, Write};
use jiff::Timestamp;

use super::{Case, Effect, writes};
use crate::facts::{BetweenUpdates, FleetFacts, NodeFacts};
use crate::times;

/// The write that corrects the ledger, if one is needed.
pub(super) fn of_ledger<'a>(fleet: &FleetFacts<'a>) -> Option<Write<'a>> {
    let (text, now) = (fleet.now, times::read(Some(fleet.now))?);
    let ahead = |time: &Option<String>| is_ahead(time.as_deref(), now);
    let held = fleet.slots.iter().filter(|(_, slot)| ahead(&slot.since));
    let held = held.map(|(name, slot)| {
        let slot = Slot { since: Some(text.to_owned()), ..slot.clone() };
        (Field::Slot(name), Value::Slot(slot))
    });
    let done_ahead = |record: &VersionRecord| record.done_pools.values().any(|done| ahead(&done.since));
    let done = fleet.versions.iter().filter(|(_, record)| done_ahead(record)).map(|(version, record)| {
        let mut record = record.clone();
        for Done { since, .. } in record.done_pools.values_mut().filter(|done| ahead(&done.since)) {
            *since = Some(text.to_owned());
        }
        (Field::VersionRecord(version), Value::VersionRecord(record))
    });
    let ended = (fleet.between_updates == BetweenUpdates::EndedAhead)
        .then_some((Field::LastFinished, Value::text(text)));
    let sets: Vec<_> = held.chain(done).chain(ended).collect();
    (!sets.is_empty()).then(|| Write {
        object: Object::Ledger,
        tests: writes::ledger_tests(fleet, &sets),
        sets,
    })
}

/// What corrects the shadow's spec, or else the marker of its Node, if one of them needs it. On a Node that the API server lets
/// nobody change the marker stays as it is: what is decided, perhaps to give the update up, must not wait for that.
pub(super) fn of_node<'a>(case: Case<'_, 'a>) -> Option<Effect<'a>> {
    let Case { fleet, view, node, shadow, .. } = case;
    // Most nodes have no other times.
    if !view.time.transition_ahead && shadow.spec.failures.is_none() && node.marker.is_none() {
        return None;
    }
    let now = times::read(Some(fleet.now))?;
    let of_marker = || if view.denied.is_none() { of_marker(fleet, node, now) } else { None };
    let write = of_spec(case, now).or_else(of_marker);
    write.map(Effect::Correct)
}

fn of_spec<'a>(Case { fleet, view, shadow, .. }: Case<'_, 'a>, now: Timestamp) -> Option<Write<'a>> {
    let failures = shadow.spec.failures.and_then(|read| {
        let mut failures = read.clone();
        let noted = failures.obstacle.iter_mut().filter_map(|obstacle| obstacle.at.as_mut());
        for at in noted.chain([&mut failures.at]).filter(|at| is_ahead(Some(at), now)) {
            fleet.now.clone_into(at);
        }
        (failures != *read).then_some((Field::SpecFailures, Value::Failures(failures)))
    });
    let transition =
        view.time.transition_ahead.then_some((Field::SpecTransitionTimestamp, Value::text(fleet.now)));
    let sets: Vec<_> = transition.into_iter().chain(failures).collect();
    (!sets.is_empty()).then(|| writes::spec(fleet, shadow, [], sets))
}

fn of_marker<'a>(fleet: &FleetFacts<'a>, node: &NodeFacts<'a>, now: Timestamp) -> Option<Write<'a>> {
    let mut marker: Marker = node.marker?.clone();
    let all = [
        &mut marker.excluded_at,
        &mut marker.drain_started_at,
        &mut marker.cordoned_at,
        &mut marker.drained_at,
        &mut marker.kept_since,
    ];
    let mut ahead: Vec<_> = all.into_iter().filter(|time| is_ahead(time.as_deref(), now)).collect();
    for time in &mut ahead {
        **time = Some(fleet.now.to_owned());
    }
    (!ahead.is_empty()).then(|| writes::mark(node, [], [], marker))
}

/// Does a time stand there that lies ahead?
fn is_ahead(text: Option<&str>, now: Timestamp) -> bool {
    times::read(text).is_some_and(|time| times::is_ahead(time, now))
}
