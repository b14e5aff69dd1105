//! The status of a pool, from the objects of its nodes.

use super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::decide;
use crate::known::Known;
use crate::objects::{AgentPod, Readiness, WatchedNode};
use crate::observe::{Leader, Now, observe};
use crate::policy::{Policy, USUAL};
use crate::pool::Pool;
use brupop_api::{Item, names};
use serde_json::json;
use std::sync::Arc;

const NOW: &str = "2026-11-21T04:00:00Z";

/// A node of the pool that runs this version and wants that one; `None` = it has not reported.
fn join(cluster: &mut Cluster, name: &str, runs: &str, wants: Option<&str>, paused: bool) {
    let annotations = json!({names::PAUSE_ANNOTATION: paused.to_string()});
    let node: WatchedNode = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "annotations": annotations,
            "labels": {names::UPDATER_INTERFACE_LABEL: names::UPDATER_INTERFACE_VERSION}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "b", "osImage": format!("Bottlerocket OS {runs} (aws-k8s-1.29)")}},
    }))
    .unwrap();
    node.put(cluster);
    let status = wants.map(|wants| {
        json!({"current_version": runs, "target_version": (wants != runs).then_some(wants), "current_state": "Idle",
            "boot_id": "b"})
    });
    let shadow = json!({"metadata": {"name": format!("brs-{name}"), "uid": name, "generation": 1}, "spec": {"state": "Idle"}, "status": status});
    let shadow: Item<brupop_api::BottlerocketShadow> = serde_json::from_value(shadow).unwrap();
    shadow.put(cluster);
    let agent = AgentPod { node: name.to_owned(), readiness: Some(Readiness { ready: true, since: None }) };
    cluster.entry(&names::shadow_name(name)).agents.insert("agent".to_owned(), agent);
}

fn pool(spec: &Value, status: &Value) -> Item<Pool> {
    serde_json::from_value(
        json!({"metadata": {"name": "web", "uid": "u", "generation": 3, "resourceVersion": "7"},
        "spec": spec, "status": status}),
    )
    .unwrap()
}

/// The status that the only pool should have.
fn status(cluster: &mut Cluster) -> DesiredPoolStatus {
    status_with(cluster, json!({}))
}

/// The same, with this ledger.
fn status_with(cluster: &mut Cluster, ledger: Value) -> DesiredPoolStatus {
    status_of(cluster, ledger, |_| None)
}

/// The same, if these queries have no answer.
fn status_of(
    cluster: &mut Cluster,
    mut ledger: Value,
    unanswered: impl Fn(&GateQuery) -> Option<NoAnswer<'static>>,
) -> DesiredPoolStatus {
    ledger["term"] = json!(4);
    let ledger = json!({"metadata": {"name": "fleet"}, "spec": {}, "status": ledger});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
    let (time, policy) = (NOW.parse().unwrap(), Policy::default());
    let known = Known::of(cluster, time, &Policy::default());
    let pools = crate::observe::pools_at(cluster, &known, &USUAL, time);
    let leader = Leader { term: 4, enforced: true, alone: true, own_node: None };
    let observed = observe(cluster, &known, &pools, &policy, &leader, Now { time, text: NOW });
    let decided = decide::fleet(&observed);
    super::pools(&observed, &decided.nodes, "ns", unanswered).pop().unwrap()
}

/// Status and reason of each condition.
fn words(status: &DesiredPoolStatus) -> Vec<String> {
    status.conditions.iter().map(|it| format!("{}={:?}/{}", it.type_, it.status, it.reason)).collect()
}

