//! When a version was first seen, and who waits for it to ripen.

use super::*;
use crate::cluster::{Cluster, Watched as _};
use crate::decide::Reason;
use crate::known::Known;
use crate::observe::{Leader, Now, observe, pools_at};
use crate::policy::{Policy, USUAL};
use crate::window::Until;
use brupop_api::Item;
use jiff::SignedDuration;
use serde_json::{Value, json};

const NOW: &str = "2026-11-21T04:00:00Z";

fn time() -> Timestamp {
    NOW.parse().unwrap()
}

fn ago(hours: i64) -> String {
    (time() - SignedDuration::from_hours(hours)).to_string()
}

/// Nodes that run 1.0.0 and name these versions, with pools and a ledger.
fn cluster(named: &[&str], pools: &[Value], seen: &Value) -> Cluster {
    let mut cluster = Cluster::default();
    for (nth, version) in named.iter().enumerate() {
        let name = format!("n{nth}");
        let node: crate::objects::WatchedNode = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "labels": {
                brupop_api::names::UPDATER_INTERFACE_LABEL: brupop_api::names::UPDATER_INTERFACE_VERSION}},
            "status": {"nodeInfo": {"bootID": "b", "osImage": "Bottlerocket OS 1.0.0 (aws-k8s-1.29)"},
                "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        node.put(&mut cluster);
        let shadow: Item<brupop_api::BottlerocketShadow> = serde_json::from_value(json!({
            "metadata": {"name": format!("brs-{name}"), "uid": name, "generation": 1}, "spec": {"state": "Idle"},
            "status": {"current_version": "1.0.0", "target_version": version, "current_state": "Idle", "boot_id": "b"},
        }))
        .unwrap();
        shadow.put(&mut cluster);
    }
    let pools =
        pools.iter().map(|pool| serde_json::from_value::<Item<crate::pool::Pool>>(pool.clone()).unwrap());
    cluster.replace(pools);
    let ledger = json!({"metadata": {}, "spec": {}, "status": {"term": 4, "slots": {}, "seen": seen}});
    cluster.fleet = Some(std::sync::Arc::new(serde_json::from_value(ledger).unwrap()));
    cluster
}

fn known(cluster: &Cluster) -> Known {
    Known::of(cluster, time(), &Policy::default())
}

fn pool(min_age: &str) -> Value {
    json!({"metadata": {"name": "web", "uid": "web", "generation": 1},
        "spec": {"nodeSelector": {}, "versions": {"minAge": min_age}}})
}

/// What is noted.
fn noted(named: &[&str], pools: &[Value], seen: &Value) -> Vec<(String, Option<String>)> {
    let cluster = cluster(named, pools, seen);
    let known = known(&cluster);
    let pools = pools_at(&cluster, &known, &USUAL, time());
    let leader = Leader { term: 4, enforced: true, alone: true, own_node: None };
    let policy = Policy::default();
    let observed = observe(&cluster, &known, &pools, &policy, &leader, Now { time: time(), text: NOW });
    let notes = notes(&observed.fleet, &observed.views).into_iter();
    notes.map(|(version, at)| (version.to_owned(), at.map(str::to_owned))).collect()
}

#[test]
fn two_nodes_make_a_version_known() {
    let now = |versions: &[&str]| -> Vec<_> {
        versions.iter().map(|version| ((*version).to_owned(), Some(NOW.to_owned()))).collect()
    };
    let old = json!({"1.0.0": ago(9)});
    let pools = [pool("72h")];
    for (what, named, seen, expected) in [
        ("both name it", &["1.1.0", "1.1.0"][..], &old, now(&["1.1.0"])),
        ("one of two does", &["1.1.0", "1.0.0"], &old, now(&[])),
        ("each names another", &["1.1.0", "1.2.0"], &old, now(&[])),
        ("there is only one node", &["1.1.0"], &old, now(&["1.1.0"])),
        ("what runs is named, too", &["1.1.0", "1.1.0"], &json!({}), now(&["1.0.0", "1.1.0"])),
        ("it keeps its time", &["1.1.0", "1.1.0"], &json!({"1.0.0": ago(9), "1.1.0": ago(1)}), now(&[])),
        (
            "its time has not come",
            &["1.1.0", "1.1.0"],
            &json!({"1.0.0": ago(9), "1.1.0": ago(-1)}),
            now(&["1.1.0"]),
        ),
        (
            "nobody names it any more",
            &["1.0.0", "1.0.0"],
            &json!({"1.0.0": ago(9), "1.1.0": ago(1)}),
            now(&[]),
        ),
    ] {
        assert_eq!(noted(named, &pools, seen), expected, "{what}");
    }
    assert_eq!(noted(&["1.1.0", "1.1.0"], &[], &json!({})), [], "without pools nobody asks");
}

