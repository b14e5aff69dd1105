//! Each field of a pool changes while an update runs: before the cordon it counts, and after it the update is finished.

use brupop_api::{Marker, names};
use serde_json::{Value, json};

use super::world::{NEW, OLD};
use crate::rules::Policy;
use crate::tests::world::{
    NOW, annotated, cluster, know_pods, known, labels, observe_knowing, pool, put_ledger, rows,
    with,
};

/// Returns what becomes of an update whose image is staged, with these pools and this fleet; cordoned already, or not.
fn reason(pools: &[(&str, Value)], fleet_spec: &Value, cordoned: bool) -> String {
    let then = || Some(NOW.to_owned());
    let marker = Marker {
        shadow_uid: "uid-brs-n".to_owned(),
        attempt: 1,
        term: 4,
        cordoned_at: then(),
        drain_started_at: then(),
        ..Marker::default()
    };
    let mut node = with(
        json!({"spec": {"unschedulable": cordoned}}),
        &labels(json!({"tier": "web"})),
    );
    if cordoned {
        node = with(node, &annotated(names::MARKER_ANNOTATION, marker.render()));
    }
    let spec = json!({"state": "StagedAndPerformedUpdate", "version": NEW, "attempt": 1,
        "baseline_boot_id": "boot-1", "state_transition_timestamp": NOW});
    let status = json!({"current_version": OLD, "target_version": NEW, "current_state": "StagedAndPerformedUpdate",
        "boot_id": "boot-1", "attempt": 1});
    let mut cluster = cluster([("n", node)], [("brs-n", spec, status)]);
    let slot =
        json!({"uid": "uid-brs-n", "attempt": 1, "version": NEW, "pool": "web", "since": NOW});
    let record =
        json!({"version": NEW, "variant": "aws-k8s-1.29", "reportedAt": "2026-11-21T03:00:00Z"});
    let status = json!({"slots": {"brs-n": slot}, "versions": [record]});
    put_ledger(&mut cluster, fleet_spec.clone(), status);
    cluster.replace(pools.iter().map(|(name, spec)| pool(name, spec.clone())));
    // Its pods are known, and none is left.
    know_pods(&mut cluster, &["brs-n"]);
    let (known, policy) = (known(&cluster), Policy::default());
    let observed = observe_knowing(&cluster, &known, &policy, NOW);
    format!("{:?}", observed.decide().nodes[0].reason)
}

fn web(change: &Value) -> Value {
    with(
        json!({"nodeSelector": {"matchLabels": {"tier": "web"}}}),
        change,
    )
}

#[test]
fn each_change_of_a_pool_is_heeded_until_the_cordon() {
    let freeze =
        json!([{"name": "x", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"}]);
    let (closed, goes_on) = ("Aborting(PoolClosed)", "Cordoning");
    for (change, expected) in rows! {
        json!({}) => goes_on;
        json!({"paused": true}) => closed;
        json!({"freezes": freeze}) => closed;
        json!({"windows": [{"schedule": "0 12 * * *", "duration": "1h"}]}) => closed;
        json!({"windows": [{"schedule": "0 3 * * *", "duration": "2h"}]}) => goes_on;
        json!({"versions": {"below": NEW}}) => closed;
        json!({"versions": {"atLeast": "9.0.0"}}) => closed;
        json!({"versions": {"minAge": "72h"}}) => closed;
        json!({"versions": {"minAge": "1h"}}) => goes_on;
        json!({"dependsOn": [{"pool": "canary"}]}) => closed;
        json!({"windows": [{"schedule": "not at all", "duration": "1h"}]}) => closed;
        json!({"maxUnavailable": "1%"}) => goes_on;
        json!({"topology": {"mode": "OneAtATime"}}) => goes_on;
        json!({"drain": {"timeout": "1s"}}) => goes_on;
        json!({"drain": {"loadBalancerDelay": "1m"}}) => "LeavingLoadBalancers";
        json!({"verify": {"readyFor": "2h", "workloadsTimeout": "0s"}}) => goes_on;
        json!({"priority": 7}) => goes_on;
    } {
        let pools = [("web", web(&change))];
        assert_eq!(reason(&pools, &json!({}), false), expected, "{change}");
        assert_eq!(
            reason(&pools, &json!({}), true),
            "Draining",
            "cordoned, {change}"
        );
    }
}

#[test]
fn a_node_may_change_hands_in_mid_update() {
    let (other, all) = (
        json!({"nodeSelector": {"matchLabels": {"tier": "db"}}}),
        json!({}),
    );
    let paused = json!({"priority": 2, "paused": true});
    let (closed, goes_on) = ("Aborting(PoolClosed)", "Cordoning");
    for (what, pools, fleet, expected) in rows! {
        "no pool selects it any more", vec![("web", other)], json!({}) => goes_on;
        "two contend for it", vec![("a", all.clone()), ("web", web(&json!({})))], json!({}) => closed;
        "a higher pool owns it", vec![("a", paused), ("web", web(&json!({})))], json!({}) => closed;
        "the whole fleet is paused", vec![("web", web(&json!({})))], json!({"paused": true}) => closed;
        "the same, in the default pool", vec![], json!({"paused": true}) => closed;
        "its pool is gone, and another one owns it", vec![("a", all)], json!({}) => goes_on;
    } {
        assert_eq!(reason(&pools, &fleet, false), expected, "{what}");
        assert_eq!(reason(&pools, &fleet, true), "Draining", "cordoned, {what}");
    }
}
