//! A Node that cannot be read still counts for the others: as one of the control plane, of its pool and of its zone.

use super::*;
use crate::cluster::Watched as _;

/// Returns what makes a Node unreadable; its kubelet, or who may annotate it, can write that.
fn unreadable() -> [(&'static str, Value); 3] {
    [
        (
            "an OS image of 300 bytes",
            json!({"status": {"nodeInfo": {"osImage": "x".repeat(300)}}}),
        ),
        (
            "20 kB",
            annotated(names::PAUSE_ANNOTATION, "x".repeat(20_000)),
        ),
        (
            "taints",
            json!({"spec": {"taints": [{"key": "x".repeat(70_000), "effect": "NoSchedule"}]}}),
        ),
    ]
}

/// Whether `b` begins while `a` is out of service with this content.
fn begins(a: Value, b: Value, of_pool: Option<Value>) -> bool {
    let idle = json!({"current_state": "Idle", "current_version": "1.19.4", "target_version": "1.20.0",
        "boot_id": "boot-1"});
    let mut cluster = cluster(
        [("a", a), ("b", b)],
        [("brs-b", json!({"state": "Idle"}), idle)],
    );
    let versions = json!([{"version": "1.20.0", "variant": "aws-k8s-1.29", "succeeded": 3}]);
    put_ledger(&mut cluster, json!({}), json!({"versions": versions}));
    if let Some(spec) = of_pool {
        pool("db", spec).put(&mut cluster);
    }
    know_pods(&mut cluster, &["brs-b"]);
    let default_pool = Rules::of_settings(Limit::Unlimited, vec![], StepDurations::default());
    let policy = Policy {
        default_pool,
        ..policy()
    };
    let observed = observe_at(&cluster, &policy, NOW);
    let taken = observed.decide().taken;
    taken
        .iter()
        .any(|&at| observed.views[at].shadow_name == "brs-b")
}

#[test]
fn it_is_still_one_of_the_control_plane() {
    let member = labels(json!({names::CONTROL_PLANE_LABEL: ""}));
    assert!(begins(member.clone(), member.clone(), None));
    let cordoned = json!({"spec": {"unschedulable": true}});
    let left_out = opted("none");
    for (what, more) in unreadable() {
        let away = with(with(member.clone(), &more), &cordoned);
        assert!(!begins(away.clone(), member.clone(), None), "{what}");
        assert!(
            !begins(with(away, &left_out), member.clone(), None),
            "{what}, not opted in"
        );
        assert!(
            begins(with(json!({}), &more), member.clone(), None),
            "{what}, on a worker"
        );
    }
}

#[test]
fn it_is_still_in_its_pool_and_zone() {
    let zone = |zone: &str| labels(json!({"topology.kubernetes.io/zone": zone, "tier": "db"}));
    let pool = json!({"nodeSelector": {"matchLabels": {"tier": "db"}}, "maxUnavailable": 3,
        "topology": {"mode": "OneAtATime"}});
    let begins = |a: Value, of_b: &str| begins(a, zone(of_b), Some(pool.clone()));
    let not_ready = ready("False", None);
    // By us, as far as anybody knows.
    let cordoned = json!({"spec": {"unschedulable": true}});
    for (what, more) in unreadable() {
        let a = with(zone("y"), &more);
        assert!(begins(a.clone(), "x"), "{what}, in service");
        for away in [&not_ready, &cordoned] {
            let a = with(a.clone(), away);
            assert_eq!(
                ["x", "y", "z"].map(|zone| begins(a.clone(), zone)),
                [false, true, false],
                "{what}"
            );
        }
    }
}
