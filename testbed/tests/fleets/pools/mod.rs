//! Pools, on a real API server: side by side, gone, and refused.

mod recipes;
mod refused;
mod steered;

use kube::Resource as _;

use anyhow::{Context as _, Result};
use brupop_api::BottlerocketPool;
use brupop_api::pool::BottlerocketPoolStatus;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

/// The label by which these tests tell nodes apart.
const TIER: &str = "tier";

fn pools(fleet: &Fleet) -> Api<BottlerocketPool> {
    Api::namespaced(fleet.client(), NAMESPACE)
}

/// A fleet of this many nodes, with these tiers.
async fn fleet(tiers: &[&str], env: &[(&str, &str)]) -> Result<Fleet> {
    let fleet = Fleet::quick(tiers.len(), env).await?;
    for (number, tier) in tiers.iter().enumerate() {
        let label = format!("{TIER}={tier}");
        fleet
            .kubectl(&format!("label node node-{number} {label}"))
            .await?;
    }
    Ok(fleet)
}

/// Makes this pool, which selects a tier, or changes it.
async fn apply(fleet: &Fleet, name: &str, spec: &Value) -> Result<()> {
    let pool = json!({"apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool",
        "metadata": {"name": name}, "spec": spec});
    pools(fleet)
        .patch(
            name,
            &PatchParams::apply("a-person").force(),
            &Patch::Apply(pool),
        )
        .await?;
    Ok(())
}

fn of_tier(tier: &str, more: &Value) -> Value {
    let mut spec =
        json!({"nodeSelector": {"matchLabels": {TIER: tier}}, "verify": {"readyFor": "0s"}});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

async fn delete(fleet: &Fleet, name: &str) -> Result<()> {
    pools(fleet)
        .delete(name, &DeleteParams::default())
        .await
        .map(drop)
        .context("the pool stays")
}

/// Waits until this holds for the status of a pool.
async fn until_pool(
    fleet: &Fleet,
    name: &str,
    what: &str,
    so: impl Fn(&BottlerocketPoolStatus) -> bool,
) -> Result<BottlerocketPoolStatus> {
    let api = pools(fleet);
    let waited = await_until(format!("pool {name}: {what}"), async || {
        api.get(name).await.ok()?.status.filter(|status| so(status))
    });
    match waited.await {
        Ok(status) => Ok(status),
        Err(error) => {
            let status = api.get(name).await?.status;
            Err(error).with_context(|| format!("it has {status:#?}"))
        }
    }
}

/// The reason of this condition of a pool, and its status as a word.
fn condition(status: &BottlerocketPoolStatus, type_: &str) -> Option<(String, String)> {
    let condition = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)?;
    Some((
        format!("{:?}", condition.status),
        condition.reason.to_string(),
    ))
}

/// The command that waits for a pool.
async fn wait(fleet: &Fleet, pool: &str, condition: &str) -> Result<()> {
    fleet
        .control_plane
        .wait_for_condition(condition, &["brp", pool, "-n", NAMESPACE])
        .await
}

async fn wait_until_updated(fleet: &Fleet, pool: &str) -> Result<()> {
    wait(fleet, pool, "Updated").await
}
