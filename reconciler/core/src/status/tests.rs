//! Tests of the conditions that are written, and when.

mod debounced;
mod health;
mod idle;

use super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::decide::Reason;
use crate::rules::Policy;
use crate::tests::world::{NOW, known, node, observe_knowing, put_ledger, read};
use brupop_api::conditions::READY;
use brupop_api::fleet::{BottlerocketFleetStatus, VersionRecord};
use brupop_api::{BottlerocketFleet, BottlerocketShadow};
use std::slice;

/// A check that found nothing wrong, one that did, and none yet.
type Check = Option<Result<(), &'static str>>;

fn wanted(status: ConditionStatus, reason: &'static str) -> Condition {
    condition(PROGRESSING, status, reason, "a sentence")
}

fn shadow(conditions: &Value) -> BottlerocketShadow {
    shadow_of(json!({"conditions": conditions}))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "it is written where it is used"
)]
fn shadow_of(status: Value) -> BottlerocketShadow {
    read(json!({
        "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": "brs-n", "uid": "u", "generation": 1}, "spec": {"state": "Idle"}, "status": status,
    }))
}

/// The shadow once these conditions were written at this time.
fn written(before: &BottlerocketShadow, conditions: &[Condition], now: &str) -> BottlerocketShadow {
    shadow_of(shadow_patch(before, "", conditions, now)["status"].take())
}

/// The fleet's object, in this generation.
#[allow(
    clippy::needless_pass_by_value,
    reason = "it is written where it is used"
)]
fn fleet(generation: i64, status: Value) -> BottlerocketFleet {
    read(
        json!({"apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
        "metadata": {"name": "fleet", "uid": "u", "generation": generation}, "spec": {}, "status": status}),
    )
}

#[test]
fn a_conditions_time_is_its_statuss() {
    let first = wanted(False, "NoUpdate");
    let patch = shadow_patch(&shadow(&json!([])), "", slice::from_ref(&first), NOW);
    assert_eq!(
        patch,
        json!({
            "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": "brs-n", "uid": "u"},
            "status": {"pool": "", "conditions": [{"type": "Progressing", "status": "False", "reason": "NoUpdate",
                "message": "a sentence", "observedGeneration": 1,
                "lastTransitionTime": "2026-11-21T04:00:00Z"}]},
        })
    );
    let shadow = shadow(&patch["status"]["conditions"]);
    assert!(shadow_has(&shadow, "", slice::from_ref(&first)));
    let time = |wanted: &Condition| {
        shadow_patch(&shadow, "", slice::from_ref(wanted), "2026-11-21T05:00:00Z")["status"]["conditions"][0]
            ["lastTransitionTime"]
            .clone()
    };
    let other_reason = wanted(False, "NodePaused");
    assert!(!shadow_has(&shadow, "", slice::from_ref(&other_reason)));
    assert_eq!(time(&other_reason), "2026-11-21T04:00:00Z");
    assert_eq!(time(&wanted(True, "Staging")), "2026-11-21T05:00:00Z");
}

#[test]
fn a_condition_is_written_once_for_each_generation() {
    let stays = [wanted(False, "NoUpdate")];
    let patch = shadow_patch(&shadow(&json!([])), "", &stays, "2026-11-21T04:00:00Z");
    let mut read = shadow(&patch["status"]["conditions"]);
    read.metadata.generation = Some(2);
    assert!(!shadow_has(&read, "", &stays));
    let patch = shadow_patch(&read, "", &stays, "2026-11-21T05:00:00Z");
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(condition["observedGeneration"], 2);
    assert_eq!(condition["lastTransitionTime"], "2026-11-21T04:00:00Z");
    read = shadow(&patch["status"]["conditions"]);
    read.metadata.generation = Some(2);
    assert!(shadow_has(&read, "", &stays));
}

/// As the pool of a node changes by a label, its conditions may stay.
#[test]
fn a_shadows_pool_is_written_with_its_conditions() {
    let stays = [wanted(False, "NoUpdate")];
    let written = |shadow: &BottlerocketShadow, pool| {
        let patch = shadow_patch(shadow, pool, &stays, "2026-11-21T04:00:00Z");
        assert_eq!(patch["status"]["pool"], pool);
        shadow_of(patch["status"].clone())
    };
    let web = written(&shadow(&json!([])), "web");
    assert!(shadow_has(&web, "web", &stays));
    assert!(!shadow_has(&web, "canary", &stays) && !shadow_has(&web, "", &stays));
    // Also over what somebody else has put there, which would stay if it were left out.
    assert!(shadow_has(&written(&web, ""), "", &stays));
}

/// The condition of a host that runs this version and chooses that one.
fn available(runs: Option<&str>, target: Option<&str>) -> Option<Condition> {
    let shadow = shadow_of(json!({"current_version": runs, "target_version": target}));
    update_available(&ShadowFacts::of(&shadow)?)
}

