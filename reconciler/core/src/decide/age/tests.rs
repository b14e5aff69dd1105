//! When a version was first seen, and who waits for it to ripen.

use super::*;
use crate::cluster::Cluster;
use crate::decide;
use crate::observe::pools_at;
use crate::policy::{Policy, USUAL};
use crate::tests::world::{self, NOW, at, known, observe_knowing, put_ledger};
use crate::window::Until;
use brupop_api::names;
use jiff::SignedDuration;
use serde_json::{Value, json};

fn ago(hours: i64) -> String {
    (at(NOW) - SignedDuration::from_hours(hours)).to_string()
}

/// Nodes that run 1.0.0 and name these versions, in a pool with this least age, if there is one.
fn cluster(named: &[&str], min_age: Option<&str>, seen: &Value, more: &Value) -> Cluster {
    let image =
        json!({"status": {"nodeInfo": {"osImage": "Bottlerocket OS 1.0.0 (aws-k8s-1.29)"}}});
    let node = world::with(image, more);
    let status = |version: &str| json!({"current_version": "1.0.0", "target_version": version, "current_state": "Idle", "boot_id": "boot-1"});
    let hosts: Vec<_> = (0..named.len())
        .map(|nth| (format!("n{nth}"), format!("brs-n{nth}")))
        .collect();
    let shadows = hosts.iter().zip(named);
    let mut cluster = world::cluster(
        hosts.iter().map(|(name, _)| (name.as_str(), node.clone())),
        shadows
            .map(|((_, name), version)| (name.as_str(), json!({"state": "Idle"}), status(version))),
    );
    let pool = min_age.map(|min_age| world::pool("web", json!({"versions": {"minAge": min_age}})));
    cluster.replace(pool);
    put_ledger(&mut cluster, json!({}), json!({"slots": {}, "seen": seen}));
    cluster
}

/// What is noted.
fn noted(named: &[&str], min_age: Option<&str>, seen: &Value) -> Vec<(String, Option<String>)> {
    let cluster = cluster(named, min_age, seen, &json!({}));
    let policy = Policy::default();
    let observed = observe_knowing(&cluster, &known(&cluster), &policy, NOW);
    let notes = notes(&observed.fleet, &observed.views).into_iter();
    notes
        .map(|(version, at)| (version.to_owned(), at.map(str::to_owned)))
        .collect()
}

#[test]
fn two_nodes_make_a_version_known() {
    let now = |versions: &[&str]| -> Vec<_> {
        versions
            .iter()
            .map(|version| ((*version).to_owned(), Some(NOW.to_owned())))
            .collect()
    };
    let (old, later) = (
        json!({"1.0.0": ago(9)}),
        |hours| json!({"1.0.0": ago(9), "1.1.0": ago(hours)}),
    );
    for (what, named, seen, expected) in [
        (
            "both name it",
            &["1.1.0", "1.1.0"][..],
            &old,
            now(&["1.1.0"]),
        ),
        ("one of two does", &["1.1.0", "1.0.0"], &old, now(&[])),
        ("each names another", &["1.1.0", "1.2.0"], &old, now(&[])),
        ("there is only one node", &["1.1.0"], &old, now(&["1.1.0"])),
        (
            "what runs is named, too",
            &["1.1.0", "1.1.0"],
            &json!({}),
            now(&["1.0.0", "1.1.0"]),
        ),
        (
            "it keeps its time",
            &["1.1.0", "1.1.0"],
            &later(1),
            now(&[]),
        ),
        (
            "its time has not come",
            &["1.1.0", "1.1.0"],
            &later(-1),
            now(&[]),
        ),
        (
            "nobody names it any more",
            &["1.0.0", "1.0.0"],
            &later(1),
            now(&[]),
        ),
    ] {
        assert_eq!(noted(named, Some("72h"), seen), expected, "{what}");
    }
    assert_eq!(
        noted(&["1.1.0", "1.1.0"], None, &json!({})),
        [],
        "without pools nobody asks"
    );
}

