use std::time::Duration;

use super::*;
use brupop_testbed::revisions::Revision;
use serde_json::json;

mod drains;

const MARKED: &str = r#"{"shadow_uid":"u","attempt":1,"cordoned_at":"t","drained_at":"t"}"#;

fn put(number: u64, key: &str, object: Json) -> Revision {
    Revision {
        number,
        key: format!("/registry/{key}"),
        object: Some(object),
    }
}

fn ledger_with(slots: &Json, versions: &Json) -> Json {
    json!({"status": {"term": 1, "slots": slots, "versions": versions}})
}

fn slots(slots: &Json) -> (&'static str, Json) {
    (FLEET, ledger_with(slots, &json!({})))
}

fn node(marker: Option<&str>, cordoned: bool) -> Json {
    let annotations = marker.map(|marker| json!({"brupop.bottlerocket.aws/marker": marker}));
    json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": cordoned}})
}

fn free() -> (&'static str, Json) {
    ("minions/n", node(None, false))
}

fn marked(marker: &str) -> (&'static str, Json) {
    ("minions/n", node(Some(marker), true))
}

fn idle() -> (&'static str, Json) {
    (SHADOW, shadow("Idle", 0, None))
}

fn granted() -> (&'static str, Json) {
    (SHADOW, shadow("RebootedIntoUpdate", 1, Some("b")))
}

fn shadow(state: &str, attempt: u64, grant: Option<&str>) -> Json {
    let spec = json!({"state": state, "attempt": attempt, "reboot_granted_boot_id": grant});
    json!({"metadata": {"uid": "u"}, "spec": spec})
}

fn pod(owner: &str) -> Json {
    let owner = json!({"apiVersion": "apps/v1", "kind": owner, "name": "o"});
    json!({"metadata": {"uid": "p", "ownerReferences": [owner]}, "spec": {"nodeName": "n"}})
}

fn reconciler(limit: usize) -> Json {
    let set = json!([{"name": "MAX_CONCURRENT_UPDATE", "value": limit.to_string()}]);
    let labels = json!({"brupop.bottlerocket.aws/component": "reconciler"});
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"env": set}]}})
}

const CORDONED: &str = r#"{"shadow_uid":"u","attempt":1,"cordoned_at":"t"}"#;

const FLEET: &str = "g/bottlerocketfleets/ns/fleet";
const SHADOW: &str = "g/bottlerocketshadows/ns/brs-n";

/// A cluster with a reconciler that updates one node at a time.
fn objects() -> Objects {
    let mut objects = Objects::default();
    objects.pods.insert(
        "brupop/reconciler".to_owned(),
        PodState {
            object: reconciler(1),
            ..PodState::default()
        },
    );
    objects
}

