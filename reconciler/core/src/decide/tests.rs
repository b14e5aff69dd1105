//! Tables and properties of the decisions. The model checker holds the whole protocol; here stands what each
//! view leads to.

mod acknowledged;
mod begin;
mod canaries;
mod control_plane;
mod corrections;
mod disruption;
mod emptying;
mod first_pools;
mod fleets;
mod gates;
mod given_up;
mod lifting;
mod objects;
mod opt_in;
mod order;
mod passes;
mod pool_changes;
mod pool_halts;
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

use brupop_api::{Field, State, Value, Write};

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
    write.sets.iter().find(|(set, _)| *set == field).map(|(_, value)| value.clone())
}

/// The state that a decision moves the spec to.
fn next_state(decision: &Decision<'_>) -> Option<State> {
    match sets(write(decision), Field::SpecState) {
        Some(Value::State(state)) => Some(state),
        _ => None,
    }
}