#[test]
fn the_oldest_that_nobody_names_makes_room() {
    let full = |named: &str| {
        let mut seen: BTreeMap<String, String> =
            (2..SEEN_MAX).map(|nth| (format!("0.{nth}.0"), ago(i64::try_from(nth).unwrap()))).collect();
        seen.insert("1.0.0".to_owned(), ago(1000));
        seen.insert(named.to_owned(), ago(900));
        json!(seen)
    };
    let oldest = (format!("0.{}.0", SEEN_MAX - 1), None);
    let new = ("2.0.0".to_owned(), Some(NOW.to_owned()));
    assert_eq!(noted(&["2.0.0", "2.0.0", "1.1.0"], &[pool("72h")], &full("1.1.0")), [oldest, new]);
    let all: Vec<String> = (0..SEEN_MAX).map(|nth| format!("3.{nth}.0")).collect();
    let mut named: Vec<&str> = all.iter().map(String::as_str).collect();
    named.extend(["2.0.0", "2.0.0"]);
    let seen: BTreeMap<&String, String> = all.iter().map(|version| (version, ago(1))).collect();
    assert_eq!(noted(&named, &[pool("72h")], &json!(seen)), [], "all are named, so there is no room");
}

/// Leaders write the fraction of a second if there is one. As texts, 00.5Z comes before 00Z.
#[test]
fn times_are_compared_as_times() {
    let mut seen: BTreeMap<String, String> =
        (3..SEEN_MAX).map(|nth| (format!("0.{nth}.0"), ago(1))).collect();
    seen.insert("1.0.0".to_owned(), ago(1));
    seen.insert("0.0.1".to_owned(), "2026-10-01T00:00:00Z".to_owned());
    seen.insert("0.0.0".to_owned(), "2026-10-01T00:00:00.5Z".to_owned());
    let (oldest, new) = (("0.0.1".to_owned(), None), ("2.0.0".to_owned(), Some(NOW.to_owned())));
    assert_eq!(noted(&["2.0.0", "2.0.0", "0.3.0"], &[pool("72h")], &json!(seen)), [oldest, new]);
    let a_little_later = NOW.replace('Z', ".5Z");
    let seen = json!({"1.0.0": ago(9), "1.1.0": a_little_later});
    assert_eq!(noted(&["1.1.0", "1.1.0"], &[pool("72h")], &seen), [], "clocks differ by as much");
}

#[test]
fn a_version_ripens() {
    let waits = |min_age: &str, seen: &Value, version: &str| {
        let cluster = cluster(&[], &[pool(min_age)], seen);
        let known = known(&cluster);
        let pools = pools_at(&cluster, &known, &USUAL, time());
        (pools.all[0].ripens(version), pools.next)
    };
    let young = json!({"1.1.0": ago(71)});
    let at = time() + SignedDuration::from_hours(1);
    assert_eq!(waits("72h", &young, "1.1.0"), (Some(Until::At(at)), Some(at)), "it wakes the pass");
    assert_eq!(waits("71h", &young, "1.1.0"), (None, None));
    assert_eq!(waits("72h", &young, "1.2.0").0, Some(Until::Unknown));
    assert_eq!(waits("0s", &json!({}), "1.2.0"), (None, None));
    assert_eq!(waits("1h", &json!({"1.1.0": "soon"}), "1.1.0").0, Some(Until::Unknown));
}

#[test]
fn a_young_version_waits_unless_somebody_asks_for_it() {
    let reason = |annotations: Value| {
        let seen = json!({"1.0.0": ago(99), "1.1.0": ago(1)});
        let mut cluster = cluster(&["1.1.0"], &[pool("72h")], &seen);
        let node: crate::objects::WatchedNode = {
            let mut node = json!({
                "metadata": {"name": "n0", "uid": "n0", "labels": {
                    brupop_api::names::UPDATER_INTERFACE_LABEL: brupop_api::names::UPDATER_INTERFACE_VERSION}},
                "status": {"nodeInfo": {"bootID": "b", "osImage": "Bottlerocket OS 1.0.0 (aws-k8s-1.29)"},
                    "conditions": [{"type": "Ready", "status": "True"}]},
            });
            node["metadata"]["annotations"] = annotations;
            serde_json::from_value(node).unwrap()
        };
        node.put(&mut cluster);
        let known = known(&cluster);
        let pools = pools_at(&cluster, &known, &USUAL, time());
        let leader = Leader { term: 4, enforced: true, alone: true, own_node: None };
        let policy = Policy::default();
        let mut observed =
            observe(&cluster, &known, &pools, &policy, &leader, Now { time: time(), text: NOW });
        observed.views[0].node.as_mut().unwrap().agent_ready = true;
        crate::decide::node(&observed.fleet, &observed.views[0]).reason.as_str()
    };
    assert_eq!(reason(json!({})), "VersionTooYoung");
    assert_eq!(
        reason(json!({brupop_api::names::UPDATE_NOW_ANNOTATION: "true"})),
        Reason::LimitReached.as_str()
    );
}
