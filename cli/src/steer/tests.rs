use serde_json::json;

use super::*;
use crate::report::fixtures::{NS, item, node, shadow, watched_fleet};

fn asked(node: &NodeFacts) -> PlannedChange {
    update_now(node, NS, false)
}

fn not_now(node: &NodeFacts) -> PlannedChange {
    update_now(node, NS, true)
}

type Steers = fn(&NodeFacts) -> PlannedChange;

fn paused(node: &NodeFacts) -> PlannedChange {
    pause_node(node, None, true)
}

fn resume_node(node: &NodeFacts) -> PlannedChange {
    pause_node(node, None, false)
}

#[test]
fn a_pause_during_the_reboot_comes_too_late() {
    let shadow = |state: &str, granted: &str, claimed: Option<&str>, boot: &str| {
        let spec = json!({"state": state, "reboot_granted_boot_id": granted});
        let status = json!({"reboot_claimed_boot_id": claimed, "boot_id": boot});
        item("node-0", json!({"spec": spec, "status": status}))
            .body
            .unwrap()
    };
    // Of an earlier update, of an earlier grant, and back already.
    let (reboots_now, staged) = ("RebootedIntoUpdate", "StagedAndPerformedUpdate");
    for (state, granted, claimed, boot, expected) in [
        (reboots_now, "b1", Some("b1"), "b1", true),
        (reboots_now, "b1", None, "b1", false),
        (reboots_now, "b1", Some("b1"), "b2", false),
        (staged, "b1", Some("b1"), "b1", false),
        (reboots_now, "b2", Some("b1"), "b2", false),
    ] {
        let shadow = shadow(state, granted, claimed, boot);
        assert_eq!(reboots(&shadow), expected, "{shadow:?}");
    }
    let node = node(&json!({}), &json!({}));
    let begun = shadow("RebootedIntoUpdate", "b1", Some("b1"), "b1");
    let late = pause_node(&node, Some(&begun), true);
    let timely = pause_node(&node, None, true);
    assert_eq!(late.patch, timely.patch);
    assert!(late.says.ends_with("too late"), "{}", late.says);
    assert_eq!(timely.says, "the node node-0 is paused");
}

#[test]
fn what_is_said_can_be_pasted_for_this_namespace() {
    let node = node(&json!({}), &json!({}));
    for (namespace, command) in [
        ("ns", "`kubectl brupop why node-0 -n ns`"),
        (NS, "`kubectl brupop why node-0`"),
    ] {
        let says = update_now(&node, namespace, false).says;
        assert!(says.contains(command), "{says}");
    }
}

#[test]
fn annotations_are_written_where_they_change_something() {
    let (pause, now) = (names::PAUSE_ANNOTATION, names::UPDATE_NOW_ANNOTATION);
    let (is, no_longer) = (
        |key: &str| Some(json!({key: "true"})),
        |key: &str| Some(json!({key: null})),
    );
    let cases: [(Steers, Value, Option<Value>); 14] = [
        (paused, json!({}), is(pause)),
        (paused, json!({pause: "false"}), is(pause)),
        (paused, json!({pause: "true"}), None),
        // Whatever else stands there pauses the node, too.
        (paused, json!({pause: "by eve"}), None),
        (resume_node, json!({}), None),
        (resume_node, json!({pause: "false"}), None),
        (resume_node, json!({pause: "true"}), no_longer(pause)),
        (resume_node, json!({pause: ""}), no_longer(pause)),
        (asked, json!({pause: "true"}), is(now)),
        (asked, json!({now: "soon"}), is(now)),
        (asked, json!({now: "true"}), None),
        (not_now, json!({now: "true"}), no_longer(now)),
        (not_now, json!({now: "soon"}), no_longer(now)),
        (not_now, json!({pause: "true"}), None),
    ];
    for (number, (steer, annotations, expected)) in cases.into_iter().enumerate() {
        let change = steer(&node(&json!({}), &annotations));
        let expected = expected
            .map(|annotations| json!({"metadata": {"uid": "n", "annotations": annotations}}));
        assert_eq!(change.patch, expected, "case {number}");
    }
}