#[test]
fn a_pool_counts_its_nodes() {
    let mut cluster = Cluster::default();
    pool(&json!({"nodeSelector": {}, "maxUnavailable": "50%"}), &json!({})).put(&mut cluster);
    join(&mut cluster, "a", "1.20.0", Some("1.20.0"), false);
    join(&mut cluster, "b", "1.19.4", Some("1.20.0"), false);
    join(&mut cluster, "c", "1.19.4", Some("1.20.0"), true);
    join(&mut cluster, "d", "1.19.4", None, false);
    let seen = status(&mut cluster);
    let counts = PoolCounts {
        nodes: 4,
        updated_nodes: 1,
        updating_nodes: 0,
        pending_nodes: 1,
        blocked_nodes: 1,
        unavailable_nodes: 0,
        unavailable_limit: 2,
    };
    assert_eq!(seen.counts, counts);
    let versions: Vec<_> = seen.versions.iter().map(|it| (it.version.as_str(), it.nodes)).collect();
    assert_eq!(versions, [("1.19.4", 3), ("1.20.0", 1)]);
    assert_eq!(
        words(&seen),
        [
            "Accepted=True/Understood",
            "Progressing=False/CheckingPods",
            "Updated=False/UpdatesPending",
            "Halted=False/NotHalted",
            "Ready=True/InForce",
            "Stalled=False/NotStalled"
        ]
    );
}

#[test]
fn conditions_say_where_a_pool_stands() {
    let spec = json!({"nodeSelector": {}});
    let of = |spec: &Value, nodes: &[(&str, Option<&str>)]| {
        let mut cluster = Cluster::default();
        pool(spec, &json!({})).put(&mut cluster);
        for (number, (runs, wants)) in nodes.iter().enumerate() {
            join(&mut cluster, &format!("n{number}"), runs, *wants, false);
        }
        words(&status(&mut cluster))[..3].join(" ")
    };
    let (old, new) = ("1.19.4", Some("1.20.0"));
    for (what, spec, nodes, expected) in [
        (
            "no nodes",
            &spec,
            &[][..],
            "Accepted=True/Understood Progressing=False/NoNodes Updated=Unknown/NoNodes",
        ),
        (
            "up to date",
            &spec,
            &[(old, Some(old))],
            "Accepted=True/Understood Progressing=False/NoUpdate Updated=True/NoUpdate",
        ),
        (
            "one has not reported",
            &spec,
            &[(old, Some(old)), (old, None)],
            "Accepted=True/Understood Progressing=False/NoUpdate Updated=Unknown/NotReported",
        ),
        (
            "paused",
            &json!({"nodeSelector": {}, "paused": true}),
            &[(old, new)],
            "Accepted=True/Understood Progressing=False/PoolPaused Updated=False/UpdatesPending",
        ),
        (
            "not understood",
            &json!({"nodeSelector": {}, "maxUnavailable": 0}),
            &[(old, new)],
            "Accepted=False/PoolInvalid Progressing=False/PoolInvalid Updated=False/UpdatesPending",
        ),
        (
            "not even read",
            &json!({"nodeSelector": 3}),
            &[(old, new)],
            "Accepted=False/PoolInvalid Progressing=False/PoolInvalid Updated=False/UpdatesPending",
        ),
    ] {
        assert_eq!(of(spec, nodes), expected, "{what}");
    }
}

