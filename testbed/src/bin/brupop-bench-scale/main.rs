//! `make bench-scale`: the reconciler as shipped before thousands of nodes, on a real API server.

mod agents;
mod asked;
mod process;
mod tenants;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::await_until;
use clap::Parser;

use crate::agents::Agents;
use crate::asked::Asked;
use crate::process::Reconciler;
use crate::world::World;

/// Measures the reconciler's start, memory and requests before many nodes, most of which have nothing to do.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench-scale", version)]
struct Arguments {
    /// How many nodes
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(20..=20_000))]
    nodes: u32,
    /// Of how many of them there is an update; they wait for one slot
    #[arg(long, default_value_t = 100)]
    waiting: u32,
    /// How many are updated, one after the other, while requests are counted
    #[arg(long, default_value_t = 10)]
    updates: u32,
    /// How long nothing is to be written in the end
    #[arg(long, default_value_t = 60)]
    quiet_seconds: u32,
    /// Pods of tenants on each node; they are evicted when their node is drained
    #[arg(long, default_value_t = 0)]
    pods_per_node: u32,
    /// `PodDisruptionBudget`s of tenants
    #[arg(long, default_value_t = 0)]
    budgets: u32,
    /// Budgets with 1.2 MB of labels each: anybody with a namespace can make them
    #[arg(long, default_value_t = 0)]
    large_budgets: u32,
    /// kwok renews the nodes' leases
    #[arg(long)]
    kwok: bool,
}

/// Longest wait for a step that writes to every node.
const DEADLINE: Duration = Duration::from_mins(10);
/// What is aimed at, at 5,000 nodes.
const FIRST_ACTION: Duration = Duration::from_secs(10);
const MEMORY_MIB: f64 = 200.0;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(bench(&arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(arguments: &Arguments) -> Result<()> {
    let (nodes, updates) = (usize::try_from(arguments.nodes)?, usize::try_from(arguments.updates)?);
    let began = Instant::now();
    let say = |what: &str| eprintln!("{:>5} s  {what}", began.elapsed().as_secs());
    say("starting the control plane and the webhook");
    let world = World::start(arguments.kwok).await?;
    say(&format!("making {nodes} nodes, each with its shadow and its agent's pod"));
    world.populate(nodes, usize::try_from(arguments.waiting)?).await?;
    say("making what tenants have");
    let count = |number: u32| usize::try_from(number);
    tenants::make_pods(&world.client(), nodes, count(arguments.pods_per_node)?).await?;
    tenants::make_budgets(&world.client(), count(arguments.budgets)?, count(arguments.large_budgets)?)
        .await?;
    let _agents = Agents::start(world.client());

    say("first start: no shadow says yet why it does not move");
    let mut asked = Asked::from_now(&world.control_plane);
    let (first, first_start) = start(&world, &mut asked).await?;
    asked.until("every shadow says why", DEADLINE, |asked| asked.conditions.len() >= nodes).await?;
    let all_said = first.since.elapsed();
    say("every shadow says why; updates go on");
    asked.until_settled().await?;
    let before = asked.clone();
    let so_many = |asked: &asked::Counts| asked.begun.len() >= before.begun.len() + updates;
    asked.until("so many updates", DEADLINE, so_many).await.with_context(|| first.tail())?;
    let run = asked.since(&before);
    let at_work = first.usage()?;
    let moved = run.conditions.len();

    say("the next one takes over");
    first.end().await?;
    asked.until_settled().await?;
    let (second, second_start) = start(&world, &mut asked).await?;
    world.nothing_waits(nodes).await?;
    say("nothing is to be done any more");
    asked.until_settled().await?;
    let cpu = second.usage()?.cpu;
    let quiet = Duration::from_secs(arguments.quiet_seconds.into());
    let heartbeats = world.heartbeats(nodes, quiet);
    let silence = asked.clone();
    let (since, beats) = (Instant::now(), heartbeats.await?);
    await_until("the quiet time", DEADLINE, async || (since.elapsed() >= quiet).then_some(())).await?;
    asked.read()?;
    let silence = asked.since(&silence);
    let later = second.usage()?;
    let cpu = later.cpu.saturating_sub(cpu).as_secs_f64() / since.elapsed().as_secs_f64() * 100.0;

    let Arguments { pods_per_node, budgets, large_budgets, kwok, .. } = *arguments;
    let kwok = if kwok { ", kwok" } else { "" };
    println!(
        "| {nodes} nodes x {pods_per_node} pods, {budgets} budgets, {large_budgets} large budgets{kwok} | measured | aim |"
    );
    println!("|---|---|---|");
    let row = |what: &str, measured: String, aim: &str| println!("| {what} | {measured} | {aim} |");
    let aim = format!("{} s", FIRST_ACTION.as_secs());
    row("start to first action, nothing said yet", seconds(first_start), &aim);
    row("start to first action, all said", seconds(second_start), &aim);
    row("start until every shadow says why", seconds(all_said), "");
    row(
        "resident memory at work; at most",
        format!("{:.0} MiB; {:.0} MiB", at_work.resident, at_work.peak),
        "200 MiB",
    );
    let quiet_memory = format!("{:.0} MiB; {:.0} MiB", later.resident, later.peak);
    row("resident memory, later, quiet; at most", quiet_memory, "200 MiB");
    let per_update = |count: usize| {
        format!("{:.1}", f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / f64::from(arguments.updates))
    };
    row("requests of the reconciler per update: all", per_update(run.requests()), "");
    for (what, count) in &run.by_kind {
        row(&format!("- {what}"), per_update(*count), "");
    }
    row(
        &format!("nodes whose condition was written in {updates} updates"),
        moved.to_string(),
        &format!("{}", updates + 1),
    );
    row(
        &format!("writes in {} s with {beats} heartbeats, Lease and dry runs apart", quiet.as_secs()),
        silence.writes().to_string(),
        "0",
    );
    row("CPU meanwhile", format!("{cpu:.1} % of a core"), "");
    ensure!(silence.writes() == 0, "written while nothing was to be done: {:?}", silence.by_kind);
    // The one that is in mid-update when the count begins, and the one that is when it ends.
    ensure!(moved <= updates + 2, "conditions of {moved} nodes changed in {updates} updates");
    ensure!(first_start <= FIRST_ACTION && second_start <= FIRST_ACTION, "the first action came late");
    ensure!(later.peak.max(at_work.peak) <= MEMORY_MIB, "too much memory");
    Ok(())
}

/// Starts the reconciler; returns when it has acted, and how long that took.
async fn start(world: &World, asked: &mut Asked) -> Result<(Reconciler, Duration)> {
    let begun = asked.actions;
    let reconciler = Reconciler::start(&world.control_plane).await?;
    asked.until("the first action", DEADLINE, |asked| asked.actions > begun).await?;
    let took = reconciler.since.elapsed();
    Ok((reconciler, took))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
