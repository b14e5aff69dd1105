//! `make chaos`: the shipped operator on a real control plane, with faults from a seed, and a checker that shares no
//! code with what decides.

mod apply;
mod asked;
mod checker;
mod fault;
mod hosts;
mod impostor;
mod people;
mod pools;
mod prometheus;
mod random;
mod refuser;
mod report;
mod rogue;
mod run;
mod schedule;
mod tenants;
mod watch;
mod workloads;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use brupop_testbed::await_signal;
use clap::Parser;

use checker::Violation;
use fault::Plan;
use report::Report;
use run::{TEST_BED, run};

/// The namespace of the workloads.
pub(crate) const SHOP: &str = "shop";

/// Makes faults in a simulated cluster while the operator updates it, and checks what must hold whatever happens.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-chaos", version)]
struct Arguments {
    /// The faults follow from it; any, if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds are run, one after the other: this one and those that follow
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Whether there are pools, whatever the seed says
    #[arg(long)]
    pools: Option<bool>,
    /// How long faults are made
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// How many nodes
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: u16,
    /// A file with the faults to make, in place of those of a seed
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    schedule: Option<PathBuf>,
    /// Print what follows from the seed, and do nothing
    #[arg(long, conflicts_with = "schedule")]
    print: bool,
    /// End a run at the first violation
    #[arg(long)]
    stop: bool,
    /// Folder for schedules, and for the logs of runs that fail
    #[arg(long, default_value = "target/chaos")]
    to: PathBuf,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let _installed = rustls::crypto::ring::default_provider().install_default();
    // The test bed's guardian takes everything away as soon as the fleet is dropped, or this process is gone.
    tokio::select! {
        passed = Box::pin(all(&arguments)) => Ok(if passed? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        signal = await_signal() => Ok(ExitCode::from(signal?.1)),
    }
}

/// Runs what is asked for; returns whether nothing was found.
async fn all(arguments: &Arguments) -> Result<bool> {
    std::fs::create_dir_all(&arguments.to).with_context(|| arguments.to.display().to_string())?;
    if let Some(file) = &arguments.schedule {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let report = one(arguments, &name, file, schedule::parse(&text)?).await?;
        return Ok(report.violations.is_empty());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let first = arguments.seed.unwrap_or(now.as_secs());
    let length = Duration::from_secs(arguments.seconds);
    let (mut failed, mut sum) = (vec![], Report::default());
    for seed in first..first.saturating_add(arguments.seeds) {
        let plan = schedule::plan(seed, length, arguments.nodes.into(), arguments.pools);
        if arguments.print {
            print!("{}", schedule::print(&plan));
            continue;
        }
        let name = format!("seed-{seed}");
        let file = arguments.to.join(format!("{name}.jsonl"));
        std::fs::write(&file, schedule::print(&plan)).with_context(|| file.display().to_string())?;
        let report = one(arguments, &name, &file, plan).await.unwrap_or_else(|error| {
            println!("== {name}: the test bed has failed: {error:#}");
            Report { violations: vec![Violation::new(TEST_BED, format!("{error:#}"))], ..Report::default() }
        });
        if !report.violations.is_empty() {
            failed.push(seed);
        }
        sum.add(report);
    }
    if arguments.seeds > 1 && !arguments.print {
        println!("== {} seeds from {first} on, violations in {failed:?}: {sum}", arguments.seeds);
    }
    Ok(failed.is_empty())
}

/// One plan, which is in this file.
async fn one(arguments: &Arguments, name: &str, file: &Path, plan: Plan) -> Result<Report> {
    println!("== {name}: {} faults, in {}; {:?}", plan.steps.len(), file.display(), plan.settings);
    let report = run(&plan, arguments.stop, Some(&arguments.to.join(name))).await?;
    println!("== {name}: {report}");
    Ok(report)
}