#[test]
fn retry_names_the_attempt_that_failed() {
    let failures =
        json!({"count": 2, "attempt": 5, "at": "2026-11-21T03:00:00Z", "reason": "DrainTimedOut"});
    let failed = |state: &str| {
        let spec = json!({"state": state, "attempt": 5, "last_failure": failures});
        item("node-0", json!({"spec": spec})).body.ok()
    };
    let given_up = |reason| {
        let spec = json!({"state": "Idle", "attempt": 5});
        let shadow = shadow("node-0", &spec, json!({}), ["False", reason, "m"]);
        shadow.body.ok()
    };
    let is_written = |retry: &str| Some(json!({names::RETRY_ANNOTATION: retry}));
    let (idle, backs_off) = (failed("Idle"), given_up("BackingOff"));
    let no_update = given_up("NoUpdate");
    let updated = failed("StagedAndPerformedUpdate");
    let ended = "is ended: it is updated";
    for (says, shadow, annotated, expected) in [
        (ended, &idle, None, is_written("5")),
        (ended, &idle, Some("4"), is_written("5")),
        ("is ended already", &idle, Some("5"), None),
        (ended, &backs_off, None, is_written("5")),
        ("no attempt has failed", &no_update, None, None),
        ("it is being updated", &updated, None, None),
        ("it has no shadow", &None, None, None),
    ] {
        let annotations =
            annotated.map_or(json!({}), |retry| json!({names::RETRY_ANNOTATION: retry}));
        let change = retry(&node(&json!({}), &annotations), shadow.as_ref(), NS);
        let expected = expected
            .map(|annotations| json!({"metadata": {"uid": "n", "annotations": annotations}}));
        assert!(change.says.contains(says), "{says}: {}", change.says);
        assert_eq!(change.patch, expected, "{says}");
    }
}

/// 1.20.0 is halted for two variants, 1.21.0 for none.
fn halted(resumed_versions: &Value) -> BottlerocketFleet {
    let going_on = json!({"version": "1.21.0", "variant": "aws", "succeeded": 3});
    let status = json!({"slots": {}, "versions": [halt("aws"), halt("metal"), going_on]});
    let spec = json!({"paused": false, "resumedVersions": resumed_versions});
    watched_fleet(&spec, &status).object
}

/// As it stands in the ledger, and as it is resumed.
fn halt(variant: &str) -> Value {
    json!({"version": "1.20.0", "variant": variant, "haltedAt": "2026-11-21T03:00:00Z"})
}

#[test]
fn a_version_is_resumed_as_its_halts_were_read() {
    let (aws, metal) = (halt("aws"), halt("metal"));
    let earlier =
        json!({"version": "1.20.0", "variant": "aws", "haltedAt": "2026-11-20T03:00:00Z"});
    for (before, variant, after) in [
        (json!([]), None, json!([aws, metal])),
        (json!([]), Some("metal"), json!([metal])),
        (json!([aws]), Some("metal"), json!([aws, metal])),
        (json!([earlier]), Some("metal"), json!([metal])),
    ] {
        let change = resume_version(&halted(&before), "1.20.0", variant).unwrap();
        let patch = json!({"metadata": {"uid": "f", "resourceVersion": "7"}, "spec": {"resumedVersions": after}});
        assert_eq!(change.patch, Some(patch));
    }
    let both = halted(&json!([aws, metal]));
    assert_eq!(resume_version(&both, "1.20.0", None).unwrap().patch, None);
}

#[test]
fn a_version_that_is_not_halted_is_not_resumed() {
    let listed = "halted versions: 1.20.0 for aws, 1.20.0 for metal";
    for (version, variant, says) in [
        ("1.21.0", None, "1.21.0 is not halted"),
        ("1.20.0", Some("nvidia"), "1.20.0 is not halted for nvidia"),
    ] {
        let refused = resume_version(&halted(&json!([])), version, variant).unwrap_err();
        assert_eq!(refused.to_string(), format!("the version {says}; {listed}"));
    }
    let nothing = watched_fleet(&json!({}), &json!({})).object;
    let none = resume_version(&nothing, "1.0.0", None).unwrap_err();
    let told = "the version 1.0.0 is not halted; halted versions: none";
    assert_eq!(none.to_string(), told);
}
