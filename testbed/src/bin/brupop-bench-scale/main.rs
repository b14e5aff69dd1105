//! `make bench-scale`: the reconciler as shipped before thousands of nodes, on a real API server.

mod agents;
mod asked;
mod process;
mod report;
mod tenants;
mod world;
mod worst;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brupop_testbed::figures::{hand_over, median, number};
use brupop_testbed::growth::Point;
use clap::Parser;
use jiff::{SignedDuration, Timestamp};

use crate::agents::Agents;
use crate::asked::Asked;
use crate::process::Reconciler;
use crate::report::Measured;
use crate::world::World;

/// Measures the reconciler's start, memory and requests before many nodes, most of which have nothing to do.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench-scale", version)]
struct Arguments {
    /// How many nodes
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    nodes: u32,
    /// Of how many of them there is an update; they wait for a slot
    #[arg(long, default_value_t = 100)]
    waiting: u32,
    /// How many are updated at once, as a number or a percentage
    #[arg(long, default_value = "1")]
    limit: String,
    /// How many of these are updated, one after the other, while requests are counted. With 0 all are, and none is counted
    #[arg(long, default_value_t = 10)]
    updates: u32,
    /// How long nothing is to be written in the end, and how long pods change then
    #[arg(long, default_value_t = 60)]
    quiet_seconds: u32,
    /// Pods of tenants on each node
    #[arg(long, default_value_t = 0)]
    pods_per_node: u32,
    /// How many of them are evicted when their node is drained; all, if it is not said
    #[arg(long)]
    evicted_per_node: Option<u32>,
    /// `PodDisruptionBudget`s of tenants
    #[arg(long, default_value_t = 0)]
    budgets: u32,
    /// Budgets with 1.2 MB of labels each: anybody with a namespace can make them
    #[arg(long, default_value_t = 0)]
    large_budgets: u32,
    /// Measures only the memory beside the worst that tenants and editors of pools can make
    #[arg(long)]
    worst: bool,
    /// kwok renews the nodes' leases
    #[arg(long)]
    kwok: bool,
    /// Write figures here, as JSON, for `brupop-bench --take-over`
    #[arg(long)]
    to: Option<PathBuf>,
    /// Write what grows with the number of nodes here, as JSON, for `brupop-bench-growth`
    #[arg(long)]
    point: Option<PathBuf>,
}

/// Longest wait for a step that writes to every node.
const DEADLINE: Duration = Duration::from_mins(10);
/// How many nodes get to know of an update while nothing else goes on.
const RELEASES: usize = 5;

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
    if arguments.worst {
        let figures = worst::measure().await?;
        for figure in &figures {
            println!("{figure:?}");
        }
        return arguments.to.as_ref().map_or(Ok(()), |to| hand_over(&figures, to));
    }
    let measured = measure(arguments).await?;
    println!("{}", report::render(arguments, &measured));
    let figures = report::figures(arguments, &measured);
    if let Some(to) = &arguments.to {
        hand_over(&figures, to)?;
    }
    if let Some(to) = &arguments.point {
        let figures = report::growing(arguments.nodes, &measured);
        Point::new(usize::try_from(arguments.nodes)?, figures).write(to)?;
    }
    report::check(&measured)
}

