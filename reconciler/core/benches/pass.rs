//! One pass over a fleet of 5,000 nodes, in mid-roll-out: from objects and the time to a decision and a sentence for each.
//! And what a change of one pod costs, when no node can be drained and so the pods of many are watched.
//!
//! `make bench-pass`

#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot go on fails")]

use std::hint::black_box;
use std::sync::Arc;

use brupop_api::{Item, names};
use brupop_core::cluster::Cluster;
use brupop_core::decide;
use brupop_core::drain::{self, DrainPlan, Obstacle};
use brupop_core::objects::{AgentPod, Budget, PodItem, Readiness, WatchedNode};
use brupop_core::observe::{Leader, Now, observe};
use brupop_core::policy::{Limit, Policy};
use brupop_core::pool::Pool;
use brupop_core::status::{self, DesiredCondition};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::SignedDuration;
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
                    "pool": (number % 50).to_string(),
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

/// The same in so many pools, each with a window, a freeze and bounds on versions; half of them follow another one.
fn with_pools(mut cluster: Cluster, count: usize) -> Cluster {
    let pools = (0..count).map(|number| {
        let after = if number % 2 == 1 { json!([{"pool": format!("pool-{:02}", number - 1), "soak": "1h"}]) } else { json!([]) };
        let pool: Item<Pool> = serde_json::from_value(json!({
            "metadata": {"name": format!("pool-{number:02}"), "uid": format!("uid-{number}"), "generation": 1},
            "spec": {"nodeSelector": {"matchLabels": {"pool": number.to_string()}}, "maxUnavailable": "20%",
                "windows": [{"schedule": "0 2 * * *", "duration": "4h", "timeZone": "Europe/Berlin"}],
                "freezes": [{"name": "holidays", "start": "2026-12-20T00:00:00Z", "end": "2027-01-07T00:00:00Z"}],
                "versions": {"atLeast": "1.19.0"}, "after": after},
        }))
        .expect("a pool");
        pool
    });
    cluster.replace(pools);
    cluster
}

fn pass(criterion: &mut Criterion) {
    for pools in [0, 50] {
        let mut cluster = with_pools(cluster(), pools);
        cluster.prepare_pools(NOW.parse().expect("a time"), SignedDuration::ZERO);
        pass_with(criterion, &cluster, pools);
    }
}

fn pass_with(criterion: &mut Criterion, cluster: &Cluster, count: usize) {
    let policy = Policy { limit: Limit::Percent(20), ..Policy::default() };
    let leader = Leader { term: 4, enforced: true, alone: true, own_node: Some("node-0001") };
    let now = Now { time: NOW.parse().expect("a time"), text: NOW };
    let mut group = criterion.benchmark_group(format!("{NODES} nodes, {count} pools"));
    group.bench_function("observe", |bencher| {
        bencher.iter(|| {
            let pools = cluster.pools_at(now.time);
            let observed = observe(black_box(cluster), &pools, &policy, &leader, black_box(now));
            observed.views.len()
        });
    });
    let pools = cluster.pools_at(now.time);
    let observed = observe(cluster, &pools, &policy, &leader, now);
    group.bench_function("decide", |bencher| {
        bencher.iter(|| decide::fleet(black_box(&observed)));
    });
    let decided = decide::fleet(&observed);
    group.bench_function("say why", |bencher| {
        let say = |reason: &decide::Reason<'_>| {
            DesiredCondition::progressing(reason.status(), reason.as_str(), &reason.message())
        };
        bencher.iter(|| decided.nodes.iter().map(|node| say(black_box(&node.reason))).collect::<Vec<_>>());
    });
    if count > 0 {
        group.bench_function("statuses of pools", |bencher| {
            bencher.iter(|| status::pools(black_box(&observed), &decided.nodes, "brupop"));
        });
        group.bench_function("owners, once a pool has changed", |bencher| {
            let changed = || with_pools(with_pools(cluster.clone(), 0), count);
            bencher.iter_batched_ref(
                changed,
                |cluster| cluster.prepare_pools(now.time, SignedDuration::ZERO),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// The pods of a node, two of each of 30 workloads in ten namespaces.
fn pods(node: usize) -> Vec<PodItem> {
    let pod = |number: usize| {
        let app = format!("app-{}", number % 30);
        serde_json::from_value(json!({
            "metadata": {"namespace": format!("team-{}", number % 10), "name": format!("{app}-{node}-{number}"),
                "uid": format!("{node}-{number}"), "labels": {"app": app}, "ownerReferences": [{"apiVersion": "apps/v1",
                    "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a pod")
    };
    (0..60).map(pod).collect()
}

/// 300 budgets, 30 in each namespace; the last one of each never allows a disruption.
fn budgets() -> Vec<Arc<Item<Budget>>> {
    let budget = |number: usize| {
        let never = number >= 290;
        let app = if never { number % 10 } else { number % 600 + 30 };
        let item = serde_json::from_value(json!({
            "metadata": {"namespace": format!("team-{}", number % 10), "name": format!("budget-{number}"), "generation": 1},
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": [format!("app-{app}")]}]}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": i32::from(!never), "currentHealthy": 4,
                "desiredHealthy": if never { 4 } else { 3 }, "expectedPods": 4},
        }));
        Arc::new(item.expect("a budget"))
    };
    (0..300).map(budget).collect()
}

fn pod_event(criterion: &mut Criterion) {
    let nodes: Vec<Vec<PodItem>> = (0..256).map(pods).collect();
    let budgets = budgets();
    let look = |pods: &[PodItem]| {
        let plan = DrainPlan::of(pods, |_| false, |_| false, None);
        let obstacle = drain::obstacle(|| pods.iter(), &budgets, |_| false, |_| false);
        assert!(matches!(obstacle, Some(Obstacle::Never(_))), "the node can be drained");
        (plan, obstacle)
    };
    let mut group = criterion.benchmark_group("60 pods on a node, 300 budgets");
    group.bench_function("a pod's node", |bencher| bencher.iter(|| look(black_box(&nodes[0]))));
    group.bench_function("all of 256 nodes", |bencher| {
        bencher.iter(|| nodes.iter().map(|pods| look(black_box(pods))).collect::<Vec<_>>());
    });
    group.finish();
}

criterion_group!(benches, pass, pod_event);
criterion_main!(benches);
