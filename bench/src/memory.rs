//! The worst that tenants and editors of pools may make, and what the reconciler takes of memory beside it.

use std::time::Duration;

use anyhow::Result;

use crate::say;
use crate::scale::{Agents, Asked, World, start, tenants};
use crate::table::Figure;

/// What is aimed at, below the limit of 256 MiB.
const AIM_MIB: f64 = 200.0;
/// Pods on the node that is next, with all the labels that there can be.
const PODS: usize = 12_000;
/// Pools of 49 kB that select nothing. There are more than are kept. Their selectors are kept: a pool whose selector is
/// forgotten holds all nodes.
const POOLS: usize = 250;
const BUDGETS: usize = 120;
/// Number of nodes that there are. All but one have to be updated, whatever stands on that one.
const NODES: usize = 20;
/// Time for which the reconciler is watched once its updates have ended.
const AFTERWARDS: Duration = Duration::from_secs(30);

pub async fn measure() -> Result<Vec<Figure>> {
    let world = World::start().await?;
    say(&format!(
        "making {NODES} nodes, and what tenants have: {PODS} pods, {POOLS} pools, {BUDGETS} budgets"
    ));
    world.populate(NODES, NODES).await?;
    tenants::make_budgets(&world.client(), 0, BUDGETS).await?;
    tenants::make_pools(&world.client(), POOLS).await?;
    tenants::make_crowd(world.control_plane(), PODS).await?;
    let _agents = Agents::start(world.client());
    let mut asked = Asked::from_now(world.control_plane());
    say("starting the reconciler");
    let (reconciler, _) = start(&world, "1", &mut asked).await?;
    say("updating the others");
    asked
        .until("all other nodes are updated", |asked| {
            asked.begun.len() >= NODES - 1
        })
        .await?;
    say("changing all budgets");
    tenants::change_budgets(&world.client(), BUDGETS).await?;
    tokio::time::sleep(AFTERWARDS).await;
    let usage = reconciler.usage()?;
    reconciler.end().await?;
    Ok(vec![
        Figure::new("reconciler: resident, at most, with the worst tenants", usage.peak, "MiB")
            .aim(AIM_MIB)
            .note(format!(
                "{PODS} pods with all labels on one node, {POOLS} pools of 49 kB, {BUDGETS} budgets of 1.2 MB"
            )),
    ])
}
