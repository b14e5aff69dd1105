//! Tables and properties of the decisions. The model checker holds the whole protocol; here stands what each
//! view leads to.

mod acknowledged;
mod begin;
mod canaries;
mod control_plane;
mod denied;
mod disruption;
mod emptying;
mod first_pools;
mod fleets;
mod gates;
mod given_up;
mod going_back;
mod leading;
mod lifting;
mod limits;
mod objects;
mod opt_in;
mod order;
mod passes;
mod pool_changes;
mod properties;
mod records;
mod slot_writes;
mod soak;
mod steps;
mod undo;
mod undrainable;
mod variants;
mod versions;
mod world;
mod zones;

use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::shadow::LastFailure;
use brupop_api::{Field, Marker, State, Value, Write};

use super::{Decision, Effect};

/// The write of a decision.
fn write<'d, 'a>(decision: &'d Decision<'a>) -> &'d Write<'a> {
    match &decision.effect {
        Some(Effect::Write(write) | Effect::Grant { grant: write, .. }) => write,
        other => panic!("no write but {other:?}, because {:?}", decision.reason),
    }
}

/// What a write sets a field to.
fn sets<'a>(write: &Write<'a>, field: Field<'_>) -> Option<Value<'a>> {
    write
        .sets
        .iter()
        .find(|(set, _)| *set == field)
        .map(|(_, value)| value.clone())
}

/// The state that a decision moves the spec to.
fn next_state(decision: &Decision<'_>) -> Option<State> {
    match sets(write(decision), Field::SpecState) {
        Some(Value::State(state)) => Some(state),
        _ => None,
    }
}

/// The marker that a decision writes.
#[track_caller]
fn marker_of(decision: &Decision<'_>) -> Marker {
    let Some(Value::Marker(marker)) = sets(write(decision), Field::Marker) else {
        panic!("no marker: {decision:?}")
    };
    marker.into_owned()
}

/// The failures that a decision notes.
fn failures_of(decision: &Decision<'_>) -> Option<LastFailure> {
    match sets(write(decision), Field::SpecLastFailure) {
        Some(Value::LastFailure(failures)) => Some(failures),
        _ => None,
    }
}

/// The slot that a write of the ledger gives to this shadow.
fn slot_of(write: &Write<'_>, shadow: &str) -> Option<Slot> {
    match sets(write, Field::Slot(shadow)) {
        Some(Value::Slot(slot)) => Some(slot),
        _ => None,
    }
}

/// The record of this version, of the fleet or of a pool, that a write of the ledger notes.
fn record_of(write: &Write<'_>, field: Field<'_>) -> Option<VersionRecord> {
    match sets(write, field) {
        Some(Value::VersionRecord(record)) => Some(record),
        _ => None,
    }
}
