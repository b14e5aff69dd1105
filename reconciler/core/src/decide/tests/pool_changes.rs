//! Each field of a pool changes while an update runs: before the cordon it is heeded, and after it the update is finished.

use std::sync::Arc;

use brupop_api::{BottlerocketShadow, Item, Marker, names};
use serde_json::{Value, json};

use super::world::{NEW, OLD};
use crate::cluster::{Cluster, Watched as _};
use crate::decide::node as decide;
use crate::known::{Known, KnownDrain};
use crate::objects::WatchedNode;
use crate::observe::{Leader, Now, observe};
use crate::policy::{Policy, USUAL};
use crate::pool::Pool;

const NOW: &str = "2026-11-21T04:00:00Z";

/// What becomes of an update whose image is staged, with these pools and this fleet; cordoned already, or not.
fn reason(pools: &[(&str, Value)], fleet_spec: &Value, cordoned: bool) -> String {
    let mut cluster = Cluster::default();
    let marker = Marker {
        shadow_uid: "s".to_owned(),
        attempt: 1,
        term: 4,
        cordoned_at: Some(NOW.to_owned()),
        drain_started_at: Some(NOW.to_owned()),
        ..Marker::default()
    };
    let annotations = if cordoned { json!({names::MARKER_ANNOTATION: marker.render()}) } else { json!({}) };
    let node: WatchedNode = serde_json::from_value(json!({
        "metadata": {"name": "n", "uid": "u", "annotations": annotations,
            "labels": {"tier": "web", names::UPDATER_INTERFACE_LABEL: names::UPDATER_INTERFACE_VERSION}},
        "spec": {"unschedulable": cordoned},
        "status": {"nodeInfo": {"bootID": "b", "osImage": format!("Bottlerocket OS {OLD} (aws-k8s-1.29)")},
            "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    node.put(&mut cluster);
    let shadow: Item<BottlerocketShadow> = serde_json::from_value(json!({
        "metadata": {"name": "brs-n", "uid": "s", "generation": 1},
        "spec": {"state": "StagedAndPerformedUpdate", "version": NEW, "attempt": 1, "baseline_boot_id": "b",
            "state_transition_timestamp": NOW},
        "status": {"current_version": OLD, "target_version": NEW, "current_state": "StagedAndPerformedUpdate",
            "boot_id": "b", "attempt": 1},
    }))
    .unwrap();
    shadow.put(&mut cluster);
    let slot = json!({"uid": "s", "attempt": 1, "version": NEW, "pool": "web", "since": NOW});
    let ledger = json!({"metadata": {}, "spec": fleet_spec,
        "status": {"term": 4, "slots": {"brs-n": slot}, "seen": {NEW: "2026-11-21T03:00:00Z"}}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
    cluster.replace(pools.iter().map(|(name, spec)| {
        let pool = json!({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec});
        serde_json::from_value::<Item<Pool>>(pool).unwrap()
    }));
    let time = NOW.parse().unwrap();
    // Its pods are known, and none is left.
    let known = Known::of(&cluster, time, &Policy::default());
    let known = Known { drains: [("brs-n".to_owned(), KnownDrain::default())].into(), ..known };
    let pools = crate::observe::pools_at(&cluster, &known, &USUAL, time);
    let (policy, leader) =
        (Policy::default(), Leader { term: 4, enforced: true, alone: true, own_node: None });
    let observed = observe(&cluster, &known, &pools, &policy, &leader, Now { time, text: NOW });
    let decision = decide(&observed.fleet, &observed.views[0]);
    format!("{:?}", decision.reason)
}

fn web(change: &Value) -> Value {
    let mut spec = json!({"nodeSelector": {"matchLabels": {"tier": "web"}}});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    spec
}

#[test]
fn each_change_of_a_pool_is_heeded_until_the_cordon() {
    let freeze = json!([{"name": "x", "start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z"}]);
    let (closed, goes_on) = ("Aborting(PoolClosed)", "Cordoning");
    for (change, expected) in [
        (json!({}), goes_on),
        (json!({"paused": true}), closed),
        (json!({"freezes": freeze}), closed),
        (json!({"windows": [{"schedule": "0 12 * * *", "duration": "1h"}]}), closed),
        (json!({"windows": [{"schedule": "0 3 * * *", "duration": "2h"}]}), goes_on),
        (json!({"versions": {"below": NEW}}), closed),
        (json!({"versions": {"atLeast": "9.0.0"}}), closed),
        (json!({"versions": {"minAge": "72h"}}), closed),
        (json!({"versions": {"minAge": "1h"}}), goes_on),
        (json!({"after": [{"pool": "canary"}]}), closed),
        (json!({"windows": [{"schedule": "not at all", "duration": "1h"}]}), closed),
        (json!({"maxUnavailable": "1%"}), goes_on),
        (json!({"topology": {"mode": "OneAtATime"}}), goes_on),
        (json!({"failureThreshold": {"unproven": 3}}), goes_on),
        (json!({"acknowledgedHalts": [{"version": NEW, "haltedAt": NOW}]}), goes_on),
        (json!({"drain": {"timeout": "1s"}}), goes_on),
        (json!({"drain": {"loadBalancerDelay": "1m"}}), "ExcludedFromLoadBalancers"),
        (json!({"soak": {"readyFor": "2h", "workloadsTimeout": "0s"}}), goes_on),
        (json!({"priority": 7}), goes_on),
    ] {
        let pools = [("web", web(&change))];
        assert_eq!(reason(&pools, &json!({}), false), expected, "{change}");
        assert_eq!(reason(&pools, &json!({}), true), "Draining", "cordoned, {change}");
    }
}

#[test]
fn a_node_may_change_hands_in_mid_update() {
    let (other, all) =
        (json!({"nodeSelector": {"matchLabels": {"tier": "db"}}}), json!({"nodeSelector": {}}));
    let paused = json!({"nodeSelector": {}, "priority": 1, "paused": true});
    let hold = json!({"unpooledNodes": "Hold"});
    let (closed, goes_on) = ("Aborting(PoolClosed)", "Cordoning");
    for (what, pools, fleet, expected) in [
        ("no pool selects it any more", vec![("web", other.clone())], json!({}), goes_on),
        ("the same, and the fleet holds such nodes", vec![("web", other)], hold, closed),
        ("two contend for it", vec![("a", all.clone()), ("web", web(&json!({})))], json!({}), closed),
        (
            "a higher pool owns it, and is paused",
            vec![("a", paused), ("web", web(&json!({})))],
            json!({}),
            closed,
        ),
        ("the whole fleet is paused", vec![("web", web(&json!({})))], json!({"paused": true}), closed),
        ("the same, in the default pool", vec![], json!({"paused": true}), closed),
        ("its pool is gone, and another one owns it", vec![("a", all)], json!({}), goes_on),
    ] {
        assert_eq!(reason(&pools, &fleet, false), expected, "{what}");
        assert_eq!(reason(&pools, &fleet, true), "Draining", "cordoned, {what}");
    }
}
