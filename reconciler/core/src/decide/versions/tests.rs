//! When a version was first seen, and who waits for it to ripen.

use super::*;
use crate::cluster::Cluster;
use crate::decide::assess::assess;
use crate::observe::pools_at;
use crate::rules::{Policy, USUAL};
use crate::tests::world::{self, NOW, at, known, observe_knowing, put_ledger, rows};
use crate::window::Until;
use brupop_api::names;
use jiff::SignedDuration;
use serde_json::{Value, json};

const VARIANT: &str = "aws-k8s-1.29";

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
    let seen = seen.as_object().into_iter().flatten();
    let versions: Vec<_> = seen
        .map(|(version, at)| json!({"version": version, "variant": VARIANT, "reportedAt": at}))
        .collect();
    put_ledger(
        &mut cluster,
        json!({}),
        json!({"slots": {}, "versions": versions}),
    );
    cluster
}

/// The versions whose time is noted now.
fn noted(named: &[&str], min_age: Option<&str>, seen: &Value) -> Vec<String> {
    let cluster = cluster(named, min_age, seen, &json!({}));
    let policy = Policy::default();
    let observed = observe_knowing(&cluster, &known(&cluster), &policy, NOW);
    let reported = reported(&observed.fleet, observed.views.iter()).into_iter();
    reported
        .map(|(version, variant)| {
            assert_eq!(variant, VARIANT);
            version.to_owned()
        })
        .collect()
}

#[test]
fn two_nodes_make_a_version_known() {
    let (old, later) = (
        json!({"1.0.0": ago(9)}),
        |hours| json!({"1.0.0": ago(9), "1.1.0": ago(hours)}),
    );
    for (what, named, seen, expected) in rows! {
        "both name it", &["1.1.0", "1.1.0"][..], &old => &["1.1.0"][..];
        "one of two does", &["1.1.0", "1.0.0"], &old => &[][..];
        "each names another", &["1.1.0", "1.2.0"], &old => &[][..];
        "there is only one node", &["1.1.0"], &old => &["1.1.0"][..];
        "what runs is named, too", &["1.1.0", "1.1.0"], &json!({}) => &["1.0.0", "1.1.0"][..];
        "it keeps its time", &["1.1.0", "1.1.0"], &later(1) => &[][..];
        "its time has not come", &["1.1.0", "1.1.0"], &later(-1) => &[][..];
        "nobody names it any more", &["1.0.0", "1.0.0"], &later(1) => &[][..];
    } {
        assert_eq!(noted(named, Some("72h"), seen), expected, "{what}");
    }
    assert_eq!(
        noted(&["1.1.0", "1.1.0"], None, &json!({})),
        [""; 0],
        "without pools nobody asks"
    );
}

#[test]
fn a_version_ripens() {
    let waits = |min_age: &str, seen: &Value, version: &str| {
        let cluster = cluster(&[], Some(min_age), seen, &json!({}));
        let known = known(&cluster);
        let pools = pools_at(&cluster, &known, &USUAL, at(NOW));
        (pools.all[0].ripens((version, VARIANT)), pools.clock.next)
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
            assess(&observed.fleet, &observed.views[0]).reason.as_str(),
            reason,
            "{node}"
        );
    }
}
