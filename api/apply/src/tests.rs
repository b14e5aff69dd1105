//! Every field of every object: what is set is read, and [`apply`] and [`Write::patch`] say the same.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::slice;

use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::shadow::{Failures, Staged};
use brupop_api::{
    BottlerocketFleet, BottlerocketFleetSpec, BottlerocketShadow, BottlerocketShadowSpec, Marker, Object,
    Problem, State, names,
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
    (field, Value::text("one"), Value::text("two"))
}

fn numbers(field: Field<'static>) -> Row {
    (field, Value::Number(3), Value::Number(4))
}

fn states(field: Field<'static>) -> Row {
    (field, Value::State(State::MonitoringUpdate), Value::State(State::RebootedIntoUpdate))
}

fn flags(field: Field<'static>) -> Row {
    (field, Value::Set, Value::Absent)
}

fn records(field: Field<'static>) -> Row {
    let record = |succeeded| Value::VersionRecord(VersionRecord { succeeded, ..VersionRecord::default() });
    (field, record(1), record(2))
}

fn spec_rows() -> Vec<Row> {
    let failures = |count| Value::Failures(Failures { count, ..Failures::default() });
    vec![
        states(Field::SpecState),
        texts(Field::SpecTransitionTimestamp),
        texts(Field::SpecVersion),
        numbers(Field::SpecAttempt),
        numbers(Field::SpecLeaderTerm),
        texts(Field::SpecBaselineBootId),
        texts(Field::SpecRebootFromBootId),
        (Field::SpecFailures, failures(1), failures(2)),
    ]
}

fn status_rows() -> Vec<Row> {
    let staged = |prefetched| Value::Staged(Staged { prefetched, ..Staged::default() });
    vec![
        texts(Field::CurrentVersion),
        texts(Field::TargetVersion),
        states(Field::CurrentState),
        numbers(Field::CrashCount),
        texts(Field::FailureTimestamp),
        numbers(Field::StatusAttempt),
        texts(Field::StatusBootId),
        (Field::StatusStaged, staged(true), staged(false)),
        texts(Field::StatusRebootRequested),
        (Field::StatusProblem, Value::Problem(Problem::StepFailed), Value::Problem(Problem::HostUnreachable)),
        texts(Field::StatusProblemSince),
        texts(Field::StatusMessage),
    ]
}

fn node_rows() -> Vec<Row> {
    let marker = |attempt| Value::Marker(Cow::Owned(Marker { attempt, ..Marker::default() }));
    vec![
        flags(Field::Unschedulable),
        flags(Field::ExcludedFromLoadBalancers),
        flags(Field::UpdatingTaint),
        flags(Field::DoNotDisrupt),
        flags(Field::ScaleDownDisabled),
        (Field::Marker, marker(1), marker(2)),
        texts(Field::UpdaterInterface),
    ]
}

fn ledger_rows() -> Vec<Row> {
    let slot = |attempt| Value::Slot(Slot { attempt, ..Slot::default() });
    vec![
        numbers(Field::Term),
        (Field::Slot("brs-a"), slot(1), slot(2)),
        records(Field::VersionRecord("1.20.0")),
        records(Field::PoolRecord { pool: "web", version: "1.20.0" }),
        texts(Field::Seen("1.20.0")),
        texts(Field::LastFinished),
    ]
}

fn bare_shadow() -> BottlerocketShadow {
    let mut shadow = BottlerocketShadow::new("brs-n", BottlerocketShadowSpec::default());
    (shadow.metadata.uid, shadow.metadata.generation) = (Some("u-1".into()), Some(7));
    shadow
}

fn bare_node() -> Node {
    let metadata = ObjectMeta { name: Some("n".into()), uid: Some("u-2".into()), ..ObjectMeta::default() };
    Node { metadata, ..Node::default() }
}

