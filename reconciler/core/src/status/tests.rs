//! Which conditions are written, and when.

mod events;
mod health;
mod idle;

use super::*;
use brupop_api::{BottlerocketFleet, BottlerocketShadow};
use std::slice;

fn wanted(status: ConditionStatus, reason: &'static str) -> DesiredCondition {
    DesiredCondition::progressing(status, reason, "a sentence")
}

fn shadow(conditions: &Value) -> BottlerocketShadow {
    serde_json::from_value(json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": "brs-n", "uid": "u", "generation": 1}, "spec": {"state": "Idle"},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

#[test]
fn a_conditions_time_is_its_statuss() {
    let first = wanted(ConditionStatus::False, "NoUpdate");
    let patch = shadow_patch(&shadow(&json!([])), slice::from_ref(&first), "2026-11-21T04:00:00Z");
    assert_eq!(
        patch,
        json!({
            "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": "brs-n", "uid": "u"},
            "status": {"conditions": [{"type": "Progressing", "status": "False", "reason": "NoUpdate",
                "message": "a sentence", "observedGeneration": 1,
                "lastTransitionTime": "2026-11-21T04:00:00Z"}]},
        })
    );
    let shadow = shadow(&patch["status"]["conditions"]);
    assert!(shadow_has(&shadow, slice::from_ref(&first)));
    let time = |wanted: &DesiredCondition| {
        shadow_patch(&shadow, slice::from_ref(wanted), "2026-11-21T05:00:00Z")["status"]["conditions"][0]
            ["lastTransitionTime"]
            .clone()
    };
    let other_reason = wanted(ConditionStatus::False, "NodePaused");
    assert!(!shadow_has(&shadow, slice::from_ref(&other_reason)));
    assert_eq!(time(&other_reason), "2026-11-21T04:00:00Z");
    assert_eq!(time(&wanted(ConditionStatus::True, "Starting")), "2026-11-21T05:00:00Z");
}

#[test]
fn a_condition_is_written_once_for_each_generation() {
    let stays = [wanted(ConditionStatus::False, "NoUpdate")];
    let patch = shadow_patch(&shadow(&json!([])), &stays, "2026-11-21T04:00:00Z");
    let mut read = shadow(&patch["status"]["conditions"]);
    read.metadata.generation = Some(2);
    assert!(!shadow_has(&read, &stays));
    let patch = shadow_patch(&read, &stays, "2026-11-21T05:00:00Z");
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(condition["observedGeneration"], 2);
    assert_eq!(condition["lastTransitionTime"], "2026-11-21T04:00:00Z");
    read = shadow(&patch["status"]["conditions"]);
    read.metadata.generation = Some(2);
    assert!(shadow_has(&read, &stays));
}

#[test]
fn an_overdue_update_says_so() {
    let progressing = wanted(ConditionStatus::True, "ReturningToService");
    let both = [progressing.clone(), DesiredCondition::overdue(&progressing)];
    let patch = shadow_patch(&shadow(&json!([])), &both, "2026-11-21T04:00:00Z");
    let late = shadow(&patch["status"]["conditions"]);
    assert_eq!(patch["status"]["conditions"][1]["type"], "Overdue");
    assert!(shadow_has(&late, &both) && !shadow_has(&late, &both[..1]));
    let patch = shadow_patch(&late, &both[..1], "2026-11-21T05:00:00Z");
    assert!(shadow_has(&shadow(&patch["status"]["conditions"]), &both[..1]));
}

#[test]
fn an_update_says_since_when_it_is_known() {
    let progressing = wanted(ConditionStatus::False, "LimitReached");
    let both = [progressing.clone(), DesiredCondition::update_available()];
    let patch = shadow_patch(&shadow(&json!([])), &both, "2026-11-21T04:00:00Z");
    let behind = shadow(&patch["status"]["conditions"]);
    assert_eq!(crate::outcome::update_known_since(&behind), Some("2026-11-21T04:00:00Z"));
    let paused = [wanted(ConditionStatus::False, "NodePaused"), DesiredCondition::update_available()];
    let patch = shadow_patch(&behind, &paused, "2026-11-21T05:00:00Z");
    let behind = shadow(&patch["status"]["conditions"]);
    assert_eq!(crate::outcome::update_known_since(&behind), Some("2026-11-21T04:00:00Z"));
    assert!(!shadow_has(&behind, &paused[..1]), "it is taken away");
    let patch = shadow_patch(&behind, &paused[..1], "2026-11-21T06:00:00Z");
    assert_eq!(crate::outcome::update_known_since(&shadow(&patch["status"]["conditions"])), None);
}

#[test]
fn messages_are_as_the_schema_takes_them() {
    let message = |words: &str| DesiredCondition::progressing(ConditionStatus::True, "R", words).message;
    assert_eq!(message(&"é".repeat(600)), format!("{}…", "é".repeat(510)));
    assert_eq!(message("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
    assert_eq!(DesiredCondition::admission(Err("\u{7}")).message, "\\u{7}");
}

#[test]
fn the_fleet_keeps_conditions_not_known_yet() {
    let mut wanted = DesiredFleetStatus {
        limit: 1,
        counts: Counts { nodes: 3, ..Counts::default() },
        halted: None,
        idle: DesiredCondition::idle(0),
        halt: DesiredCondition::halted("ns", &BTreeMap::new(), &[]),
        halt_holds_nodes: false,
        admission: Some(DesiredCondition::admission(Err("the webhook let through what it must refuse"))),
        other_operator: Some(DesiredCondition::other_operator(Err("upstream's is here"))),
    };
    let fleet = |status: &Value| -> BottlerocketFleet {
        serde_json::from_value(
            json!({"apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
            "metadata": {"name": "fleet", "uid": "u", "generation": 1}, "spec": {}, "status": status}),
        )
        .unwrap()
    };
    let none = fleet(&json!({}));
    assert!(!wanted.is_stored_in(&none));
    let told_as = |event: Option<EventText>| event.map(|event| (event.reason, event.note));
    let told = |reason, why: &str| Some((reason, format!("no update starts: {why}")));
    assert_eq!(told_as(wanted.new_obstacle(&none)), told("OtherOperator", "upstream's is here"));
    let not_enforced = DesiredFleetStatus { other_operator: None, ..wanted.clone() };
    let why = "the webhook let through what it must refuse";
    assert_eq!(told_as(not_enforced.new_obstacle(&none)), told("AdmissionNotEnforced", why));
    let patch = wanted.patch(&none, "2026-11-21T04:00:00Z");
    let written = fleet(&patch["status"]);
    assert_eq!(wanted.new_obstacle(&written), None, "each is told once");
    let gone = DesiredFleetStatus {
        other_operator: Some(DesiredCondition::other_operator(Ok(()))),
        ..wanted.clone()
    };
    assert!(!gone.is_stored_in(&written) && gone.new_obstacle(&written).is_none());
    assert!(wanted.is_stored_in(&written));
    let steered = BottlerocketFleet {
        metadata: ObjectMeta { generation: Some(2), ..written.metadata.clone() },
        ..written.clone()
    };
    assert!(!wanted.is_stored_in(&steered), "it is said of each generation of the spec");
    assert_eq!(wanted.new_obstacle(&steered), None, "but told once");
    let status = wanted.patch(&steered, "later")["status"].take();
    let mut seen = fleet(&status);
    seen.metadata.generation = Some(2);
    assert!(wanted.is_stored_in(&seen));
    let generations = status["conditions"].as_array().unwrap().iter().map(|it| &it["observedGeneration"]);
    assert!(generations.chain([&status["observedGeneration"]]).all(|it| *it == 2), "{status}");
    (wanted.admission, wanted.other_operator) = (None, None);
    assert!(wanted.is_stored_in(&written));
    assert_eq!(wanted.patch(&written, "later")["status"], patch["status"]);
}
