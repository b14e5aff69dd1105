//! Single fields: where they are, in which words, and what a patch says beside its tests.

use super::*;
use brupop_api::NodeCounts;

/// Each field is where its type has it: texts say which field they stand in, and numbers how long its name is.
#[test]
fn each_field_has_its_place() {
    let (mut shadow, mut fleet, mut node) = (bare_shadow(), bare_fleet(), bare_node());
    for (field, first, _) in spec_rows().into_iter().chain(status_rows()) {
        shadow.set(field, &first);
    }
    for (field, first, _) in ledger_rows() {
        fleet.set(field, &first);
    }
    let spec = json!({
        "state": "MonitoringUpdate", "state_transition_timestamp": "SpecTransitionTimestamp",
        "version": "SpecVersion", "from_version": "SpecFromVersion", "attempt": 11, "leader_term": 14, "baseline_boot_id": "SpecBaselineBootId",
        "reboot_granted_boot_id": "SpecRebootGrantedBootId",
        "last_failure": {"count": 1, "attempt": 0, "at": "", "reason": "", "message": ""},
    });
    let status = json!({
        "current_version": "CurrentVersion", "target_version": "TargetVersion",
        "current_state": "MonitoringUpdate", "crash_count": 10,
        "state_transition_failure_timestamp": "FailureTimestamp", "attempt": 13, "boot_id": "StatusBootId",
        "staged": {"version": "", "at": "", "prefetched": true}, "reboot_claimed_boot_id": "StatusRebootClaimedBootId",
        "problem": "StepFailed", "problem_since": "StatusProblemSince", "message": "StatusMessage",
    });
    let (slot, record) = (
        json!({"uid": "", "attempt": 1}),
        json!({"version": "", "variant": "", "succeeded": 1}),
    );
    let done = json!({"pool": "", "version": "", "since": "1"});
    let mut ledger = json!({
        "term": 4, "slots": {"brs-a": slot}, "versions": [record], "donePools": [done],
        "lastFinished": "LastFinished",
    });
    assert_eq!(
        (&json!(shadow)["spec"], &json!(shadow)["status"]),
        (&spec, &status)
    );
    let counts = json!(NodeCounts::default());
    ledger
        .as_object_mut()
        .unwrap()
        .extend(counts.as_object().unwrap().clone());
    ledger["notOptedInNodes"] = json!(0);
    assert_eq!(json!(fleet)["status"], ledger);
    assert_eq!(
        fleet.get(Field::Slots),
        Some(Value::Slots(Cow::Borrowed(
            &fleet.status.as_ref().unwrap().slots
        )))
    );
    assert_eq!(
        bare_fleet().get(Field::Slots),
        Some(Value::Slots(Cow::default()))
    );
    for (uid, generation, found) in [
        (
            "u-1",
            Value::Number(7),
            (shadow.get(Field::Uid), shadow.get(Field::Generation)),
        ),
        (
            "u-2",
            Value::Absent,
            (node.get(Field::Uid), node.get(Field::Generation)),
        ),
        (
            "u-3",
            Value::Number(8),
            (fleet.get(Field::Uid), fleet.get(Field::Generation)),
        ),
    ] {
        assert_eq!(found, (Some(Value::text(uid)), Some(generation)), "{uid}");
    }
    assert_eq!(node.get(Field::OsImage), Some(Value::Absent));
    node.status
        .get_or_insert_default()
        .node_info
        .get_or_insert_default()
        .os_image = "Bottlerocket".into();
    assert_eq!(node.get(Field::OsImage), Some(Value::text("Bottlerocket")));
    node.spec.get_or_insert_default().unschedulable = Some(true);
    assert_eq!(node.get(Field::Unschedulable), Some(Value::Set));
}

