//! The reconciler as shipped before more and more nodes, on a real API server. Twentieths of them are updated at once.

mod agents;
mod asked;
mod reconciler;
pub mod tenants;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brupop_testbed::median;
use clap::Args;
use jiff::Timestamp;

pub use agents::Agents;
pub use asked::Asked;
pub use reconciler::Reconciler;
pub use world::World;

use crate::say;
use crate::table::{Figure, number};

/// What is aimed at, at 5,000 nodes.
const FIRST_ACTION_SECONDS: f64 = 10.0;
/// What is aimed at while pods change, as a part of a core in percent.
const CPU_OF_PODS: f64 = 5.0;
/// How many nodes get to know of an update while nothing else goes on.
const RELEASES: usize = 5;
/// How many nodes are updated at once.
const LIMIT: &str = "5%";

/// How large the fleets are.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// scale: the nodes of each fleet
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,5000", value_parser = clap::value_parser!(u32).range(10..=20_000))]
    nodes: Vec<u32>,
    /// scale: pods of tenants on each node
    #[arg(long, default_value_t = 30)]
    pods_per_node: u32,
    /// scale: `PodDisruptionBudget`s of tenants
    #[arg(long, default_value_t = 300)]
    budgets: u32,
    /// scale: for how long nothing is to be written, and for how long pods change then
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    quiet_seconds: u64,
}

/// Returns how much memory the reconciler should need at most, in MiB.
fn memory_aim(nodes: usize) -> f64 {
    if nodes <= 1000 { 40.0 } else { 120.0 }
}

/// Returns how many seconds it should take from a release that an agent knows to the first spec that moves.
fn known_aim(nodes: usize) -> f64 {
    match nodes {
        0..=10 => 0.1,
        _ => 0.5,
    }
}

/// Measures each fleet.
pub async fn measure(options: &Options) -> Result<Vec<Figure>> {
    let mut figures = vec![];
    for nodes in &options.nodes {
        figures.extend(fleet(usize::try_from(*nodes)?, options).await?);
    }
    Ok(figures)
}

async fn fleet(nodes: usize, options: &Options) -> Result<Vec<Figure>> {
    let (pods, budgets) = (
        usize::try_from(options.pods_per_node)?,
        usize::try_from(options.budgets)?,
    );
    // This node, and those after it, do not wait from the beginning. Those between have nothing to do all the time.
    let spare = nodes - RELEASES - 1;
    let waiting = nodes.div_ceil(20);
    say(&format!(
        "making {nodes} nodes, each with its shadow, its agent's pod, and {pods} pods of tenants"
    ));
    let world = World::start().await?;
    world.populate(nodes, waiting).await?;
    tenants::make_pods(world.control_plane(), nodes, pods).await?;
    tenants::make_budgets(&world.client(), budgets, 0).await?;
    let _agents = Agents::start(world.client());

    say("the first start: no shadow says yet why it does not move");
    let mut asked = Asked::from_now(world.control_plane());
    let (first, _) = start(&world, LIMIT, &mut asked).await?;
    asked
        .until("every shadow says why", |asked| {
            asked.conditions.len() >= nodes
        })
        .await?;
    let all_said = first.since.elapsed();
    asked.until_settled().await?;
    world.rests().await.with_context(|| first.tail())?;
    let at_work = first.usage()?;

    say("the next one takes over");
    first.end().await?;
    asked.until_settled().await?;
    world.is_known(spare).await?;
    let (second, to_first_action) = start(&world, LIMIT, &mut asked).await?;
    world.nothing_waits(nodes).await?;
    asked.until_settled().await?;
    say("one node after the other gets to know of the update");
    let known = releases(&world, &mut asked, nodes).await?;

    say("nothing is to be done");
    let quiet = Duration::from_secs(options.quiet_seconds);
    let silence = asked.writes.len();
    let beats = world.heartbeats(nodes, quiet).await?;
    asked.read()?;
    let writes = number(asked.writes.len() - silence);
    let idle = second.usage()?;
    say("pods change");
    let began = Instant::now();
    let changes = tenants::change_pods(&world.client(), waiting..spare, pods, quiet).await?;
    let took = began.elapsed().as_secs_f64();
    let later = second.usage()?;
    let cpu = later.cpu.saturating_sub(idle.cpu).as_secs_f64() / took * 100.0;

    let fleet = format!("{nodes} nodes x {pods} pods");
    let (to_first_action, all_said) = (to_first_action.as_secs_f64(), all_said.as_secs_f64());
    Ok(vec![
        Figure::new(
            format!("release known to an agent -> first spec moves, {fleet}"),
            known,
            "s",
        )
        .aim(known_aim(nodes))
        .note(format!("median of {RELEASES}, nothing else goes on")),
        Figure::new(
            format!("reconciler: start to first action, {fleet}"),
            to_first_action,
            "s",
        )
        .aim(FIRST_ACTION_SECONDS),
        Figure::new(
            format!("reconciler: first start until every shadow says why, {fleet}"),
            all_said,
            "s",
        ),
        Figure::new(
            format!("reconciler: resident, idle, {fleet}"),
            idle.resident,
            "MiB",
        ),
        Figure::new(
            format!("reconciler: resident, at most, {fleet}"),
            later.peak.max(at_work.peak),
            "MiB",
        )
        .aim(memory_aim(nodes)),
        Figure::new(
            format!("reconciler: writes while nothing is to be done, {fleet}"),
            writes,
            "",
        )
        .aim(0.0)
        .note(format!("in {} s with {beats} heartbeats", quiet.as_secs())),
        Figure::new(
            format!("reconciler: CPU while pods change, {fleet}"),
            cpu,
            "%",
        )
        .aim(CPU_OF_PODS)
        .note(format!("{:.0} in a second", number(changes) / took)),
    ])
}

/// Starts the reconciler; returns when it has acted, and how long that took.
pub async fn start(
    world: &World,
    limit: &str,
    asked: &mut Asked,
) -> Result<(Reconciler, Duration)> {
    let begun = asked.actions.len();
    let reconciler = Reconciler::start(world.control_plane(), limit).await?;
    asked
        .until("the first action", |asked| asked.actions.len() > begun)
        .await?;
    let took = reconciler.since.elapsed();
    Ok((reconciler, took))
}

/// From the report of an agent that its host has chosen an update to the first change of a spec, where nothing else goes
/// on: the median of some nodes, one after the other, in seconds.
async fn releases(world: &World, asked: &mut Asked, nodes: usize) -> Result<f64> {
    let mut times = vec![];
    for nth in 1..=RELEASES {
        asked.read()?;
        let (acted, known) = (asked.actions.len(), Timestamp::now());
        world.is_known(nodes - nth).await?;
        asked
            .until("a change of a spec", |asked| asked.actions.len() > acted)
            .await?;
        times.push(asked.actions[acted].duration_since(known).as_secs_f64());
        world.nothing_waits(nodes).await?;
        asked.until_settled().await?;
    }
    median(times).context("nothing was measured")
}