fn bare_fleet() -> BottlerocketFleet {
    let mut fleet = BottlerocketFleet::new("fleet", BottlerocketFleetSpec::default());
    (fleet.metadata.uid, fleet.metadata.generation) = (Some("u-3".into()), Some(8));
    fleet
}

/// The values that a field has in turn: each is set on the one before.
fn in_turn((field, first, second): &Row) -> Vec<Value<'static>> {
    let all =
        vec![first.clone(), second.clone(), first.clone(), Value::Absent, second.clone(), Value::Absent];
    let stays = *field == Field::SpecState;
    all.into_iter().filter(|value| !(stays && *value == Value::Absent)).collect()
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
                let write = Write { object, tests, sets: vec![(field, value.clone())] };
                let mut after = now.clone();
                apply(&write, &mut after).unwrap();
                assert_eq!(after.get(field), Some(value.clone()), "{field:?} is set");
                for (other, ..) in &others {
                    assert_eq!(after.get(*other), now.get(*other), "{other:?}, when {field:?} is set");
                }
                let read = json!(now);
                let patch = write.patch(&read).unwrap();
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
        let patch = write.patch(&read).unwrap();
        assert!(patched::<T>(&json!(changed), &patch).is_err(), "{field:?} has become {other:?}: {patch}");

        let write = Write { tests: vec![(*field, other.clone())], ..write.clone() };
        let mut after = now.clone();
        let applied = apply(&write, &mut after);
        assert!(matches!(applied, Err(NotApplied::Unmet(_))), "{field:?} is not {other:?}");
        assert_eq!(after, *now, "a write whose test fails sets nothing");
        let patch = write.patch(&read).unwrap();
        assert!(patched::<T>(&read, &patch).is_err(), "{field:?} is not {other:?}: {patch}");
    }
}

/// What the API server makes of a patch. Unlike the crate, it takes a test for null where nothing stands, if the parent is there.
fn patched<T: Serialize + DeserializeOwned>(read: &Json, patch: &Patch) -> Result<Json, String> {
    let mut document = read.clone();
    for operation in &patch.0 {
        if let PatchOperation::Test(TestOperation { path, value: Json::Null }) = operation {
            let parent = path.parent().ok_or("the whole document")?;
            let parent = parent.resolve(&document).map_err(|error| error.to_string())?;
            assert!(parent.is_object(), "{patch}");
            if path.resolve(&document).is_ok_and(|found| !found.is_null()) {
                return Err(format!("something stands at {path}"));
            }
            continue;
        }
        json_patch::patch(&mut document, slice::from_ref(operation)).map_err(|error| error.to_string())?;
    }
    let stored: T = serde_json::from_value(document).map_err(|error| error.to_string())?;
    Ok(settled(json!(stored)))
}

/// As the API server keeps it: without empty maps and lists.
fn settled(value: Json) -> Json {
    let is_empty = |value: &Json| *value == json!({}) || *value == json!([]) || value.is_null();
    match value {
        Json::Object(members) => {
            let members = members.into_iter().map(|(name, member)| (name, settled(member)));
            Json::Object(members.filter(|(_, member)| !is_empty(member)).collect())
        }
        value => value,
    }
}

