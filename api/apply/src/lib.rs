//! Writes carried out on objects in memory: on the model's truth, and on typed objects in tests. No program that ships has
//! this crate.

use brupop_api::{Field, Object, Value, Write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

#[cfg(test)]
mod tests;

/// Anything with fields that can be read and set.
pub trait Fields {
    /// Returns what stands there; `None` if such an object has no such field.
    fn get(&self, field: Field<'_>) -> Option<Value<'_>>;
    /// Puts something there. [`apply`] has made sure that such an object has the field, and that the value is of its kind.
    fn set(&mut self, field: Field<'_>, value: &Value<'_>);
}

/// Reasons why a write is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApplied {
    /// A test does not hold.
    #[error("{field} is {found}, and the write was decided on {expected}")]
    Unmet {
        /// The field of the violation, by name.
        field: String,
        found: String,
        expected: String,
    },
    /// The write makes no sense.
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

/// Executes a write: all of its sets if all of its tests hold, otherwise nothing.
///
/// # Errors
/// The first test that does not hold; or the first field that the object does not have, or that takes no such value.
pub fn apply(write: &Write<'_>, object: &mut impl Fields) -> Result<(), NotApplied> {
    fits(write)?;
    for (field, expected) in &write.tests {
        let found = object
            .get(*field)
            .ok_or_else(|| Misfit::new(write, TEST, *field, expected))?;
        if found != *expected {
            return Err(NotApplied::Unmet {
                field: format!("{field:?}"),
                found: format!("{found:?}"),
                expected: format!("{expected:?}"),
            });
        }
    }
    for (field, value) in &write.sets {
        object
            .get(*field)
            .ok_or_else(|| Misfit::new(write, SET, *field, value))?;
    }
    for (field, value) in &write.sets {
        object.set(*field, value);
    }
    Ok(())
}

/// An object by the place of each field in its JSON. One that has no such field shows it as absent.
impl<T: Serialize + DeserializeOwned> Fields for T {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        field.value_in(&json!(self))
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        let mut object = json!(self);
        let value = field.json(value, &object);
        put(&mut object, &field.pointer(), value);
        if let Ok(after) = T::deserialize(object) {
            *self = after;
        }
    }
}

/// Null takes away. The API server keeps no empty labels, annotations and lists of taints.
fn put(object: &mut Json, pointer: &str, value: Json) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    if object.pointer(parent).is_none_or(Json::is_null) {
        if value.is_null() {
            return;
        }
        put(object, parent, json!({}));
    }
    let Some(members) = object.pointer_mut(parent).and_then(Json::as_object_mut) else {
        return;
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    if !value.is_null() {
        members.insert(key, value);
    } else if members.remove(&key).is_some()
        && members.is_empty()
        && parent.matches('/').count() > 1
    {
        put(object, parent, Json::Null);
    }
}

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
    fn new(write: &Write<'_>, verb: &'static str, field: Field<'_>, value: &Value<'_>) -> Self {
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
