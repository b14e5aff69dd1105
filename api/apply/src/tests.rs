//! Every field of every object: what is set is read, and [`apply`] and [`Write::patch`] say the same.

mod examples;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;

use brupop_api::fleet::{DonePool, Slot, VersionRecord};
use brupop_api::shadow::{LastFailure, Staged};
use brupop_api::{
    BottlerocketFleet, BottlerocketFleetSpec, BottlerocketShadow, BottlerocketShadowSpec, Marker,
    Object, Problem, State, names,
};
use json_patch::{Patch, PatchOperation, TestOperation};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::*;

/// Two values that may stand in a field; of a flag, that it is set and that it is not.
type Row = (Field<'static>, Value<'static>, Value<'static>);

fn texts(field: Field<'static>) -> Row {
    (
        field,
        Value::Text(format!("{field:?}").into()),
        Value::text("two"),
    )
}

fn numbers(field: Field<'static>) -> Row {
    (
        field,
        Value::Number(format!("{field:?}").len() as u64),
        Value::Number(99),
    )
}

fn states(field: Field<'static>) -> Row {
    (
        field,
        Value::State(State::MonitoringUpdate),
        Value::State(State::RebootedIntoUpdate),
    )
}

fn flags(field: Field<'static>) -> Row {
    (field, Value::Set, Value::Absent)
}

fn versions() -> Row {
    let record = |succeeded| {
        let record = VersionRecord {
            succeeded,
            ..VersionRecord::default()
        };
        Value::Versions(Cow::Owned(vec![record]))
    };
    (Field::Versions, record(1), record(2))
}

fn done_pools() -> Row {
    let done = |since: &str| {
        let done = DonePool {
            since: since.to_owned(),
            ..DonePool::default()
        };
        Value::DonePools(Cow::Owned(vec![done]))
    };
    (Field::DonePools, done("1"), done("2"))
}

fn spec_rows() -> Vec<Row> {
    let failures = |count| {
        Value::LastFailure(LastFailure {
            count,
            ..LastFailure::default()
        })
    };
    vec![
        states(Field::SpecState),
        texts(Field::SpecTransitionTimestamp),
        texts(Field::SpecVersion),
        texts(Field::SpecFromVersion),
        numbers(Field::SpecAttempt),
        numbers(Field::SpecLeaderTerm),
        texts(Field::SpecBaselineBootId),
        texts(Field::SpecRebootGrantedBootId),
        (Field::SpecLastFailure, failures(1), failures(2)),
    ]
}

fn status_rows() -> Vec<Row> {
    let staged = |prefetched| {
        Value::Staged(Staged {
            prefetched,
            ..Staged::default()
        })
    };
    vec![
        texts(Field::CurrentVersion),
        texts(Field::TargetVersion),
        states(Field::CurrentState),
        numbers(Field::CrashCount),
        texts(Field::FailureTimestamp),
        numbers(Field::StatusAttempt),
        texts(Field::StatusBootId),
        (Field::StatusStaged, staged(true), staged(false)),
        texts(Field::StatusRebootClaimedBootId),
        (
            Field::StatusProblem,
            Value::Problem(Problem::StepFailed),
            Value::Problem(Problem::HostUnreachable),
        ),
        texts(Field::StatusProblemSince),
        texts(Field::StatusMessage),
    ]
}

fn node_rows() -> Vec<Row> {
    let marker = |attempt| {
        Value::Marker(Cow::Owned(Marker {
            attempt,
            ..Marker::default()
        }))
    };
    vec![
        flags(Field::Unschedulable),
        flags(Field::ExcludedFromLoadBalancers),
        flags(Field::UpdatingTaint),
        flags(Field::DoNotDisrupt),
        flags(Field::ScaleDownDisabled),
        (Field::Marker, marker(1), marker(2)),
        texts(Field::Retry),
        texts(Field::UpdateNow),
        texts(Field::UpdaterInterface),
    ]
}

fn ledger_rows() -> Vec<Row> {
    let slot = |attempt| {
        Value::Slot(Slot {
            attempt,
            ..Slot::default()
        })
    };
    vec![
        numbers(Field::Term),
        (Field::Slot("brs-a"), slot(1), slot(2)),
        versions(),
        done_pools(),
        texts(Field::LastFinished),
    ]
}

fn bare_shadow() -> BottlerocketShadow {
    let mut shadow = BottlerocketShadow::new("brs-n", BottlerocketShadowSpec::default());
    (shadow.metadata.uid, shadow.metadata.generation) = (Some("u-1".into()), Some(7));
    shadow
}

fn bare_node() -> Node {
    let metadata = ObjectMeta {
        name: Some("n".into()),
        uid: Some("u-2".into()),
        ..ObjectMeta::default()
    };
    Node {
        metadata,
        ..Node::default()
    }
}

fn bare_fleet() -> BottlerocketFleet {
    let mut fleet = BottlerocketFleet::new("fleet", BottlerocketFleetSpec::default());
    (fleet.metadata.uid, fleet.metadata.generation) = (Some("u-3".into()), Some(8));
    fleet
}

/// The values that a field has in turn: each is set on the one before.
fn in_turn((field, first, second): &Row) -> Vec<Value<'static>> {
    let all = vec![
        first.clone(),
        second.clone(),
        first.clone(),
        Value::Absent,
        second.clone(),
        Value::Absent,
    ];
    let stays = matches!(field, Field::SpecState | Field::Versions | Field::DonePools);
    all.into_iter()
        .filter(|value| !(stays && *value == Value::Absent))
        .collect()
}