#[test]
fn a_shadow_takes_each_field_as_a_value_and_as_a_patch() {
    hold_against_each_other(Object::ShadowSpec("brs-n"), &bare_shadow(), &spec_rows());
    hold_against_each_other(Object::ShadowStatus("brs-n"), &bare_shadow(), &status_rows());
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
fn taking_away_what_is_not_there_changes_nothing() {
    let without_state = spec_rows().into_iter().filter(|(field, ..)| *field != Field::SpecState);
    for (field, ..) in without_state.chain(status_rows()) {
        let mut shadow = bare_shadow();
        shadow.set(field, &Value::Absent);
        assert_eq!(shadow, bare_shadow(), "{field:?}");
    }
    for (field, ..) in ledger_rows() {
        let mut fleet = bare_fleet();
        fleet.set(field, &Value::Absent);
        assert_eq!(fleet, bare_fleet(), "{field:?}");
    }
}

#[test]
fn what_is_only_tested_is_read() {
    let mut fleet = bare_fleet();
    assert_eq!(fleet.get(Field::Slots), Some(Value::Slots(Cow::default())));
    let slot = Slot { attempt: 9, ..Slot::default() };
    fleet.set(Field::Slot("brs-a"), &Value::Slot(slot.clone()));
    let slots = BTreeMap::from([("brs-a".to_owned(), slot)]);
    assert_eq!(fleet.get(Field::Slots), Some(Value::Slots(Cow::Owned(slots))));
    let mut node = bare_node();
    assert_eq!(node.get(Field::OsImage), Some(Value::Absent));
    node.status.get_or_insert_default().node_info.get_or_insert_default().os_image = "Bottlerocket".into();
    assert_eq!(node.get(Field::OsImage), Some(Value::text("Bottlerocket")));
    for (uid, generation, found) in [
        ("u-1", Some(7), (bare_shadow().get(Field::Uid), bare_shadow().get(Field::Generation))),
        ("u-2", None, (node.get(Field::Uid), node.get(Field::Generation))),
        ("u-3", Some(8), (fleet.get(Field::Uid), fleet.get(Field::Generation))),
    ] {
        assert_eq!(found, (Some(Value::text(uid)), generation.map(Value::Number)), "{uid}");
    }
}

#[test]
fn a_marker_that_cannot_be_read_is_a_text() {
    let mut node = bare_node();
    let annotations = BTreeMap::from([(names::MARKER_ANNOTATION.to_owned(), "?".to_owned())]);
    node.metadata.annotations = Some(annotations);
    assert_eq!(node.get(Field::Marker), Some(Value::text("?")));
}

#[test]
fn labels_and_annotations_have_the_words_that_others_look_for() {
    for (field, pointer, word) in [
        (Field::ExcludedFromLoadBalancers, "/metadata/labels", "true"),
        (Field::DoNotDisrupt, "/metadata/annotations", "true"),
        (Field::ScaleDownDisabled, "/metadata/annotations", "true"),
    ] {
        let mut node = bare_node();
        node.set(field, &Value::Set);
        let entries = json!(node).pointer(pointer).cloned().unwrap();
        let words: Vec<_> = entries.as_object().unwrap().values().collect();
        assert_eq!(words, [word], "{field:?}");
    }
}

#[test]
fn a_list_of_taints_is_replaced_only_as_it_was_read() {
    let theirs = json!({"key": "theirs", "effect": "NoExecute"});
    let read = json!({"metadata": {"name": "n"}, "spec": {"taints": [theirs]}});
    let sets = vec![(Field::UpdatingTaint, Value::Set)];
    let patch = Write { object: Object::Node("n"), tests: vec![], sets }.patch(&read).unwrap();
    assert!(patched::<Node>(&read, &patch).is_ok());
    let mut meanwhile = read;
    meanwhile["spec"]["taints"] = json!([theirs, {"key": "new", "effect": "NoSchedule"}]);
    assert!(patched::<Node>(&meanwhile, &patch).is_err(), "a taint of somebody else would be lost: {patch}");
}

/// Of labels and annotations that others may have set, too, only the key counts; of `unschedulable`, what it says.
#[test]
fn whose_words_count_is_told_by_the_field() {
    for (field, read, is_set) in [
        (Field::ExcludedFromLoadBalancers, json!({"labels": {names::EXCLUDE_FROM_LB_LABEL: ""}}), true),
        (Field::DoNotDisrupt, json!({"annotations": {names::DO_NOT_DISRUPT_ANNOTATION: "yes"}}), true),
        (
            Field::ScaleDownDisabled,
            json!({"annotations": {names::SCALE_DOWN_DISABLED_ANNOTATION: "1"}}),
            true,
        ),
        (Field::Unschedulable, json!({}), false),
    ] {
        let read = json!({"metadata": read, "spec": {"unschedulable": false}});
        let tests = vec![(field, Value::Set)];
        let patch = Write { object: Object::Node("n"), tests, sets: vec![] }.patch(&read).unwrap();
        assert_eq!(patched::<Node>(&read, &patch).is_ok(), is_set, "{field:?}: {patch}");
    }
}

/// Without tests of its own, a patch still says what it took for granted of the object that was read.
#[test]
fn what_was_absent_is_tested_to_be_so_still() {
    let (read, mut since) = (bare_shadow(), bare_shadow());
    since.set(Field::StatusMessage, &Value::text("of another writer"));
    for (says, field, value) in [
        (
            "its parent is made, and would replace what stands there",
            Field::CurrentVersion,
            Value::text("1.20.0"),
        ),
        ("it is taken away where it was not", Field::StatusMessage, Value::Absent),
    ] {
        let write =
            Write { object: Object::ShadowStatus("brs-n"), tests: vec![], sets: vec![(field, value)] };
        let patch = write.patch(&json!(read)).unwrap();
        assert!(patched::<BottlerocketShadow>(&json!(read), &patch).is_ok(), "{says}: {patch}");
        assert!(patched::<BottlerocketShadow>(&json!(since), &patch).is_err(), "{says}: {patch}");
    }
}

/// Another writer may have spelled defaults out, and left nulls.
#[test]
fn what_means_the_same_is_the_same() {
    let slot = json!({"uid": "u", "attempt": 1, "since": null, "lost": false});
    let record = json!({"succeeded": 0, "failures": [], "halted": null});
    let read = json!({"metadata": {"name": "fleet"}, "spec": {},
        "status": {"slots": {"brs-a": slot}, "versions": {"1.20.0": record}}});
    let slot = Slot { uid: "u".into(), attempt: 1, ..Slot::default() };
    let slots = BTreeMap::from([("brs-a".to_owned(), slot.clone())]);
    for (field, value) in [
        (Field::Slot("brs-a"), Value::Slot(slot)),
        (Field::Slots, Value::Slots(Cow::Owned(slots))),
        (Field::VersionRecord("1.20.0"), Value::VersionRecord(VersionRecord::default())),
    ] {
        let write = Write { object: Object::Ledger, tests: vec![(field, value)], sets: vec![] };
        let patch = write.patch(&read).unwrap();
        let mut document = read.clone();
        assert!(json_patch::patch(&mut document, &patch).is_ok(), "{field:?}: {patch}");
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let shadow = bare_shadow();
    let (spec, status) = (Object::ShadowSpec("brs-n"), Object::ShadowStatus("brs-n"));
    let (attempt, state) = (Value::Number(1), Value::State(State::Idle));
    for (says, object, field, value, fits) in [
        ("the right one", spec, Field::SpecAttempt, &attempt, true),
        ("of the status", spec, Field::StatusAttempt, &attempt, false),
        ("of the spec", status, Field::SpecAttempt, &attempt, false),
        ("of a Node", spec, Field::Unschedulable, &Value::Set, false),
        ("of another kind", spec, Field::SpecAttempt, &state, false),
        ("a state that goes", spec, Field::SpecState, &Value::Absent, false),
        ("the API server's", spec, Field::Generation, &attempt, false),
        ("another object", Object::Node("n"), Field::Unschedulable, &Value::Set, false),
    ] {
        let sets = vec![(Field::SpecLeaderTerm, Value::Number(7)), (field, value.clone())];
        let sets = if object == spec { sets } else { sets[1..].to_vec() };
        let write = Write { object, tests: vec![], sets };
        let mut after = shadow.clone();
        assert_eq!(apply(&write, &mut after).is_ok(), fits, "{says}");
        assert_eq!(after == shadow, !fits, "{says}");
        let is_object = !matches!(object, Object::Node(_));
        assert_eq!(write.patch(&json!(shadow)).is_ok(), fits || !is_object, "{says}");
    }
}
