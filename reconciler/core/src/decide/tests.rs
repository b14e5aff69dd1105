//! Tables and properties of the decisions. The model checker holds the whole protocol; here stands what each
//! view leads to.

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
mod limits;
mod objects;
mod opt_in;
mod order;
mod passes;
mod pool_changes;
mod properties;
mod records;
mod resumed;
mod slot_writes;
mod soak;
mod steps;
mod undo;
mod undrainable;
mod variants;
mod versions;
mod world;
mod zones;

use std::collections::BTreeSet;

use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::shadow::LastFailure;
use brupop_api::{Field, Marker, State, Value, Write};

use super::assess::assess;
use super::{Decision, Decisions, Reason, Step, drained, release};
use crate::facts::{FleetFacts, NodeView};

/// The decision for a node, and its requests to the API server.
#[derive(Clone, Debug, PartialEq)]
struct Decided<'a> {
    step: Option<Step<'a>>,
    write: Option<Write<'a>>,
    /// What confirms a grant.
    confirm: Option<Write<'a>>,
    reason: Reason<'a>,
}

/// Decides for a node of which no other node knows.
fn decide<'a>(fleet: &FleetFacts<'a>, view: &NodeView<'a>) -> Decided<'a> {
    let view = &view.with_slot_of(fleet);
    let it = assess(fleet, view);
    let step = it.step.or_else(|| release(fleet, view, &BTreeSet::new()));
    Decided::of(fleet, view, Decision { step, ..it })
}

impl<'a> Decided<'a> {
    fn of(fleet: &FleetFacts<'a>, view: &NodeView<'a>, decision: Decision<'a>) -> Self {
        let Decision { step, reason, .. } = decision;
        let write = step.and_then(|step| step.write(fleet, view));
        let is_no_write = |step: &Step<'_>| {
            matches!(
                step,
                Step::CreateShadow { .. } | Step::DeleteShadow | Step::Evict | Step::DeletePods
            )
        };
        assert_eq!(write.is_none(), step.is_none_or(|step| is_no_write(&step)));
        let granted = view.node.filter(|_| step == Some(Step::Grant));
        Self {
            step,
            write,
            confirm: granted.map(|node| drained(fleet, node)),
            reason,
        }
    }
}

/// Returns what becomes of the slots, if all nodes can be read.
fn allocate<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Decisions<'a> {
    let views: Vec<_> = views.iter().map(|it| it.with_slot_of(fleet)).collect();
    super::decide(fleet, &views)
}

fn write<'d, 'a>(decision: &'d Decided<'a>) -> &'d Write<'a> {
    let write = decision.write.as_ref();
    write.unwrap_or_else(|| panic!("no write: {decision:?}"))
}

/// Returns what a write sets a field to.
fn sets<'a>(write: &Write<'a>, field: Field<'_>) -> Option<Value<'a>> {
    write
        .sets
        .iter()
        .find(|(set, _)| *set == field)
        .map(|(_, value)| value.clone())
}

/// The state that a decision moves the spec to.
fn next_state(decision: &Decided<'_>) -> Option<State> {
    match sets(write(decision), Field::SpecState) {
        Some(Value::State(state)) => Some(state),
        _ => None,
    }
}

/// The marker that a decision writes.
#[track_caller]
fn marker_of(decision: &Decided<'_>) -> Marker {
    let Some(Value::Marker(marker)) = sets(write(decision), Field::Marker) else {
        panic!("no marker: {decision:?}")
    };
    marker.into_owned()
}

/// The failures that a decision notes.
fn failures_of(decision: &Decided<'_>) -> Option<LastFailure> {
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

/// The records that a write of the ledger leaves.
fn records_of(write: &Write<'_>) -> Option<Vec<VersionRecord>> {
    match sets(write, Field::Versions) {
        Some(Value::Versions(records)) => Some(records.into_owned()),
        _ => None,
    }
}