async fn measure(arguments: &Arguments) -> Result<Measured> {
    let count = |number: u32| usize::try_from(number);
    let (nodes, updates) = (count(arguments.nodes)?, count(arguments.updates)?);
    // This node, and those after it, do not wait from the beginning.
    let spare = nodes - RELEASES - 1;
    // Those between have nothing to do all the time.
    let waiting = count(arguments.waiting)?.min(spare - 1);
    let began = Instant::now();
    let say = |what: &str| eprintln!("{:>5} s  {what}", began.elapsed().as_secs());
    say("starting the control plane and the webhook");
    let world = World::start(arguments.kwok).await?;
    say(&format!("making {nodes} nodes, each with its shadow and its agent's pod"));
    world.populate(nodes, waiting).await?;
    say("making what tenants have");
    let pods = arguments.pods_per_node;
    let evicted = arguments.evicted_per_node.unwrap_or(pods);
    tenants::make_pods(&world.control_plane, nodes, count(pods)?, count(evicted)?).await?;
    tenants::make_budgets(&world.client(), count(arguments.budgets)?, count(arguments.large_budgets)?)
        .await?;
    let _agents = Agents::start(world.client());

    say("first start: no shadow says yet why it does not move");
    let mut asked = Asked::from_now(&world.control_plane);
    let (first, first_start) = start(&world, &arguments.limit, &mut asked).await?;
    asked.until("every shadow says why", DEADLINE, |asked| asked.conditions.len() >= nodes).await?;
    let all_said = first.since.elapsed();
    say("every shadow says why; updates go on");
    asked.until_settled().await?;
    let before = asked.clone();
    let so_many = |asked: &asked::Counts| asked.begun.len() >= before.begun.len() + updates;
    asked.until("so many updates", DEADLINE, so_many).await.with_context(|| first.tail())?;
    let run = asked.since(&before);
    if updates == 0 {
        world.rests().await.with_context(|| first.tail())?;
    }
    let at_work = first.usage()?;

    say("the next one takes over");
    first.end().await?;
    asked.until_settled().await?;
    world.is_known(spare).await?;
    let (second, second_start) = start(&world, &arguments.limit, &mut asked).await?;
    world.nothing_waits(nodes).await?;
    say("nothing is to be done any more; one node after the other gets to know of the update");
    asked.until_settled().await?;
    let before = asked.clone();
    let known = releases(&world, &mut asked, nodes).await?;
    let one_by_one = asked.since(&before);
    say("nothing is to be done any more");
    let quiet = Duration::from_secs(arguments.quiet_seconds.into());
    let load = Load::of(&second)?;
    let silence = asked.clone();
    let beats = world.heartbeats(nodes, quiet).await?;
    let (cpu, _) = load.since(&second)?;
    asked.read()?;
    let silence = asked.since(&silence);
    say("pods change");
    let load = Load::of(&second)?;
    let changes = tenants::change_pods(&world.client(), waiting..spare, count(pods)?, quiet).await?;
    let (cpu_of_pods, took) = load.since(&second)?;
    let pods_per_second = number(changes) / took.as_secs_f64();
    let later = second.usage()?;
    let webhook = world.webhook()?;
    Ok(Measured {
        first_start,
        second_start,
        all_said,
        known,
        updates,
        run,
        one_by_one,
        at_work,
        silence,
        beats,
        cpu,
        cpu_of_pods,
        pods_per_second,
        later,
        webhook,
    })
}

/// What a reconciler had taken of the processor at some time.
struct Load {
    cpu: Duration,
    at: Instant,
}

impl Load {
    fn of(reconciler: &Reconciler) -> Result<Self> {
        Ok(Self { cpu: reconciler.usage()?.cpu, at: Instant::now() })
    }

    /// The part of a core that it has taken since, in percent, and how long that is.
    fn since(&self, reconciler: &Reconciler) -> Result<(f64, Duration)> {
        let (cpu, took) = (reconciler.usage()?.cpu.saturating_sub(self.cpu), self.at.elapsed());
        Ok((cpu.as_secs_f64() / took.as_secs_f64() * 100.0, took))
    }
}

/// Starts the reconciler; returns when it has acted, and how long that took.
async fn start(world: &World, limit: &str, asked: &mut Asked) -> Result<(Reconciler, Duration)> {
    let begun = asked.actions.len();
    let reconciler = Reconciler::start(&world.control_plane, limit).await?;
    asked.until("the first action", DEADLINE, |asked| asked.actions.len() > begun).await?;
    let took = reconciler.since.elapsed();
    Ok((reconciler, took))
}

/// From the report of an agent that its host has chosen an update to the first change of a spec, where nothing else goes
/// on: the median of some nodes, one after the other.
async fn releases(world: &World, asked: &mut Asked, nodes: usize) -> Result<SignedDuration> {
    let mut times = vec![];
    for nth in 1..=RELEASES {
        asked.read()?;
        let (acted, known) = (asked.actions.len(), Timestamp::now());
        world.is_known(nodes - nth).await?;
        asked.until("a change of a spec", DEADLINE, |asked| asked.actions.len() > acted).await?;
        times.push(asked.actions[acted].duration_since(known));
        world.nothing_waits(nodes).await?;
        asked.until_settled().await?;
    }
    median(times).context("nothing was measured")
}