/// A release is no change of a pool, so waiting for the pool is not waiting for the release.
#[test]
fn a_pool_is_ready_while_it_waits_and_stalled_once_a_person_has_to_act() {
    const READY: &str = "Ready=True/InForce Stalled=False/NotStalled";
    let (old, new) = ("1.19.4", Some("1.20.0"));
    let with = |more: Value| {
        let mut spec = json!({"nodeSelector": {}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let halted = json!({"1.20.0": {"halted": {"at": NOW, "reason": "n (FellBack)"}}});
    let in_pool = json!({"web/1.20.0": {"halted": {"at": NOW, "reason": "n (WorkloadsUnavailable)"}}});
    let none = json!({});
    for (what, spec, wants, ledger, expected) in [
        ("no nodes", with(json!({})), None, &none, READY),
        ("up to date", with(json!({})), Some(old), &none, READY),
        ("next", with(json!({})), new, &none, READY),
        (
            "in mid-update",
            with(json!({})),
            new,
            &json!({"slots": {"brs-n": {"uid": "n", "attempt": 1}}}),
            READY,
        ),
        ("paused", with(json!({"paused": true})), new, &none, READY),
        (
            "outside its window",
            with(json!({"windows": [{"schedule": "0 5 * * *", "duration": "1h"}]})),
            new,
            &none,
            READY,
        ),
        ("halted for others only", with(json!({})), Some(old), &json!({"versions": halted}), READY),
        (
            "halted in the fleet",
            with(json!({})),
            new,
            &json!({"versions": halted}),
            "Ready=False/VersionHalted Stalled=True/VersionHalted",
        ),
        (
            "halted in the pool",
            with(json!({})),
            new,
            &json!({"poolVersions": in_pool}),
            "Ready=False/VersionHaltedInPool Stalled=True/VersionHaltedInPool",
        ),
        (
            "not understood",
            with(json!({"maxUnavailable": 0})),
            new,
            &none,
            "Ready=False/PoolInvalid Stalled=True/PoolInvalid",
        ),
        (
            "not even read",
            json!({"nodeSelector": 3}),
            None,
            &json!({"poolVersions": in_pool}),
            "Ready=False/PoolInvalid Stalled=True/PoolInvalid",
        ),
    ] {
        let mut cluster = Cluster::default();
        pool(&spec, &json!({})).put(&mut cluster);
        if wants.is_some() {
            join(&mut cluster, "n", old, wants, false);
        }
        let status = status_with(&mut cluster, ledger.clone());
        assert_eq!(words(&status)[4..].join(" "), expected, "{what}");
        let [.., halted, ready, stalled] = &status.conditions;
        let why = [&status.conditions[0], halted].map(|it| &it.message);
        assert!(stalled.status == ConditionStatus::False || why.contains(&&stalled.message), "{what}");
        assert_eq!(
            ready.message == stalled.message,
            stalled.status == ConditionStatus::True,
            "{what}: {ready:?}"
        );
    }
}

/// What is applied once is not applied again, also for a pool that cannot be read.
#[test]
fn a_status_that_is_stored_is_not_written_again() {
    for spec in [
        json!({"nodeSelector": {}, "windows": [{"schedule": "0 5 * * *", "duration": "1h"}]}),
        json!({"nodeSelector": 3}),
    ] {
        let mut cluster = Cluster::default();
        pool(&spec, &json!({"nodes": "many"})).put(&mut cluster);
        join(&mut cluster, "a", "1.19.4", Some("1.20.0"), false);
        let wanted = status(&mut cluster);
        assert!(!wanted.is_stored_in(&cluster.pools["web"]), "{spec}");
        let patch = wanted.patch(&cluster.pools["web"], NOW);
        assert_eq!(patch["metadata"], json!({"name": "web", "uid": "u"}));
        assert_eq!(patch["status"]["observedGeneration"], json!(3));
        pool(&spec, &patch["status"]).put(&mut cluster);
        let again = status(&mut cluster);
        assert!(again.is_stored_in(&cluster.pools["web"]), "{spec}: {again:?}");
        let later = again.patch(&cluster.pools["web"], "2026-11-21T05:00:00Z");
        assert_eq!(later["status"], patch["status"], "times of conditions that have not changed stay");
    }
}

#[test]
fn a_pool_says_that_it_never_gets_to_a_version() {
    let progressing = |spec: &Value, seen: &Value| {
        let mut cluster = Cluster::default();
        pool(spec, &json!({})).put(&mut cluster);
        join(&mut cluster, "n", "1.19.4", Some("1.21.0"), false);
        let status = status_with(&mut cluster, json!({"seen": seen}));
        let condition = &status.conditions[1];
        (condition.reason, condition.message.clone())
    };
    let spec = |versions: Value| json!({"nodeSelector": {}, "versions": versions});
    let (young, now) = (spec(json!({"minAge": "72h"})), NOW);
    let (reason, message) =
        progressing(&young, &json!({"1.19.4": now, "1.20.0": now, "1.21.0": now, "1.22.0": now}));
    assert_eq!(reason, "Superseded");
    assert!(
        message.starts_with(
            "1.21.0 superseded 1.20.0 before its turn: this version is younger than the pool allows"
        ),
        "{message}"
    );
    for (what, spec, seen, expected) in [
        ("nothing is in between", &young, json!({"1.19.4": now, "1.21.0": now}), "VersionTooYoung"),
        (
            "what is in between is not allowed",
            &spec(json!({"minAge": "72h", "atLeast": "1.21.0"})),
            json!({"1.20.0": now}),
            "VersionTooYoung",
        ),
        ("it does not wait for its age", &spec(json!({})), json!({"1.20.0": now}), "CheckingPods"),
    ] {
        assert_eq!(progressing(spec, &seen).0, expected, "{what}");
    }
}

/// Nobody updates the node until a person has changed one of the pools.
#[test]
fn a_pool_says_at_once_that_there_is_none_that_it_comes_after() {
    let mut cluster = Cluster::default();
    pool(&json!({"nodeSelector": {}, "after": [{"pool": "nowhere"}]}), &json!({})).put(&mut cluster);
    join(&mut cluster, "a", "1.20.0", Some("1.20.0"), false);
    let stalled = |seen: &DesiredPoolStatus| {
        let of_type = |it: &&DesiredCondition| it.type_ == STALLED;
        seen.conditions.iter().find(of_type).map(|it| (it.reason, it.message.clone())).unwrap()
    };
    let (reason, message) = stalled(&status(&mut cluster));
    assert_eq!(reason, "WaitingForPool");
    assert_eq!(
        message,
        "the pool nowhere goes first (spec.after), and there is no BottlerocketPool of this name"
    );
    join(&mut cluster, "b", "1.19.4", Some("1.20.0"), false);
    let seen = status(&mut cluster);
    assert!(seen.conditions.iter().any(|it| it.type_ == PROGRESSING && it.message == message), "{seen:?}");
}

/// What is wrong with another pool holds this one, too, also if it is some pools away.
#[test]
fn a_pool_says_at_once_that_none_before_it_ever_begins() {
    let other = |name: &str, spec: Value| -> Item<Pool> {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
    };
    let after = |pool: &str| json!({"nodeSelector": {}, "priority": 1, "after": [{"pool": pool}]});
    for (a, b, why) in [
        (after("b"), json!({"nodeSelector": {}, "priority": 2}), None),
        (
            after("b"),
            after("nowhere"),
            Some("b goes first (spec.after), and never begins: the pool nowhere goes"),
        ),
        (
            after("b"),
            json!({"nodeSelector": {}, "priority": 2, "maxUnavailable": 0}),
            Some("b goes first (spec.after), and never begins: spec.maxUnavailable: write"),
        ),
        (
            after("b"),
            after("a"),
            Some("a goes first (spec.after), and never begins: spec.after: these pools wait"),
        ),
    ] {
        let mut cluster = Cluster::default();
        let web = json!({"nodeSelector": {"matchLabels": {"no": "node"}}, "after": [{"pool": "a"}]});
        pool(&web, &json!({})).put(&mut cluster);
        other("a", a).put(&mut cluster);
        other("b", b).put(&mut cluster);
        let seen = status(&mut cluster);
        let [accepted, progressing, .., stalled] = &seen.conditions;
        assert_eq!(accepted.status, ConditionStatus::True, "{seen:?}");
        match why {
            None => assert_eq!((stalled.reason, progressing.reason), ("NotStalled", "NoNodes")),
            Some(why) => {
                assert!(stalled.message.starts_with(&format!("the pool {why}")), "{}", stalled.message);
                assert_eq!((stalled.reason, &progressing.message), ("WaitingForPool", &stalled.message));
            }
        }
    }
}

/// Of a version that the first pool was done with before.
#[test]
fn a_pool_that_is_being_updated_is_not_stalled_by_the_one_before_it() {
    let mut cluster = Cluster::default();
    let pool_of = |name: &str, spec: Value| -> Item<Pool> {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
    };
    pool(&json!({"nodeSelector": {}, "priority": 2, "after": [{"pool": "a"}]}), &json!({})).put(&mut cluster);
    pool_of("a", json!({"nodeSelector": {"matchLabels": {"no": "node"}}, "after": [{"pool": "ghost"}]}))
        .put(&mut cluster);
    let stalled = |cluster: &mut Cluster, ledger: Value| words(&status_with(cluster, ledger))[5].clone();
    join(&mut cluster, "n", "1.20.0", None, false);
    assert_eq!(stalled(&mut cluster, json!({})), "Stalled=True/WaitingForPool");
    join(&mut cluster, "n", "1.19.4", Some("1.20.0"), false);
    assert_eq!(stalled(&mut cluster, json!({})), "Stalled=True/WaitingForPool");
    let slots = json!({"slots": {"brs-n": {"uid": "n", "attempt": 1}}});
    assert_eq!(stalled(&mut cluster, slots), "Stalled=False/NotStalled");
}

/// Long before there is an update that the gate would hold.
#[test]
fn a_pool_says_at_once_that_a_gate_has_no_answer() {
    let gate = |name: &str, query: &str| json!({"name": name, "type": "Prometheus", "prometheus": {"source": "main", "query": query}});
    let gates = [gate("well", "up == 0"), gate("broken", "up =")];
    let mut cluster = Cluster::default();
    pool(&json!({"nodeSelector": {}, "gates": gates}), &json!({})).put(&mut cluster);
    let asked = |query: &GateQuery| {
        (query.expression == "up =").then_some(NoAnswer::Failed("bad_data: 1:4: parse error"))
    };
    let seen = status_of(&mut cluster, json!({}), asked);
    let expected = "the gate broken (spec.gates) is closed, for its source main gives no answer: bad_data: 1:4: parse error";
    // `kubectl get brp` shows the reason of Progressing.
    for (type_, reason, message) in [
        ("Accepted", "Understood", "the pool is understood"),
        ("Progressing", "GateUnknown", expected),
        ("Ready", "GateUnknown", expected),
    ] {
        let of_type = seen.conditions.iter().find(|it| it.type_ == type_).unwrap();
        assert_eq!((of_type.reason, of_type.message.as_str()), (reason, message), "{type_}");
    }
    join(&mut cluster, "n", "1.19.4", Some("1.20.0"), false);
    let waits = status_of(&mut cluster, json!({}), asked);
    assert_eq!((waits.conditions[1].reason, waits.conditions[1].message.as_str()), ("GateUnknown", expected));
    // A source may come back by itself.
    assert_eq!(words(&seen)[4..], ["Ready=False/GateUnknown", "Stalled=False/NotStalled"]);
    assert_eq!(words(&status(&mut cluster))[4..], ["Ready=True/InForce", "Stalled=False/NotStalled"]);
    // A new leader does not know yet, and nor does anybody after a change of the gate.
    let not_asked = status_of(&mut cluster, json!({}), |_| Some(NoAnswer::NotAsked));
    assert_eq!(words(&not_asked)[4..], ["Ready=Unknown/GateUnknown", "Stalled=False/NotStalled"]);
}

#[test]
fn a_pool_that_contends_for_nodes_is_stalled() {
    let mut cluster = Cluster::default();
    let spec = json!({"nodeSelector": {}});
    pool(&spec, &json!({})).put(&mut cluster);
    let other: Item<Pool> = serde_json::from_value(
        json!({"metadata": {"name": "other", "uid": "o", "generation": 1, "resourceVersion": "8"}, "spec": spec}),
    )
    .unwrap();
    other.put(&mut cluster);
    join(&mut cluster, "n", "1.19.4", Some("1.20.0"), false);
    let words = words(&status(&mut cluster)).join(" ");
    assert!(words.contains("Stalled=True"), "{words}");
}
