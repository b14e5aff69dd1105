//! One pass over a fleet of 5,000 nodes, in mid-roll-out: from objects and the time to a decision for each.
//!
//! `make bench-pass`

#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot go on fails")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use brupop_api::names;
use brupop_core::cluster::Cluster;
use brupop_core::decide;
use brupop_core::objects::{AgentPod, Readiness, WatchedNode};
use brupop_core::observe::{Leader, Now, observe};
use brupop_core::policy::{Limit, Policy};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;

const NODES: usize = 5_000;
const NOW: &str = "2026-11-21T04:00:00Z";

/// Every tenth node is in mid-update, every third has been updated, the others wait, in three zones.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    let mut slots = serde_json::Map::new();
    for number in 0..NODES {
        let (node, shadow) = (format!("node-{number:04}"), format!("brs-node-{number:04}"));
        let (runs, updated) = (number % 10 == 0, number % 3 == 0);
        let version = if updated { "1.20.0" } else { "1.19.4" };
        let watched: WatchedNode = serde_json::from_value(json!({
            "metadata": {"name": node, "uid": format!("uid-{node}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {names::UPDATER_INTERFACE_LABEL: names::UPDATER_INTERFACE_VERSION,
                    "topology.kubernetes.io/zone": format!("zone-{}", number % 3)}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": format!("boot-{number}"), "osImage": format!("Bottlerocket OS {version} (aws-k8s-1.29)")}},
        }))
        .expect("a Node");
        let state = if runs { "StagedAndPerformedUpdate" } else { "Idle" };
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
            slots.insert(shadow.clone(), json!({"uid": format!("uid-{shadow}"), "attempt": 1}));
        }
        let agent = AgentPod { node, readiness: Some(Readiness { ready: true, since: None }) };
        let entry = cluster.entry(&shadow);
        entry.agents.insert("agent".to_owned(), agent);
        entry.node = Some(Arc::new(watched));
        entry.shadow = Some(Arc::new(serde_json::from_value(object).expect("a shadow")));
    }
    let ledger = json!({"metadata": {"name": "fleet"}, "spec": {}, "status": {"term": 4, "slots": slots}});
    cluster.ledger = Some(Arc::new(serde_json::from_value(ledger).expect("a ledger")));
    cluster
}

fn pass(criterion: &mut Criterion) {
    let cluster = cluster();
    let policy = Policy { limit: Limit::Percent(20), ..Policy::default() };
    let leader = Leader { term: 4, enforced: true, alone: true, own_node: Some("node-0001") };
    let now = Now { time: NOW.parse().expect("a time"), text: NOW };
    let mut group = criterion.benchmark_group(format!("{NODES} nodes"));
    group.bench_function("observe", |bencher| {
        bencher.iter(|| observe(black_box(&cluster), &policy, &leader, black_box(now)));
    });
    let observed = observe(&cluster, &policy, &leader, now);
    group.bench_function("decide", |bencher| {
        bencher.iter(|| {
            let slots = decide::slots(black_box(&observed.fleet), black_box(&observed.views));
            let mut reasons = BTreeMap::<&str, usize>::new();
            for view in &observed.views {
                let decision = decide::node(&observed.fleet, view);
                *reasons.entry(decision.reason.as_str()).or_default() += 1;
            }
            (slots, reasons)
        });
    });
    group.finish();
}

criterion_group!(benches, pass);
criterion_main!(benches);
