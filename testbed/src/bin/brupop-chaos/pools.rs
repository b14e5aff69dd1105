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
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value as Json, json};

use crate::fault::{Fault, PoolChange, Step};
use crate::people;
use crate::random::Random;
use crate::world::NODES;

/// The label by which pools select nodes. One that is deleted and made again has lost it, until everything is tidied up.
const TIER: &str = "tier";
/// The pools. `web` comes after `canary`.
pub(crate) const POOLS: [&str; 3] = ["canary", "web", "db"];
/// Between two changes of the same pool, in milliseconds.
const GAP: Range<u64> = 8_000..28_000;
/// Time for which one lasts: longer than what a leader with an old view may still do, if it is one that lets nothing begin.
const LASTS: Range<u64> = 10_000..40_000;
const CLOSED: Range<u64> = 25_000..38_000;
/// Of windows, which may be open for half of that time.
const LASTING: Range<u64> = 45_000..75_000;

/// The pool of a node at the beginning.
pub(crate) fn tier(node: usize) -> &'static str {
    ["canary", "web", "web", "db"][node % 4]
}

/// The spec of a pool as it is when nobody has changed it.
fn spec(pool: &str) -> Json {
    let mut spec = json!({"nodeSelector": {"matchLabels": {TIER: pool}}, "maxUnavailable": 2, "paused": false,
            "drain": {"timeout": "15s"}, "verify": {"readyFor": "1s", "workloadsTimeout": "10s"}});
    if pool == "web" {
        spec["maxUnavailable"] = json!(3);
        spec["dependsOn"] = json!([{"pool": "canary", "soak": "2s"}]);
    }
    spec
}

/// Returns what people do to pools in this time. None of the changes of a pool begins before the last one is over.
pub(crate) fn steps(random: &mut Random, length: u64) -> Vec<Step> {
    let mut steps = vec![];
    for pool in POOLS {
        let mut at = random.within(GAP);
        while at < length {
            let fault = change_of(random, pool);
            let lasts = fault.lasts().unwrap_or(0);
            steps.push(Step { at, fault });
            at += lasts + random.within(GAP);
        }
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
    ]);
    let lasts = match change {
        PoolChange::Limit(_) | PoolChange::Deleted | PoolChange::TakesAll => LASTS,
        PoolChange::Closed | PoolChange::Alternates => LASTING,
        _ => CLOSED,
    };
    Fault::Pool {
        pool: pool.to_owned(),
        change,
        ms: random.within(lasts),
    }
}

/// Labels the nodes, and makes the pools.
pub(crate) async fn make(fleet: &Fleet) -> Result<()> {
    for node in 0..NODES {
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
    pools
        .patch(
            pool,
            &PatchParams::apply("people").force(),
            &Patch::Apply(object),
        )
        .await?;
    Ok(())
}

/// A person changes a pool.
pub(crate) async fn change(client: Client, pool: String, change: PoolChange) -> Result<()> {
    let mut spec = spec(&pool);
    match change {
        PoolChange::Limit(limit) => spec["maxUnavailable"] = json!(limit),
        PoolChange::Paused => spec["paused"] = json!(true),
        PoolChange::Frozen => {
            spec["freezes"] = json!([{"name": "now", "start": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}]);
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
        PoolChange::Deleted => {
            let pools = Api::<BottlerocketPool>::namespaced(client, NAMESPACE);
            return people::delete(&pools, &pool).await;
        }
    }
    apply(client, &pool, spec).await
}

/// It is as it was at the beginning.
pub(crate) async fn restore(client: Client, pool: String) -> Result<()> {
    apply(client, &pool, spec(&pool)).await
}