#[test]
fn the_oldest_that_nobody_names_makes_room() {
    let full = |named: &str| {
        let mut seen: BTreeMap<String, String> = (2..SEEN_MAX)
            .map(|nth| (format!("0.{nth}.0"), ago(i64::try_from(nth).unwrap())))
            .collect();
        seen.insert("1.0.0".to_owned(), ago(1000));
        seen.insert(named.to_owned(), ago(900));
        json!(seen)
    };
    let oldest = (format!("0.{}.0", SEEN_MAX - 1), None);
    let new = ("2.0.0".to_owned(), Some(NOW.to_owned()));
    assert_eq!(
        noted(&["2.0.0", "2.0.0", "1.1.0"], Some("72h"), &full("1.1.0")),
        [oldest, new]
    );
    let all: Vec<String> = (0..SEEN_MAX).map(|nth| format!("3.{nth}.0")).collect();
    let mut named: Vec<&str> = all.iter().map(String::as_str).collect();
    named.extend(["2.0.0", "2.0.0"]);
    let seen: BTreeMap<&String, String> = all.iter().map(|version| (version, ago(1))).collect();
    assert_eq!(
        noted(&named, Some("72h"), &json!(seen)),
        [],
        "all are named, so there is no room"
    );
}

/// Leaders write the fraction of a second if there is one. As texts, 00.5Z comes before 00Z.
#[test]
fn times_are_compared_as_times() {
    let mut seen: BTreeMap<String, String> = (3..SEEN_MAX)
        .map(|nth| (format!("0.{nth}.0"), ago(1)))
        .collect();
    seen.insert("1.0.0".to_owned(), ago(1));
    seen.insert("0.0.1".to_owned(), "2026-10-01T00:00:00Z".to_owned());
    seen.insert("0.0.0".to_owned(), "2026-10-01T00:00:00.5Z".to_owned());
    let (oldest, new) = (
        ("0.0.1".to_owned(), None),
        ("2.0.0".to_owned(), Some(NOW.to_owned())),
    );
    assert_eq!(
        noted(&["2.0.0", "2.0.0", "0.3.0"], Some("72h"), &json!(seen)),
        [oldest, new]
    );
}

#[test]
fn a_version_ripens() {
    let waits = |min_age: &str, seen: &Value, version: &str| {
        let cluster = cluster(&[], Some(min_age), seen, &json!({}));
        let known = known(&cluster);
        let pools = pools_at(&cluster, &known, &USUAL, at(NOW));
        (pools.all[0].ripens(version), pools.next)
    };
    let young = json!({"1.1.0": ago(71)});
    let ripe = at(NOW) + SignedDuration::from_hours(1);
    assert_eq!(
        waits("72h", &young, "1.1.0"),
        (Some(Until::At(ripe)), Some(ripe)),
        "it wakes the pass"
    );
    assert_eq!(waits("71h", &young, "1.1.0"), (None, None));
    assert_eq!(waits("72h", &young, "1.2.0").0, Some(Until::Unknown));
    assert_eq!(waits("0s", &json!({}), "1.2.0"), (None, None));
    assert_eq!(
        waits("1h", &json!({"1.1.0": "soon"}), "1.1.0").0,
        Some(Until::Unknown)
    );
}

#[test]
fn a_young_version_waits_unless_somebody_asks_for_it() {
    let asked_for = world::annotated(names::UPDATE_NOW_ANNOTATION, true);
    for (node, reason) in [(json!({}), "VersionTooYoung"), (asked_for, "LimitReached")] {
        let seen = json!({"1.0.0": ago(99), "1.1.0": ago(1)});
        let cluster = cluster(&["1.1.0"], Some("72h"), &seen, &node);
        let policy = Policy::default();
        let observed = observe_knowing(&cluster, &known(&cluster), &policy, NOW);
        assert_eq!(
            decide::node(&observed.fleet, &observed.views[0])
                .reason
                .as_str(),
            reason,
            "{node}"
        );
    }
}
