use serde_json::json;

use super::*;
use crate::report::fixtures::{NS, item, node, pool, shadow, watched_fleet};

#[test]
fn a_pause_is_written_once() {
    let fleet = |paused: bool| watched_fleet(&json!({"paused": paused}), &json!({})).object;
    assert_eq!(
        pause_fleet(&fleet(false), true).patch.unwrap(),
        json!({"metadata": {"uid": "f"}, "spec": {"paused": true}})
    );
    let says = pause_fleet(&fleet(false), true).says;
    assert!(
        says.ends_with("and what is cordoned is finished"),
        "{says}: what is not is given up"
    );
    assert_eq!(
        pause_fleet(&fleet(true), false).patch.unwrap()["spec"],
        json!({"paused": false})
    );
    assert_eq!(
        pause_fleet(&fleet(true), true),
        unchanged("the fleet is paused already".to_owned())
    );
    assert_eq!(pause_fleet(&fleet(false), false).patch, None);
}

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
    for (says, shadow, expected) in [
        (
            "it reboots",
            shadow("RebootedIntoUpdate", "b1", Some("b1"), "b1"),
            true,
        ),
        (
            "it may reboot",
            shadow("RebootedIntoUpdate", "b1", None, "b1"),
            false,
        ),
        (
            "it is back",
            shadow("RebootedIntoUpdate", "b1", Some("b1"), "b2"),
            false,
        ),
        (
            "of an earlier update",
            shadow("StagedAndPerformedUpdate", "b1", Some("b1"), "b1"),
            false,
        ),
        (
            "of an earlier grant",
            shadow("RebootedIntoUpdate", "b2", Some("b1"), "b2"),
            false,
        ),
    ] {
        assert_eq!(reboots(&shadow), expected, "{says}");
    }
    let node = node(&json!({}), &json!({}));
    let begun = shadow("RebootedIntoUpdate", "b1", Some("b1"), "b1");
    let (late, timely) = (
        pause_node(&node, Some(&begun), true),
        pause_node(&node, None, true),
    );
    assert_eq!(late.patch, timely.patch);
    assert!(
        late.says.ends_with("too late") && timely.says == "the node node-0 is paused",
        "{}",
        late.says
    );
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
    let cases: [(Steers, Value, Option<Value>); 14] = [
        (paused, json!({}), Some(json!({pause: "true"}))),
        (
            paused,
            json!({pause: "false"}),
            Some(json!({pause: "true"})),
        ),
        (paused, json!({pause: "true"}), None),
        // Whatever else stands there pauses the node, too.
        (paused, json!({pause: "by eve"}), None),
        (resume_node, json!({}), None),
        (resume_node, json!({pause: "false"}), None),
        (
            resume_node,
            json!({pause: "true"}),
            Some(json!({pause: null})),
        ),
        (resume_node, json!({pause: ""}), Some(json!({pause: null}))),
        (asked, json!({pause: "true"}), Some(json!({now: "true"}))),
        (asked, json!({now: "soon"}), Some(json!({now: "true"}))),
        (asked, json!({now: "true"}), None),
        (not_now, json!({now: "true"}), Some(json!({now: null}))),
        (not_now, json!({now: "soon"}), Some(json!({now: null}))),
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
        item(
            "node-0",
            json!({"spec": {"state": state, "attempt": 5, "last_failure": failures}}),
        )
        .body
        .unwrap()
    };
    let given_up = |reason| {
        let (spec, status) = (json!({"state": "Idle", "attempt": 5}), json!({}));
        shadow("node-0", &spec, status, ["False", reason, "m"])
            .body
            .unwrap()
    };
    let is_written = |retry: &str| Some(json!({names::RETRY_ANNOTATION: retry}));
    for (says, shadow, annotated, expected) in [
        (
            "is ended: it is updated",
            Some(failed("Idle")),
            None,
            is_written("5"),
        ),
        (
            "is ended: it is updated",
            Some(failed("Idle")),
            Some("4"),
            is_written("5"),
        ),
        ("is ended already", Some(failed("Idle")), Some("5"), None),
        (
            "is ended: it is updated",
            Some(given_up("BackingOff")),
            None,
            is_written("5"),
        ),
        (
            "does not back off: no attempt has failed",
            Some(given_up("NoUpdate")),
            None,
            None,
        ),
        (
            "does not back off: it is being updated",
            Some(failed("StagedAndPerformedUpdate")),
            None,
            None,
        ),
        ("does not back off: it has no shadow", None, None, None),
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
fn halted(resumed: &Value) -> BottlerocketFleet {
    let halt = |variant: &str| json!({"version": "1.20.0", "variant": variant, "haltedAt": "2026-11-21T03:00:00Z"});
    let going_on = json!({"version": "1.21.0", "variant": "aws", "succeeded": 3});
    let status = json!({"slots": {}, "versions": [halt("aws"), halt("metal"), going_on]});
    watched_fleet(
        &json!({"paused": false, "resumedVersions": resumed}),
        &status,
    )
    .object
}

fn resumed(variant: &str) -> Value {
    json!({"version": "1.20.0", "variant": variant, "haltedAt": "2026-11-21T03:00:00Z"})
}

#[test]
fn a_version_is_resumed_as_its_halts_were_read() {
    let (aws, metal) = (resumed("aws"), resumed("metal"));
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
    let listed = "halted are: 1.20.0 for aws, 1.20.0 for metal";
    for (version, variant, says) in [
        ("1.21.0", None, "the version 1.21.0 is not halted"),
        (
            "1.20.0",
            Some("nvidia"),
            "the version 1.20.0 is not halted for nvidia",
        ),
    ] {
        let refused = resume_version(&halted(&json!([])), version, variant).unwrap_err();
        assert_eq!(refused.to_string(), format!("{says}; {listed}"));
    }
    let none = resume_version(&watched_fleet(&json!({}), &json!({})).object, "1.0.0", None)
        .unwrap_err()
        .to_string();
    assert_eq!(none, "the version 1.0.0 is not halted; halted are: none");
}

#[test]
fn a_pool_is_paused_once() {
    let paused = |paused: bool| {
        let mut pool = pool("web").body.unwrap();
        pool.paused = paused;
        pool
    };
    let change = pause_pool(&paused(false), true);
    assert_eq!(
        change.patch.unwrap(),
        json!({"metadata": {"uid": "p"}, "spec": {"paused": true}})
    );
    let says =
        "the pool web is paused: no update of its nodes starts, and what is cordoned is finished";
    assert_eq!(change.says, says);
    assert_eq!(pause_pool(&paused(true), true).patch, None);
}
