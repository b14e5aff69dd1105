//! Three pools, and what people do to them: in every second run.

use anyhow::Result;
use brupop_api::BottlerocketPool;
use brupop_testbed::Fleet;
use brupop_testbed::operator::NAMESPACE;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value as Json, json};

use crate::fault::{Fault, PoolChange, Step};
use crate::people::node_name;
use crate::random::Random;

/// The label by which pools select nodes. One that is deleted and made again has lost it.
const TIER: &str = "tier";
/// The pools. `web` comes after `canary`.
pub(crate) const POOLS: [&str; 3] = ["canary", "web", "db"];
/// Between two changes of pools, in milliseconds.
const GAP: std::ops::Range<u64> = 4_000..15_000;
/// How long one lasts: longer than what a leader with an old view may still do.
const LASTS: std::ops::Range<u64> = 5_000..45_000;

/// The pool of a node at the beginning.
fn tier(node: usize) -> &'static str {
    ["canary", "web", "web", "db"][node % 4]
}

/// The spec of a pool as it is when nobody has changed it.
fn spec(pool: &str) -> Json {
    let mut spec = json!({"nodeSelector": {"matchLabels": {TIER: pool}}, "maxUnavailable": 1, "paused": false,
            "drain": {"timeout": "15s"}, "soak": {"readyFor": "1s", "workloadsTimeout": "10s"}});
    if pool == "web" {
        spec["maxUnavailable"] = json!(2);
        spec["after"] = json!([{"pool": "canary", "soak": "2s"}]);
    }
    spec
}

/// What people do to pools in this time.
pub(crate) fn steps(seed: u64, length: u64) -> Vec<Step> {
    // Not the numbers of the other faults, which stay what they are.
    let mut random = Random::new(!seed);
    let mut steps = vec![];
    let mut at = 2_000;
    while at < length {
        let change = *random.one(&[
            PoolChange::Limit(1),
            PoolChange::Limit(3),
            PoolChange::Paused,
            PoolChange::Frozen,
            PoolChange::Closed,
            PoolChange::Alternates,
            PoolChange::Deleted,
            PoolChange::TakesAll,
        ]);
        let pool = (*random.one(&POOLS)).to_owned();
        steps.push(Step { at, fault: Fault::Pool { pool, change, ms: random.within(LASTS) } });
        at += random.within(GAP);
    }
    steps
}

/// Labels the nodes, and makes the pools.
pub(crate) async fn make(fleet: &Fleet, nodes: usize) -> Result<()> {
    for node in 0..nodes {
        let label = format!("{TIER}={}", tier(node));
        fleet.control_plane.kubectl(["label", "node", &node_name(node), &label]).await?;
    }
    for pool in POOLS {
        restore(fleet.client(), pool.to_owned()).await?;
    }
    Ok(())
}

async fn apply(client: Client, pool: &str, spec: Json) -> Result<()> {
    let pools = Api::<BottlerocketPool>::namespaced(client, NAMESPACE);
    let object = json!({"apiVersion": "brupop.bottlerocket.aws/v1alpha1", "kind": "BottlerocketPool",
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
