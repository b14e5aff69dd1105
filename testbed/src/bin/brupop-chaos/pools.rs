//! Three pools, and what people do to them: in every second run.

use kube::Resource as _;
use std::ops::Range;

use anyhow::Result;
use brupop_api::BottlerocketPool;
use brupop_testbed::Fleet;
use brupop_testbed::operator::NAMESPACE;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value as Json, json};

use crate::fault::{Fault, PoolChange, Source, Step};
use crate::people;
use crate::prometheus;
use crate::random::Random;

/// Releases, and when they come, in per cent of the time.
pub(crate) const RELEASES: [(&str, u64, bool); 3] =
    [("1.20.0", 3, false), ("1.21.0", 35, true), ("1.22.0", 60, false)];
/// The label by which pools select nodes. One that is deleted and made again has lost it, until everything is tidied up.
const TIER: &str = "tier";
/// The pools. `web` comes after `canary`.
pub(crate) const POOLS: [&str; 3] = ["canary", "web", "db"];
/// Between two changes of the same pool, in milliseconds.
const GAP: Range<u64> = 8_000..28_000;
/// How long one lasts: longer than what a leader with an old view may still do, if it is one that lets nothing begin.
const LASTS: Range<u64> = 10_000..40_000;
const CLOSED: Range<u64> = 25_000..38_000;
/// Of windows, which may be open for half of that time, and of zones, of which the right one may be the first to begin.
const LASTING: Range<u64> = 45_000..75_000;
/// The same of what is wrong with the source of gates.
const WELL: Range<u64> = 15_000..40_000;
const WRONG: Range<u64> = 18_000..35_000;

/// The pool of a node at the beginning.
pub(crate) fn tier(node: usize) -> &'static str {
    ["canary", "web", "web", "db"][node % 4]
}

/// The spec of a pool as it is when nobody has changed it.
fn spec(pool: &str) -> Json {
    let mut spec = json!({"nodeSelector": {"matchLabels": {TIER: pool}}, "maxUnavailable": 2, "paused": false,
            "drain": {"timeout": "15s"}, "soak": {"readyFor": "1s", "workloadsTimeout": "10s"}});
    if pool == "web" {
        spec["maxUnavailable"] = json!(3);
        spec["after"] = json!([{"pool": "canary", "soak": "2s"}]);
    }
    if pool == "db" {
        spec["gates"] = json!([prometheus::gate()]);
    }
    spec
}

/// What people do to pools in this time, and what goes wrong with the source of their gates. Not the numbers of the other
/// faults, which stay what they are.
pub(crate) fn steps(seed: u64, length: u64) -> Vec<Step> {
    let mut random = Random::new(!seed);
    let of_pools =
        POOLS.map(|pool| one_after_the_other(&mut random, GAP, length, |random| change_of(random, pool)));
    let of_source = one_after_the_other(&mut random, WELL, length, |random| {
        let wrong = [
            Source::Firing,
            Source::Firing,
            Source::Blind,
            Source::Nonsense,
            Source::Failed,
            Source::Silent,
            Source::Away,
        ];
        Fault::Source { wrong: *random.one(&wrong), ms: random.within(WRONG) }
    });
    of_pools.into_iter().flatten().chain(of_source).collect()
}

/// Faults of which none begins before the last one is over.
fn one_after_the_other(
    random: &mut Random,
    gap: Range<u64>,
    length: u64,
    make: impl Fn(&mut Random) -> Fault,
) -> Vec<Step> {
    let (mut steps, mut at) = (vec![], random.within(gap.clone()));
    while at < length {
        let fault = make(random);
        let lasts = fault.lasts().unwrap_or(0);
        steps.push(Step { at, fault });
        at += lasts + random.within(gap.clone());
    }
    steps
}

fn change_of(random: &mut Random, pool: &str) -> Fault {
    let change = *random.one(&[
        PoolChange::Limit(1),
        PoolChange::Limit(4),
        PoolChange::Paused,
        PoolChange::Frozen,
        PoolChange::Closed,
        PoolChange::Closed,
        PoolChange::Alternates,
        PoolChange::Deleted,
        PoolChange::TakesAll,
        PoolChange::OneZone,
        PoolChange::OneZone,
        PoolChange::FirstRelease,
        PoolChange::LaterReleases,
        PoolChange::Ripens(30),
        PoolChange::Ripens(90),
    ]);
    let lasts = match change {
        PoolChange::Limit(_) | PoolChange::Deleted | PoolChange::TakesAll => LASTS,
        PoolChange::Closed | PoolChange::Alternates | PoolChange::OneZone => LASTING,
        _ => CLOSED,
    };
    Fault::Pool { pool: pool.to_owned(), change, ms: random.within(lasts) }
}

/// Labels the nodes, and makes the pools.
pub(crate) async fn make(fleet: &Fleet, nodes: usize) -> Result<()> {
    for node in 0..nodes {
        label(fleet.client(), node, tier(node).to_owned()).await?;
    }
    for pool in POOLS {
        restore(fleet.client(), pool.to_owned()).await?;
    }
    Ok(())
}

/// A person gives a node the label of a pool.
pub(crate) async fn label(client: Client, node: usize, pool: String) -> Result<()> {
    people::patch_node(&client, node, json!({"metadata": {"labels": {TIER: pool}}})).await
}

async fn apply(client: Client, pool: &str, spec: Json) -> Result<()> {
    let pools = Api::<BottlerocketPool>::namespaced(client, NAMESPACE);
    let object = json!({"apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool",
        "metadata": {"name": pool}, "spec": spec});
    pools.patch(pool, &PatchParams::apply("people").force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// A person changes a pool.
pub(crate) async fn change(client: Client, pool: String, change: PoolChange) -> Result<()> {
    let mut spec = spec(&pool);
    match change {
        PoolChange::Limit(limit) => spec["maxUnavailable"] = json!(limit),
        PoolChange::Paused => spec["paused"] = json!(true),
        PoolChange::Frozen => {
            spec["freezes"] =
                json!([{"name": "now", "start": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}]);
        }
        PoolChange::Closed => {
            let hour = (Timestamp::now().to_zoned(TimeZone::UTC).hour() + 12) % 24;
            spec["windows"] = json!([{"schedule": format!("0 {hour} * * *"), "duration": "1h"}]);
        }
        PoolChange::Alternates => {
            spec["windows"] = json!([{"schedule": "*/2 * * * *", "duration": "1m"}]);
        }
        PoolChange::TakesAll => {
            spec["nodeSelector"] = json!({});
            spec["priority"] = json!(7);
        }
        PoolChange::OneZone => {
            spec["maxUnavailable"] = json!(3);
            spec["topology"] = json!({"mode": "OneAtATime"});
        }
        PoolChange::FirstRelease => spec["versions"] = json!({"below": RELEASES[1].0}),
        PoolChange::LaterReleases => spec["versions"] = json!({"atLeast": RELEASES[2].0}),
        PoolChange::Ripens(seconds) => spec["versions"] = json!({"minAge": format!("{seconds}s")}),
        PoolChange::Deleted => {
            let pools = Api::<BottlerocketPool>::namespaced(client, NAMESPACE);
            return Ok(pools.delete(&pool, &DeleteParams::default()).await.map(drop)?);
        }
    }
    apply(client, &pool, spec).await
}

/// It is as it was at the beginning.
pub(crate) async fn restore(client: Client, pool: String) -> Result<()> {
    let spec = spec(&pool);
    apply(client, &pool, spec).await
}