/// Takes all of them; the names of the rules that were violated.
fn violated(revisions: impl IntoIterator<Item = (&'static str, Json)>) -> Vec<&'static str> {
    let mut objects = objects();
    let numbered = (1..)
        .zip(revisions)
        .map(|(number, (key, object))| put(number, key, object));
    numbered
        .flat_map(|revision| rules(&objects.take(revision)))
        .collect()
}

/// A cluster that went through these changes this number of seconds ago; none of them violates a rule.
fn after(seconds: u64, revisions: impl IntoIterator<Item = (&'static str, Json)>) -> Objects {
    let mut objects = objects();
    for (number, (key, object)) in (1..).zip(revisions) {
        assert_eq!(objects.take(put(number, key, object)), []);
    }
    objects.now = Duration::from_secs(seconds);
    objects
}

fn rules(found: &[Violation]) -> Vec<&'static str> {
    found.iter().map(|violation| violation.rule).collect()
}

/// The slot of the node `n`.
fn one() -> Json {
    json!({"brs-n": {"uid": "u", "attempt": 1, "version": "2"}})
}

#[test]
fn an_update_as_it_should_be_violates_nothing() {
    let good = [
        free(),
        ("pods/shop/logs", pod("DaemonSet")),
        idle(),
        slots(&one()),
        (SHADOW, shadow("StagedAndPerformedUpdate", 1, None)),
        marked(CORDONED),
        marked(MARKED),
        granted(),
        free(),
        (SHADOW, shadow("Idle", 1, None)),
        slots(&json!({})),
    ];
    assert_eq!(violated(good), [""; 0]);
}

#[test]
fn an_update_may_begin_with_a_slot_of_a_ledger_that_was_deleted_meanwhile() {
    let begins = |attempt: u64, after_seconds: u64| {
        let mut objects = after(0, [idle(), slots(&one())]);
        let deleted = Revision {
            object: None,
            ..put(3, FLEET, Json::Null)
        };
        assert_eq!(objects.take(deleted), []);
        assert_eq!(objects.take(put(4, FLEET, slots(&json!({})).1)), []);
        objects.now = Duration::from_secs(after_seconds);
        rules(&objects.take(put(
            5,
            SHADOW,
            shadow("StagedAndPerformedUpdate", attempt, None),
        )))
    };
    assert_eq!(begins(1, 3), [""; 0]);
    assert_eq!(begins(2, 3), ["limit"], "that slot was for another attempt");
    assert_eq!(begins(1, 21), ["limit"], "no request takes so long");
}

#[test]
fn each_rule_finds_what_it_is_there_for() {
    let (one, slot) = (one(), one()["brs-n"].clone());
    let two = json!({"brs-n": slot, "brs-m": slot});
    let halted = json!([{"version": "2", "variant": "unknown", "haltedAt": "t"}]);
    let none = json!({});
    assert_eq!(violated([slots(&none), slots(&two)]), ["limit"]);
    assert_eq!(
        violated([
            slots(&none),
            (SHADOW, shadow("StagedAndPerformedUpdate", 1, None))
        ]),
        ["limit"]
    );
    assert_eq!(violated([slots(&none), marked(MARKED)]), ["limit"]);
    let halts = [
        ("minions/n", node(None, false)),
        (FLEET, ledger_with(&none, &halted)),
        (FLEET, ledger_with(&one, &halted)),
    ];
    assert_eq!(violated(halts), ["halt"]);
    let lost = [free(), idle(), slots(&one), slots(&none)];
    assert_eq!(violated(lost.clone()), ["slot"]);
    assert_eq!(
        violated(lost.into_iter().skip(1)),
        [""; 0],
        "the Node is gone"
    );
    let grants = |before: Option<(&'static str, Json)>, marker: Option<&str>| {
        let start = [slots(&one), free()];
        let end = [
            marked(CORDONED),
            ("minions/n", node(marker, true)),
            granted(),
        ];
        violated(start.into_iter().chain(before).chain(end))
    };
    assert_eq!(grants(None, Some(MARKED)), [""; 0]);
    assert_eq!(grants(None, None), ["drain"], "never drained");
    assert_eq!(
        grants(Some(("pods/shop/a", pod("ReplicaSet"))), Some(MARKED)),
        ["drain"],
        "a pod is there"
    );
    let start = || [slots(&one), free()];
    let at_once = start().into_iter().chain([marked(MARKED), granted()]);
    assert_eq!(
        violated(at_once),
        ["drain"],
        "pods may have come after the list"
    );
    let back =
        ["", MARKED, CORDONED].map(|marker| ("minions/n", node(Some(marker), !marker.is_empty())));
    let back = back.into_iter().chain([granted()]);
    assert_eq!(
        violated(start().into_iter().chain(back)),
        ["drain"],
        "it is no longer drained"
    );
    let mut other = shadow("RebootedIntoUpdate", 1, Some("b"));
    other["metadata"]["ownerReferences"] = json!([{"uid": "before"}]);
    let replaced = |seconds: u64| {
        after(seconds, start())
            .take(put(9, SHADOW, other.clone()))
            .len()
    };
    assert_eq!(
        (replaced(20), replaced(21)),
        (0, 1),
        "the Node was made again meanwhile, or long before"
    );
}

#[test]
fn a_term_never_falls() {
    let ledger = |term: u64| (FLEET, json!({"status": {"term": term, "slots": {}}}));
    assert_eq!(violated([ledger(2), ledger(3)]), [""; 0]);
    assert_eq!(violated([ledger(2), ledger(1)]), ["term"]);
}

#[test]
fn a_slot_is_given_back_once_nothing_of_its_attempt_is_left() {
    const KEPT: &str = r#"{"shadow_uid":"u","attempt":1,"kept_since":"t"}"#;
    let none = json!({});
    for (state, attempt, marker, expected) in [
        ("Idle", 1, None, vec![]),
        ("Idle", 1, Some(KEPT), vec![]),
        ("Idle", 1, Some(CORDONED), vec!["slot"]),
        ("Idle", 0, None, vec!["slot"]),
        ("MonitoringUpdate", 1, None, vec!["slot"]),
    ] {
        let history = [
            slots(&one()),
            ("minions/n", node(marker, false)),
            (SHADOW, shadow(state, attempt, None)),
            slots(&none),
        ];
        assert_eq!(violated(history), expected, "{state} {attempt} {marker:?}");
    }
}

#[test]
fn a_halt_holds_the_nodes_of_its_variant() {
    let mut member = node(None, false);
    member["status"] = json!({"nodeInfo": {"osImage": "Bottlerocket OS 1 (aws-k8s-1.36)"}});
    let halted = |variant: &str| json!([{"version": "2", "variant": variant, "haltedAt": "t"}]);
    for (versions, expected) in [
        (json!([]), vec![]),
        (halted("aws-k8s-1.36"), vec!["halt"]),
        (halted("metal-k8s-1.36"), vec![]),
    ] {
        let ledger = |slots: Json| (FLEET, ledger_with(&slots, &versions));
        let slot = json!({"brs-n": {"uid": "u", "attempt": 1, "version": "2"}});
        let history = [
            ("minions/n", member.clone()),
            ledger(json!({})),
            ledger(slot),
        ];
        assert_eq!(violated(history), expected, "{versions}");
    }
}

#[test]
fn a_status_is_told_from_the_rest() {
    let before = json!({"metadata": {"generation": 1}, "spec": {}, "status": {"message": "a"}});
    for (after, more) in [
        (
            json!({"metadata": {"generation": 1}, "spec": {}, "status": {"message": "b"}}),
            false,
        ),
        (
            json!({"metadata": {"generation": 2}, "spec": {"state": "Idle"}, "status": {}}),
            true,
        ),
        (
            json!({"metadata": {}, "spec": {}, "status": {"conditions": []}}),
            true,
        ),
    ] {
        assert_eq!(changes_more_than_status(&before, &after), more, "{after}");
    }
}

#[test]
fn the_limit_is_that_of_the_reconcilers_when_the_term_begins() {
    let slots = json!({"brs-n": {"uid": "u", "attempt": 1}, "brs-m": {"uid": "v", "attempt": 1}});
    let ledger = |term: u64, slots: &Json| json!({"status": {"term": term, "slots": slots}});
    let begins = (FLEET, ledger(2, &json!({})));
    let raised = ("pods/brupop/other", reconciler(2));
    let takes = (FLEET, ledger(2, &slots));
    assert_eq!(violated([begins.clone(), takes.clone()]), ["limit"]);
    assert_eq!(
        violated([raised.clone(), begins.clone(), takes.clone()]),
        [""; 0]
    );
    assert_eq!(
        violated([begins.clone(), raised.clone(), takes.clone()]),
        ["limit"],
        "nobody with that setting leads"
    );
    let lowered = ("pods/brupop/other", reconciler(1));
    let swapped = json!({"brs-n": {"uid": "u", "attempt": 1}, "brs-o": {"uid": "w", "attempt": 1}});
    let next_term = |slots: &Json| (FLEET, ledger(3, slots));
    let idle = ("g/bottlerocketshadows/ns/brs-o", shadow("Idle", 0, None));
    let swap = [
        raised,
        begins,
        takes,
        lowered,
        next_term(&slots),
        idle,
        next_term(&swapped),
    ];
    assert_eq!(
        violated(swap),
        ["limit"],
        "one is given back, and another one begins"
    );
}

#[test]
fn a_restore_forgets_what_came_later() {
    let none = json!({});
    let staged = shadow("StagedAndPerformedUpdate", 1, None);
    let before = [free(), idle(), slots(&one()), (SHADOW, staged.clone())];
    let mut objects = after(0, before);
    let then = objects.clone();
    objects.take(put(5, "minions/n", node(Some(CORDONED), true)));
    objects.take(put(6, "minions/n", node(Some(MARKED), true)));
    objects.take(put(7, SHADOW, shadow("RebootedIntoUpdate", 1, Some("b"))));
    objects.go_back(then);
    assert_eq!(objects.shadows["brs-n"], staged);
    assert_eq!(
        objects.grants.len(),
        1,
        "a host may have been rebooted for it"
    );
    let lost = || put(9, FLEET, ledger_with(&none, &none));
    assert_eq!(
        objects.clone().take(lost()),
        [],
        "a leader may go by what is forgotten"
    );
    objects.now = Duration::from_secs(30);
    assert_eq!(rules(&objects.take(lost())), ["slot"]);
}
