//! The fields of an object that a write may test and set, and their values.

use brupop_api::{Field, Object, Value, Write};

/// A write that makes no sense, whatever the object is like: a mistake in the decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} has no {field} that a write may {verb} as {value}")]
pub struct Misfit {
    pub object: String,
    /// The field of the violation, by name.
    pub field: String,
    /// The operation of the write on it.
    pub verb: &'static str,
    pub value: String,
}

/// Checks that each field is one of the write's object, and each value one that may stand there.
///
/// # Errors
/// The first field of which this is not so.
pub fn fits(write: &Write<'_>) -> Result<(), Misfit> {
    let tests = write
        .tests
        .iter()
        .map(|(field, value)| (TEST, field, value));
    let sets = write.sets.iter().map(|(field, value)| (SET, field, value));
    let mut all = tests.chain(sets);
    let wrong = all.find(|(verb, field, value)| {
        let to_set = *verb == SET;
        !has(write.object, **field, to_set) || !takes(**field, value, to_set)
    });
    wrong.map_or(Ok(()), |(verb, field, value)| {
        Err(Misfit::new(write, verb, *field, value))
    })
}

/// The operation of a write on a field.
const TEST: &str = "test";
const SET: &str = "set";

impl Misfit {
    pub(crate) fn new(
        write: &Write<'_>,
        verb: &'static str,
        field: Field<'_>,
        value: &Value<'_>,
    ) -> Self {
        Self {
            object: format!("{:?}", write.object),
            field: format!("{field:?}"),
            verb,
            value: format!("{value:?}"),
        }
    }
}

/// The part of an object that a field belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Set by the API server, so writes only test it.
    Identity,
    Spec,
    Status,
    Node,
    Ledger,
}

fn part(field: Field<'_>) -> Part {
    match field {
        Field::Uid | Field::Generation => Part::Identity,
        Field::SpecState
        | Field::SpecTransitionTimestamp
        | Field::SpecVersion
        | Field::SpecFromVersion
        | Field::SpecAttempt
        | Field::SpecLeaderTerm
        | Field::SpecBaselineBootId
        | Field::SpecRebootGrantedBootId
        | Field::SpecLastFailure => Part::Spec,
        Field::Unschedulable
        | Field::ExcludedFromLoadBalancers
        | Field::UpdatingTaint
        | Field::DoNotDisrupt
        | Field::ScaleDownDisabled
        | Field::Marker
        | Field::Retry
        | Field::UpdateNow
        | Field::UpdaterInterface
        | Field::OsImage => Part::Node,
        Field::Term
        | Field::Slots
        | Field::Slot(_)
        | Field::Versions
        | Field::DonePools
        | Field::LastFinished => Part::Ledger,
        _ => Part::Status,
    }
}

/// Whether a write to this object can reach the field.
fn has(object: Object<&str>, field: Field<'_>, to_set: bool) -> bool {
    let (own, also_tested): (Part, &[Part]) = match object {
        Object::ShadowSpec(_) => (Part::Spec, &[Part::Identity, Part::Status]),
        Object::ShadowStatus(_) => (Part::Status, &[Part::Identity, Part::Spec]),
        Object::Node(_) => (Part::Node, &[Part::Identity]),
        Object::Ledger => (Part::Ledger, &[Part::Identity]),
        // They are applied whole.
        Object::FleetStatus | Object::PoolStatus(_) => return false,
    };
    let part = part(field);
    let only_tested = matches!(field, Field::OsImage | Field::Slots);
    let is_own = part == own;
    if to_set {
        is_own && !only_tested
    } else {
        is_own || also_tested.contains(&part)
    }
}

/// May this value stand there? Most fields may be absent.
fn takes(field: Field<'_>, value: &Value<'_>, to_set: bool) -> bool {
    let stays = matches!(
        field,
        Field::SpecState | Field::Slots | Field::Versions | Field::DonePools
    );
    match value {
        Value::Absent => !stays,
        Value::Set => matches!(
            field,
            Field::Unschedulable
                | Field::ExcludedFromLoadBalancers
                | Field::UpdatingTaint
                | Field::DoNotDisrupt
                | Field::ScaleDownDisabled
        ),
        Value::Number(_) => matches!(
            field,
            Field::Generation
                | Field::SpecAttempt
                | Field::SpecLeaderTerm
                | Field::CrashCount
                | Field::StatusAttempt
                | Field::Term
        ),
        Value::State(_) => matches!(field, Field::SpecState | Field::CurrentState),
        Value::Problem(_) => field == Field::StatusProblem,
        Value::Staged(_) => field == Field::StatusStaged,
        Value::LastFailure(_) => field == Field::SpecLastFailure,
        Value::Marker(_) => field == Field::Marker,
        Value::Slot(_) => matches!(field, Field::Slot(_)),
        Value::Slots(_) => field == Field::Slots,
        Value::Versions(_) => field == Field::Versions,
        Value::DonePools(_) => field == Field::DonePools,
        // A marker that cannot be read is a text.
        Value::Text(_) if field == Field::Marker => !to_set,
        Value::Text(_) => matches!(
            field,
            Field::Uid
                | Field::SpecTransitionTimestamp
                | Field::SpecVersion
                | Field::SpecFromVersion
                | Field::SpecBaselineBootId
                | Field::SpecRebootGrantedBootId
                | Field::CurrentVersion
                | Field::TargetVersion
                | Field::FailureTimestamp
                | Field::StatusBootId
                | Field::StatusRebootClaimedBootId
                | Field::StatusProblemSince
                | Field::StatusMessage
                | Field::Retry
                | Field::UpdateNow
                | Field::UpdaterInterface
                | Field::OsImage
                | Field::LastFinished
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use brupop_api::State;

    #[test]
    fn what_may_be_tested_is_told_by_the_object() {
        let (spec, status, node) = (
            Object::ShadowSpec("brs-n"),
            Object::ShadowStatus("brs-n"),
            Object::Node("n"),
        );
        let (number, state) = (Value::Number(1), Value::State(State::Idle));
        let (slots, text) = (Value::Slots(Cow::default()), Value::text("?"));
        for (object, field, value, tested, set) in [
            (spec, Field::Generation, &number, true, false),
            (spec, Field::StatusAttempt, &number, true, false),
            (spec, Field::StatusAttempt, &state, false, false),
            (spec, Field::SpecState, &Value::Absent, false, false),
            (spec, Field::Marker, &text, false, false),
            (status, Field::SpecAttempt, &number, true, false),
            (status, Field::Term, &number, false, false),
            (node, Field::Uid, &text, true, false),
            (node, Field::OsImage, &text, true, false),
            (node, Field::Marker, &text, true, false),
            (node, Field::SpecState, &state, false, false),
            (Object::Ledger, Field::Generation, &number, true, false),
            (Object::Ledger, Field::Slots, &slots, true, false),
            (Object::Ledger, Field::Slots, &Value::Absent, false, false),
            (Object::Ledger, Field::Term, &number, true, true),
            (Object::Ledger, Field::SpecAttempt, &number, false, false),
        ] {
            let fits = |tests, sets| {
                let write = Write {
                    object,
                    tests,
                    sets,
                };
                fits(&write).is_ok()
            };
            let row = vec![(field, value.clone())];
            let told = (fits(row.clone(), vec![]), fits(vec![], row));
            assert_eq!(told, (tested, set), "{object:?}, {field:?}: {value:?}");
        }
    }
}
