//! One pass over a fleet of 5,000 nodes, in mid-roll-out: from objects and the time to a decision and a sentence for each.
//! And what a change of one pod costs, when no node can be drained and so the pods of many are watched.
//!
//! `make bench-pass`

#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;

use brupop_bench_cases::fleet::{LEADER, NODES, POOLS, budgets, now, pods, policy, prepared, with_pools};
use brupop_bench_cases::say_why;
use brupop_core::cluster::Cluster;
use brupop_core::decide;
use brupop_core::drain::{self, Circumstances, DrainPlan, Obstacle};
use brupop_core::known::Known;
use brupop_core::objects::PodItem;
use brupop_core::observe::{self, observe};
use brupop_core::status;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::{SignedDuration, Timestamp};

fn pass(criterion: &mut Criterion) {
    for pools in [0, POOLS] {
        let (cluster, known) = prepared(pools);
        pass_with(criterion, &cluster, &known, pools);
    }
}

fn pass_with(criterion: &mut Criterion, cluster: &Cluster, known: &Known, count: usize) {
    let (policy, now) = (policy(), now());
    let mut group = criterion.benchmark_group(format!("{NODES} nodes, {count} pools"));
    group.bench_function("observe", |bencher| {
        bencher.iter(|| {
            let pools = observe::pools_at(cluster, known, now.time);
            let observed = observe(black_box(cluster), known, &pools, &policy, &LEADER, black_box(now));
            observed.views.len()
        });
    });
    let pools = observe::pools_at(cluster, known, now.time);
    let observed = observe(cluster, known, &pools, &policy, &LEADER, now);
    group.bench_function("decide", |bencher| {
        bencher.iter(|| decide::fleet(black_box(&observed)));
    });
    let decided = decide::fleet(&observed);
    group.bench_function("say why", |bencher| {
        bencher.iter(|| say_why(black_box(&decided)));
    });
    if count > 0 {
        group.bench_function("statuses of pools", |bencher| {
            bencher.iter(|| status::pools(black_box(&observed), &decided.nodes, "brupop"));
        });
        group.bench_function("owners, once a pool has changed", |bencher| {
            let changed = with_pools(with_pools(cluster.clone(), 0), count);
            bencher.iter_batched_ref(
                || known.clone(),
                |known| while !known.prepare_pools(&changed, now.time, SignedDuration::ZERO) {},
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn pod_event(criterion: &mut Criterion) {
    let nodes: Vec<Vec<PodItem>> = (0..256).map(pods).collect();
    let budgets = budgets();
    let look = |pods: &[PodItem]| {
        let plan = DrainPlan::of(pods, |_| false, |_| false, None, None);
        let now = Circumstances {
            time: Timestamp::UNIX_EPOCH,
            deadline: SignedDuration::from_mins(15),
            respects: true,
            failures: None,
        };
        let obstacle = drain::obstacle(|| pods.iter(), &budgets, |_| false, |_| false, &now);
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