#[test]
fn an_update_says_since_when_it_is_known() {
    let (yes, no) = (
        available(Some("1.19.4"), Some("1.20.0")),
        available(Some("1.20.0"), None),
    );
    let (yes, no) = (yes.unwrap(), no.unwrap());
    assert_eq!((yes.status, no.status), (True, False));
    // A locked host has the problem that it does not choose a version, which this must not contradict.
    assert_eq!(
        (&*no.reason, &*no.message),
        ("NoneChosen", "the host chooses no update")
    );
    assert_eq!(
        available(None, None),
        None,
        "nobody knows before the agent has reported"
    );
    let waits = |reason, update: &Condition| [wanted(False, reason), update.clone()];
    let behind = written(&shadow(&json!([])), &waits("LimitReached", &yes), NOW);
    assert_eq!(update_known_since(&behind), Some(NOW));
    let behind = written(&behind, &waits("NodePaused", &yes), "2026-11-21T05:00:00Z");
    assert_eq!(update_known_since(&behind), Some(NOW));
    let done = waits("NoUpdate", &no);
    assert!(!shadow_has(&behind, "", &done), "it is no longer so");
    let behind = written(&behind, &done, "2026-11-21T06:00:00Z");
    assert_eq!(update_known_since(&behind), None);
}

#[test]
fn messages_are_as_the_schema_takes_them() {
    let message = |words: &str| progressing(&Reason::NoUpdate, words, "").message;
    assert_eq!(message(&"é".repeat(600)), format!("{}…", "é".repeat(510)));
    assert_eq!(message("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
    let long = progressing(&Reason::NoUpdate, &"a".repeat(2000), "do this").message;
    assert!(
        long.len() == MESSAGE_MAX && long.ends_with("…; what to do: do this"),
        "{long}"
    );
    assert_eq!(condition(READY, False, "", "\u{7}").message, "\\u{7}");
}

/// The status of a fleet of this many nodes, over this stored one. The checks are those of admission, and of other operators.
fn desired(
    nodes: u64,
    checks: [Check; 2],
    halts: &[&VersionRecord],
    stored: Value,
) -> BottlerocketFleetStatus {
    let mut cluster = Cluster::default();
    for nth in 0..nodes {
        node(&format!("node-{nth}"), json!({})).put(&mut cluster);
    }
    put_ledger(&mut cluster, json!({}), stored);
    let (known, policy, [admission, alone]) = (known(&cluster), Policy::default(), checks);
    let observed = observe_knowing(&cluster, &known, &policy, NOW);
    let decided = observed.decide();
    super::fleet(
        &cluster,
        &observed,
        &decided.nodes,
        admission,
        alone,
        halts,
        "ns",
    )
}

#[test]
fn the_fleet_keeps_conditions_not_known_yet() {
    let why = "the webhook let through what it must refuse";
    let of = |checks| desired(3, checks, &[], json!({}));
    let wanted = of([Some(Err(why)), Some(Err("upstream's is here"))]);
    let none = fleet(1, json!({}));
    assert!(!fleet_has(&none, &wanted));
    let told_as = |event: Option<EventText>| event.map(|event| (event.reason, event.note));
    let told = |reason, why: &str| Some((reason, format!("no update starts: {why}")));
    assert_eq!(
        told_as(new_obstacle(&wanted, &none)),
        told("OtherOperator", "upstream's is here")
    );
    assert_eq!(
        told_as(new_obstacle(&of([Some(Err(why)), None]), &none)),
        told("AdmissionNotEnforced", why)
    );
    let patch = fleet_patch(&none, &wanted, NOW);
    let written = fleet(1, patch["status"].clone());
    assert_eq!(new_obstacle(&wanted, &written), None, "each is told once");
    let gone = of([Some(Err(why)), Some(Ok(()))]);
    assert!(!fleet_has(&written, &gone) && new_obstacle(&gone, &written).is_none());
    assert!(fleet_has(&written, &wanted));
    let steered = fleet(2, patch["status"].clone());
    assert!(
        !fleet_has(&steered, &wanted),
        "it is said of each generation of the spec"
    );
    assert_eq!(new_obstacle(&wanted, &steered), None, "but told once");
    let status = fleet_patch(&steered, &wanted, "later")["status"].take();
    assert!(fleet_has(&fleet(2, status.clone()), &wanted));
    let generations = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["observedGeneration"]);
    assert!(
        generations
            .chain([&status["observedGeneration"]])
            .all(|it| *it == 2),
        "{status}"
    );
    let unknown = desired(3, [None; 2], &[], patch["status"].clone());
    assert!(fleet_has(&written, &unknown));
    assert_eq!(
        fleet_patch(&written, &unknown, "later")["status"],
        patch["status"]
    );
}
