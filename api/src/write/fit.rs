//! Which fields a write to an object may test and set, and which values may stand in them.

use super::field::{Kind, Part};
use super::{Field, Object, Value, Write};

/// A write that makes no sense, whatever the object is like: a mistake in the decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} has no {field} that a write may {verb} as {value}")]
pub struct Misfit {
    /// The object.
    pub object: String,
    /// The field, by name.
    pub field: String,
    /// What the write would do with it.
    pub verb: &'static str,
    /// The value.
    pub value: String,
}

impl Write<'_> {
    /// Is each field one of the write's object, and each value one that may stand there?
    ///
    /// # Errors
    /// The first field of which this is not so.
    pub fn fits(&self) -> Result<(), Misfit> {
        let tests = self.tests.iter().map(|(field, value)| (TEST, field, value));
        let sets = self.sets.iter().map(|(field, value)| (SET, field, value));
        for (verb, field, value) in tests.chain(sets) {
            if !self.object.has(*field, verb == SET) || !field.takes(value, verb == SET) {
                return Err(self.misfit(verb, *field, value));
            }
        }
        Ok(())
    }

    fn misfit(&self, verb: &'static str, field: Field<'_>, value: &Value<'_>) -> Misfit {
        let (object, field) = (format!("{:?}", self.object), format!("{field:?}"));
        Misfit {
            object,
            field,
            verb,
            value: format!("{value:?}"),
        }
    }
}

/// What a write does with a field.
const TEST: &str = "test";
const SET: &str = "set";

impl Object<&str> {
    /// Does a write to this object get at the field?
    fn has(self, field: Field<'_>, to_set: bool) -> bool {
        let (own, also_tested): (Part, &[Part]) = match self {
            Self::ShadowSpec(_) => (Part::Spec, &[Part::Identity, Part::Status]),
            Self::ShadowStatus(_) => (Part::Status, &[Part::Identity, Part::Spec]),
            Self::Node(_) => (Part::Node, &[Part::Identity]),
            Self::Ledger => (Part::Ledger, &[Part::Identity]),
            // They are applied whole.
            Self::FleetStatus | Self::PoolStatus(_) => return false,
        };
        let part = field.place().part;
        let only_tested = matches!(field, Field::OsImage | Field::Slots);
        let is_own = part == own;
        if to_set {
            is_own && !only_tested
        } else {
            is_own || also_tested.contains(&part)
        }
    }
}

impl Field<'_> {
    /// May this value stand there? All fields but two may be absent.
    fn takes(self, value: &Value<'_>, to_set: bool) -> bool {
        match (self.place().kind, value) {
            (_, Value::Absent) => !matches!(self, Self::SpecState | Self::Slots),
            (Kind::Text, Value::Text(_))
            | (Kind::Number, Value::Number(_))
            | (Kind::State, Value::State(_))
            | (Kind::Problem, Value::Problem(_))
            | (Kind::Staged, Value::Staged(_))
            | (Kind::LastFailure, Value::LastFailure(_))
            | (Kind::Marker, Value::Marker(_))
            | (Kind::Slot, Value::Slot(_))
            | (Kind::Slots, Value::Slots(_))
            | (Kind::Record, Value::VersionRecord(_))
            | (Kind::Flag | Kind::Key | Kind::Taint, Value::Set) => true,
            // One that cannot be read is a text.
            (Kind::Marker, Value::Text(_)) => !to_set,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::State;

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
                Write {
                    object,
                    tests,
                    sets,
                }
                .fits()
                .is_ok()
            };
            let row = vec![(field, value.clone())];
            let told = (fits(row.clone(), vec![]), fits(vec![], row));
            assert_eq!(told, (tested, set), "{object:?}, {field:?}: {value:?}");
        }
    }
}