/// Sets each field to each of its values in turn, beside fields that keep theirs.
fn hold_against_each_other<T>(object: Object<&'static str>, bare: &T, rows: &[Row])
where
    T: Fields + Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug,
{
    let mut full = bare.clone();
    for (field, first, _) in rows {
        full.set(*field, first);
    }
    for start in [bare, &full] {
        for row in rows {
            let (mut now, field) = (start.clone(), row.0);
            let others: Vec<_> = rows.iter().filter(|(other, ..)| *other != field).collect();
            for value in in_turn(row) {
                let tests = vec![(field, now.get(field).unwrap())];
                let write = Write {
                    object,
                    tests,
                    sets: vec![(field, value.clone())],
                };
                let mut after = now.clone();
                apply(&write, &mut after).unwrap();
                assert_eq!(after.get(field), Some(value.clone()), "{field:?} is set");
                for (other, ..) in &others {
                    assert_eq!(
                        after.get(*other),
                        now.get(*other),
                        "{other:?}, when {field:?} is set"
                    );
                }
                let read = json!(now);
                let patch = write.patch(&read);
                assert_eq!(
                    patched::<T>(&read, &patch),
                    Ok(settled(json!(after))),
                    "{field:?} = {value:?}: {patch}"
                );
                refuses_what_was_not_decided_on(&write, &now, row);
                now = after;
            }
        }
    }
}

/// A write that was decided on another value than the one that stands there is not applied, and no API server takes its patch.
/// Neither does it take one that was decided on what stood there before.
fn refuses_what_was_not_decided_on<T>(write: &Write<'_>, now: &T, (field, first, second): &Row)
where
    T: Fields + Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug,
{
    let read = json!(now);
    for other in [first, second] {
        if now.get(*field).as_ref() == Some(other) {
            continue;
        }
        let mut changed = now.clone();
        changed.set(*field, other);
        let patch = write.patch(&read);
        assert!(
            patched::<T>(&json!(changed), &patch).is_err(),
            "{field:?} has become {other:?}: {patch}"
        );

        let write = Write {
            tests: vec![(*field, other.clone())],
            ..write.clone()
        };
        let mut after = now.clone();
        let applied = apply(&write, &mut after);
        assert!(
            matches!(applied, Err(NotApplied::Unmet { .. })),
            "{field:?} is not {other:?}"
        );
        assert_eq!(after, *now, "a write whose test fails sets nothing");
        let patch = write.patch(&read);
        assert!(
            patched::<T>(&read, &patch).is_err(),
            "{field:?} is not {other:?}: {patch}"
        );
    }
}

/// Returns what the API server makes of a patch. Unlike the crate, it takes a test for null where nothing stands, if the parent
/// is there.
fn patched<T: Serialize + DeserializeOwned>(read: &Json, patch: &Patch) -> Result<Json, String> {
    let mut document = read.clone();
    for operation in &patch.0 {
        if let PatchOperation::Test(TestOperation {
            path,
            value: Json::Null,
        }) = operation
        {
            let parent = path.parent().ok_or("the whole document")?;
            let parent = parent
                .resolve(&document)
                .map_err(|error| error.to_string())?;
            assert!(parent.is_object(), "{patch}");
            if path.resolve(&document).is_ok_and(|found| !found.is_null()) {
                return Err(format!("something stands at {path}"));
            }
            continue;
        }
        json_patch::patch(&mut document, slice::from_ref(operation))
            .map_err(|error| error.to_string())?;
    }
    let stored: T = serde_json::from_value(document).map_err(|error| error.to_string())?;
    Ok(settled(json!(stored)))
}

/// As the API server keeps it: without empty maps and lists.
fn settled(value: Json) -> Json {
    let is_empty = |value: &Json| *value == json!({}) || *value == json!([]) || value.is_null();
    match value {
        Json::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, member)| (name, settled(member)));
            Json::Object(members.filter(|(_, member)| !is_empty(member)).collect())
        }
        value => value,
    }
}

#[test]
fn a_shadow_takes_each_field_as_a_value_and_as_a_patch() {
    hold_against_each_other(Object::ShadowSpec("brs-n"), &bare_shadow(), &spec_rows());
    hold_against_each_other(
        Object::ShadowStatus("brs-n"),
        &bare_shadow(),
        &status_rows(),
    );
}

#[test]
fn a_node_takes_each_field_as_a_value_and_as_a_patch() {
    hold_against_each_other(Object::Node("n"), &bare_node(), &node_rows());
}

#[test]
fn the_ledger_takes_each_field_as_a_value_and_as_a_patch() {
    hold_against_each_other(Object::Ledger, &bare_fleet(), &ledger_rows());
}

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
