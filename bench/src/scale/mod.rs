//! The reconciler as shipped before more and more nodes, on a real API server. For a twentieth of them there is an update.

mod reconciler;
mod world;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use self::reconciler::{Asked, Reconciler};
use self::world::World;
use crate::say;
use crate::table::{Figure, number};

/// The sizes of the fleets.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// scale: the nodes of each fleet
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,5000", value_parser = clap::value_parser!(u32).range(10..=20_000))]
    nodes: Vec<u32>,
    /// scale: pods of tenants on each node
    #[arg(long, default_value_t = 30)]
    pods_per_node: u32,
}

/// Measures a fleet of each size.
pub async fn measure(options: &Options) -> Result<Vec<Figure>> {
    let mut figures = vec![];
    for nodes in &options.nodes {
        figures.extend(fleet(usize::try_from(*nodes)?, options).await?);
    }
    Ok(figures)
}

async fn fleet(nodes: usize, options: &Options) -> Result<Vec<Figure>> {
    let pods = usize::try_from(options.pods_per_node)?;
    // The last node does not wait from the beginning. Those between have nothing to do all the time.
    let spare = nodes - 1;
    let waiting = nodes.div_ceil(20).min(spare - 1);
    say(&format!(
        "making {nodes} nodes, each with its shadow, its agent's pod, and {pods} pods of tenants"
    ));
    let world = World::start().await?;
    world.populate(nodes, pods, waiting).await?;

    say("the first start: no shadow says yet why it does not move");
    let mut asked = Asked::from_now(&world.control_plane);
    let (first, _) = start(&world, &mut asked).await?;
    asked.until_settled().await?;
    let at_work = first.usage()?;

    say("the next one takes over");
    first.end().await?;
    asked.until_settled().await?;
    world.is_known(spare).await?;
    let (second, to_first_action) = start(&world, &mut asked).await?;
    asked.until_settled().await?;

    say("nothing is to be done, and pods change");
    let (silence, idle, began) = (asked.writes, second.usage()?, Instant::now());
    let changes = world
        .change_pods(waiting..spare, pods, Duration::from_secs(10))
        .await?;
    let (took, later) = (began.elapsed().as_secs_f64(), second.usage()?);
    asked.read()?;
    let writes = number(asked.writes - silence);
    let cpu = later.cpu.saturating_sub(idle.cpu).as_secs_f64() / took * 100.0;

    let fleet = format!("{nodes} nodes x {pods} pods");
    let figure = |what: &str, value, unit| Figure::new(format!("{what}, {fleet}"), value, unit);
    let peak = later.peak.max(at_work.peak);
    let rate = format!("{:.0} in a second", number(changes) / took);
    Ok(vec![
        figure("reconciler: start to first action", to_first_action, "s").aim(10.0),
        figure("reconciler: resident, idle", idle.resident, "MiB"),
        figure("reconciler: resident, at most", peak, "MiB").aim(if nodes <= 1000 {
            40.0
        } else {
            120.0
        }),
        figure("reconciler: writes while pods change", writes, "").aim(0.0),
        figure("reconciler: CPU while pods change", cpu, "%")
            .aim(5.0)
            .note(rate),
    ])
}

/// Starts the reconciler; returns when it has acted, and how many seconds that took.
async fn start(world: &World, asked: &mut Asked) -> Result<(Reconciler, f64)> {
    let begun = asked.actions;
    let reconciler = Reconciler::start(&world.control_plane).await?;
    let has_acted = |asked: &Asked| asked.actions > begun;
    asked.until("the first action", has_acted).await?;
    let took = reconciler.since.elapsed().as_secs_f64();
    Ok((reconciler, took))
}