#[test]
fn our_taint_comes_beside_others_and_goes_alone() {
    let theirs = json!({"key": "theirs", "effect": "NoExecute"});
    let mut node: Node =
        serde_json::from_value(json!({"metadata": {}, "spec": {"taints": [theirs]}})).unwrap();
    let ours = json!({"key": "brupop.bottlerocket.aws/updating", "effect": "PreferNoSchedule"});
    for (value, expected) in [
        (Value::Set, json!([theirs, ours])),
        (Value::Set, json!([theirs, ours])),
        (Value::Absent, json!([theirs])),
    ] {
        node.set(Field::UpdatingTaint, &value);
        assert_eq!(json!(node.spec.as_ref().unwrap().taints), expected);
    }
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

/// Controllers add and remove taints at any time, and none of theirs is lost.
#[test]
fn taints_of_others_survive_ours() {
    let taint = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
    let (old, new, ours) = (taint("old"), taint("new"), taint(names::UPDATING_TAINT));
    let node = |taints: &[&Json]| json!({"metadata": {"name": "n"}, "spec": {"taints": taints}});
    for (value, read, meanwhile, left) in [
        (Value::Set, vec![&old], vec![&old], Some(vec![&old, &ours])),
        (Value::Set, vec![&old], vec![&old, &new], None),
        (Value::Absent, vec![&ours], vec![&ours], Some(vec![])),
        (
            Value::Absent,
            vec![&old, &ours],
            vec![&old, &ours, &new],
            Some(vec![&old, &new]),
        ),
        (Value::Absent, vec![&ours, &old], vec![&ours], Some(vec![])),
        (Value::Absent, vec![&ours, &old], vec![&old, &ours], None),
        (Value::Absent, vec![&old, &ours], vec![&ours], None),
        (Value::Absent, vec![&old, &ours], vec![&old], None),
        (Value::Absent, vec![&old], vec![&old, &ours], None),
    ] {
        let write = Write {
            object: Object::Node("n"),
            tests: vec![],
            sets: vec![(Field::UpdatingTaint, value)],
        };
        let patch = write.patch(&node(&read));
        let after = patched::<Node>(&node(&meanwhile), &patch).ok();
        let after = after.map(|after| after["spec"]["taints"].clone());
        let left = left.map(|left| settled(node(&left))["spec"]["taints"].clone());
        assert_eq!(after, left, "{meanwhile:?}: {patch}");
    }
}

/// Of labels and annotations that others may have set, too, only the key counts; of `unschedulable`, what it says.
#[test]
fn whose_words_count_is_told_by_the_field() {
    for (field, read, is_set) in [
        (
            Field::ExcludedFromLoadBalancers,
            json!({"labels": {names::EXCLUDE_FROM_LB_LABEL: ""}}),
            true,
        ),
        (
            Field::DoNotDisrupt,
            json!({"annotations": {names::DO_NOT_DISRUPT_ANNOTATION: "yes"}}),
            true,
        ),
        (
            Field::ScaleDownDisabled,
            json!({"annotations": {names::SCALE_DOWN_DISABLED_ANNOTATION: "1"}}),
            true,
        ),
        (Field::Unschedulable, json!({}), false),
    ] {
        let read = json!({"metadata": read, "spec": {"unschedulable": false}});
        let tests = vec![(field, Value::Set)];
        let patch = Write {
            object: Object::Node("n"),
            tests,
            sets: vec![],
        }
        .patch(&read);
        assert_eq!(
            patched::<Node>(&read, &patch).is_ok(),
            is_set,
            "{field:?}: {patch}"
        );
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
        (
            "it is taken away where it was not",
            Field::StatusMessage,
            Value::Absent,
        ),
    ] {
        let write = Write {
            object: Object::ShadowStatus("brs-n"),
            tests: vec![],
            sets: vec![(field, value)],
        };
        let patch = write.patch(&json!(read));
        assert!(
            patched::<BottlerocketShadow>(&json!(read), &patch).is_ok(),
            "{says}: {patch}"
        );
        assert!(
            patched::<BottlerocketShadow>(&json!(since), &patch).is_err(),
            "{says}: {patch}"
        );
    }
}

/// Another writer may have spelled defaults out, and left nulls.
#[test]
fn what_means_the_same_is_the_same() {
    let slot = json!({"uid": "u", "attempt": 1, "since": null, "lost": false});
    let record =
        json!({"version": "", "variant": "", "succeeded": 0, "failures": [], "haltedAt": null});
    let read = json!({"metadata": {"name": "fleet"}, "spec": {},
        "status": {"slots": {"brs-a": slot}, "versions": [record]}});
    let slot = Slot {
        uid: "u".into(),
        attempt: 1,
        ..Slot::default()
    };
    let slots = BTreeMap::from([("brs-a".to_owned(), slot.clone())]);
    for (field, value) in [
        (Field::Slot("brs-a"), Value::Slot(slot)),
        (Field::Slots, Value::Slots(Cow::Owned(slots))),
        (
            Field::Versions,
            Value::Versions(Cow::Owned(vec![VersionRecord::default()])),
        ),
    ] {
        let write = Write {
            object: Object::Ledger,
            tests: vec![(field, value)],
            sets: vec![],
        };
        let patch = write.patch(&read);
        let mut document = read.clone();
        assert!(
            json_patch::patch(&mut document, &patch).is_ok(),
            "{field:?}: {patch}"
        );
    }
}
