//! A fleet of 5,000 nodes, in mid-roll-out.

use std::sync::Arc;

use brupop_api::pool::Limit;
use brupop_api::{Item, names};
use brupop_core::cluster::Cluster;
use brupop_core::leader::LeaderState;
use brupop_core::objects::{AgentPod, NodeFacts, Readiness};
use brupop_core::pool::Pool;
use brupop_core::rules::Policy;
use brupop_core::rules::{Rules, StepDurations};
use serde_json::json;

pub const NODES: usize = 5_000;
/// Number of pools in the cases that have pools.
pub const POOLS: usize = 50;
pub const NOW: &str = "2026-11-21T04:00:00Z";

/// Returns how it is updated.
pub fn policy() -> Policy {
    let default_pool = Rules::of_settings(Limit::Percent(20), vec![], StepDurations::default());
    Policy {
        default_pool,
        ..Policy::default()
    }
}

/// The cluster with this number of pools, and what is known of it before a pass.
pub fn prepared(pools: usize) -> (Cluster, LeaderState) {
    let mut cluster = with_pools(cluster(), pools);
    let mut leader = LeaderState::new(4, "node-0001");
    let time = NOW.parse().expect("a time");
    leader.prepare(&mut cluster, time, &policy());
    (cluster, leader)
}

/// Every tenth node is in mid-update, every third has been updated, the others wait, in three zones.
pub fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    let mut slots = serde_json::Map::new();
    for number in 0..NODES {
        let (node, shadow) = (format!("node-{number:04}"), format!("brs-node-{number:04}"));
        let (runs, updated) = (number % 10 == 0, number % 3 == 0);
        let version = if updated { "1.20.0" } else { "1.19.4" };
        let watched: NodeFacts = serde_json::from_value(json!({
            "metadata": {"name": node, "uid": format!("uid-{node}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {names::UPDATER_INTERFACE_LABEL: names::UPDATER_INTERFACE_VERSION,
                    "pool": (number % 50).to_string(),
                    "topology.kubernetes.io/zone": format!("zone-{}", number % 3)}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": format!("boot-{number}"), "osImage": format!("Bottlerocket OS {version} (aws-k8s-1.29)")}},
        }))
        .expect("a Node");
        let state = if runs {
            "StagedAndPerformedUpdate"
        } else {
            "Idle"
        };
        let object = json!({
            "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
            "metadata": {"name": shadow, "namespace": "ns", "uid": format!("uid-{shadow}"), "generation": 3,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": format!("uid-{node}")}]},
            "spec": {"state": state, "version": runs.then_some("1.20.0"), "attempt": runs.then_some(1), "leader_term": 4,
                "baseline_boot_id": runs.then(|| format!("boot-{number}")), "state_transition_timestamp": NOW},
            "status": {"current_version": version, "target_version": "1.20.0", "current_state": "Idle",
                "attempt": runs.then_some(1), "boot_id": format!("boot-{number}")},
        });
        if runs {
            slots.insert(
                shadow.clone(),
                json!({"uid": format!("uid-{shadow}"), "attempt": 1}),
            );
        }
        let agent = AgentPod {
            node,
            readiness: Some(Readiness {
                ready: true,
                since: None,
            }),
        };
        let record = cluster.record(&shadow);
        record.agents.insert("agent".to_owned(), agent);
        record.node = Some(Arc::new(watched));
        record.shadow = Some(Arc::new(serde_json::from_value(object).expect("a shadow")));
    }
    let ledger =
        json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"term": 4, "slots": slots}});
    cluster.fleet = Some(Arc::new(serde_json::from_value(ledger).expect("a ledger")));
    cluster
}

/// The cluster in this number of pools, each with a window, a freeze and bounds on versions; half of them follow another one.
#[must_use]
pub fn with_pools(mut cluster: Cluster, count: usize) -> Cluster {
    let pools = (0..count).map(|number| {
        let after = if number % 2 == 1 { json!([{"pool": format!("pool-{:02}", number - 1), "soak": "1h"}]) } else { json!([]) };
        let pool: Item<Pool> = serde_json::from_value(json!({
            "metadata": {"name": format!("pool-{number:02}"), "uid": format!("uid-{number}"), "generation": 1},
            "spec": {"nodeSelector": {"matchLabels": {"pool": number.to_string()}}, "maxUnavailable": "20%",
                "windows": [{"schedule": "0 2 * * *", "duration": "4h", "timeZone": "Europe/Berlin"}],
                "freezes": [{"name": "holidays", "start": "2026-12-20T00:00:00Z", "end": "2027-01-07T00:00:00Z"}],
                "versions": {"atLeast": "1.19.0"}, "dependsOn": after},
        }))
        .expect("a pool");
        pool
    });
    cluster.replace(pools);
    cluster
}
