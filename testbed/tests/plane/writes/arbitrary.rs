//! Random writes to random objects.

use brupop_api::{Field, State, Value};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value as Json, json};

use super::objects::{fleet, node, shadow};

const SHADOW_FIELDS: [Field<'static>; 23] = [
    Field::Uid,
    Field::Generation,
    Field::SpecState,
    Field::SpecTransitionTimestamp,
    Field::SpecVersion,
    Field::SpecFromVersion,
    Field::SpecAttempt,
    Field::SpecLeaderTerm,
    Field::SpecBaselineBootId,
    Field::SpecRebootGrantedBootId,
    Field::SpecLastFailure,
    Field::CurrentVersion,
    Field::TargetVersion,
    Field::CurrentState,
    Field::CrashCount,
    Field::FailureTimestamp,
    Field::StatusAttempt,
    Field::StatusBootId,
    Field::StatusStaged,
    Field::StatusRebootClaimedBootId,
    Field::StatusProblem,
    Field::StatusProblemSince,
    Field::StatusMessage,
];
const NODE_FIELDS: [Field<'static>; 10] = [
    Field::Uid,
    Field::Unschedulable,
    Field::ExcludedFromLoadBalancers,
    Field::UpdatingTaint,
    Field::DoNotDisrupt,
    Field::ScaleDownDisabled,
    Field::Marker,
    Field::Retry,
    Field::UpdaterInterface,
    Field::OsImage,
];
const FLEET_FIELDS: [Field<'static>; 9] = [
    Field::Uid,
    Field::Generation,
    Field::Term,
    Field::Slots,
    Field::Slot("brs-a"),
    Field::Slot("brs-b.example"),
    Field::Versions,
    Field::DonePools,
    Field::LastFinished,
];

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ShadowSpec,
    ShadowStatus,
    Node,
    Fleet,
}

/// The source of a test's value.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "few are made, one at a time")]
pub enum Expected {
    /// From the object as it was read, as decisions do.
    AsRead,
    /// From the object as it is now: true, by luck.
    AsStored,
    Guess(Value<'static>),
}

/// One write: against an object as it was read, and as it is by now.
#[derive(Clone, Debug)]
pub struct Case {
    pub read: Json,
    /// None: as it was read.
    pub stored: Option<Json>,
    pub tests: Vec<(Field<'static>, Expected)>,
    pub sets: Vec<(Field<'static>, Value<'static>)>,
    /// The patch is made of the typed object (as an agent does), not of the very JSON that was read.
    pub typed: bool,
}

impl Kind {
    fn fields(self) -> Vec<Field<'static>> {
        match self {
            Self::ShadowSpec | Self::ShadowStatus => SHADOW_FIELDS.into(),
            Self::Node => NODE_FIELDS.into(),
            Self::Fleet => FLEET_FIELDS.into(),
        }
    }

    /// One as the API server may hold it.
    fn object(self) -> BoxedStrategy<Json> {
        match self {
            Self::ShadowSpec | Self::ShadowStatus => shadow().boxed(),
            Self::Node => node().boxed(),
            Self::Fleet => fleet().boxed(),
        }
    }

    /// The fields that a write of this kind may set.
    fn settable(self) -> Vec<Field<'static>> {
        let half = match self {
            Self::ShadowSpec => "/spec/",
            Self::ShadowStatus | Self::Fleet => "/status/",
            Self::Node => "/",
        };
        let only_tested = [Field::Uid, Field::Generation, Field::Slots, Field::OsImage];
        let fields = self.fields().into_iter();
        fields
            .filter(|field| field.pointer().starts_with(half) && !only_tested.contains(field))
            .collect()
    }
}

/// A write of this kind with its object.
pub fn case(kind: Kind) -> impl Strategy<Value = Case> {
    let newer = weighted(0.4, (kind.object(), any::<u64>(), any::<u64>()));
    let (fields, settable) = (kind.fields(), kind.settable());
    let tests = subsequence(fields, 0..=5).prop_flat_map(move |fields| {
        let expected = |field| {
            let guess = value(kind, field).prop_map(Expected::Guess);
            (
                Just(field),
                prop_oneof![6 => Just(Expected::AsRead), 1 => Just(Expected::AsStored), 1 => guess],
            )
        };
        fields.into_iter().map(expected).collect::<Vec<_>>()
    });
    let most = settable.len().min(5);
    let sets = subsequence(settable, 0..=most)
        .prop_shuffle()
        .prop_flat_map(move |fields| {
            let to_set = |field| {
                let is_unreadable =
                    move |value: &_| field == Field::Marker && matches!(value, Value::Text(_));
                (
                    Just(field),
                    value(kind, field)
                        .prop_filter("nobody writes it", move |value| !is_unreadable(value)),
                )
            };
            fields.into_iter().map(to_set).collect::<Vec<_>>()
        });
    let typed = any::<bool>()
        .prop_map(move |typed| typed && matches!(kind, Kind::ShadowSpec | Kind::ShadowStatus));
    (kind.object(), newer, tests, sets, typed).prop_map(|(read, newer, tests, sets, typed)| {
        let stored = newer.map(|(other, a, b)| {
            // A quarter of the leaves have changed.
            let mut bits = a & b;
            let mut stored = mixed(&read, &other, &mut bits);
            never_less(&read, &mut stored);
            stored
        });
        Case {
            read,
            stored,
            tests,
            sets,
            typed,
        }
    })
}

/// A value that may stand in this field: what stands there in another object.
fn value(kind: Kind, field: Field<'static>) -> BoxedStrategy<Value<'static>> {
    // The API server refuses one of them, so no object has it.
    if field == Field::SpecState {
        return select(&State::ALL[..]).prop_map(Value::State).boxed();
    }
    // Fields that only the API server writes.
    let theirs = json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000", "generation": 3},
        "status": {"nodeInfo": {"osImage": "Bottlerocket OS 1.19.4 (aws-k8s-1.29)"}}});
    let is_theirs = matches!(field, Field::Uid | Field::Generation | Field::OsImage);
    let other = if is_theirs {
        Just(theirs).boxed()
    } else {
        kind.object()
    };
    other
        .prop_map(move |other| field.value_in(&other).unwrap_or(Value::Absent))
        .boxed()
}

/// One object out of two, leaf by leaf.
fn mixed(one: &Json, other: &Json, bits: &mut u64) -> Json {
    if let (Some(one), Some(other)) = (one.as_object(), other.as_object()) {
        let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        let both = keys.into_iter().filter_map(|key| {
            let member = match (one.get(key), other.get(key)) {
                (Some(one), Some(other)) => Some(mixed(one, other, bits)),
                (one, other) => if flip(bits) { other } else { one }.cloned(),
            };
            Some((key.clone(), member?))
        });
        return Json::Object(both.collect());
    }
    if flip(bits) { other } else { one }.clone()
}

fn flip(bits: &mut u64) -> bool {
    *bits = bits.rotate_right(1);
    *bits & 1 == 1
}

/// The schema refuses what falls or goes away, so it cannot have happened.
fn never_less(before: &Json, after: &mut Json) {
    for (half, field) in [
        ("spec", "attempt"),
        ("spec", "leader_term"),
        ("status", "term"),
    ] {
        let Some(old) = before[half][field].as_u64() else {
            continue;
        };
        // The API server puts a status without a term in the place of one that is removed.
        if half == "status" && !after[half].is_object() {
            after[half] = json!({});
        }
        if after[half].is_object() && after[half][field].as_u64().is_none_or(|new| new < old) {
            after[half][field] = json!(old);
        }
    }
}
