//! `make chaos`: the shipped operator on a real control plane, with faults from a seed, and a checker that shares no
//! code with what decides.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of rows"))]

mod apply;
mod checker;
mod fault;
mod impostor;
mod people;
mod run;
mod schedule;
mod watch;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use brupop_testbed::run::{run as until_ended, status};
use clap::Parser;

use checker::Violation;
use fault::Plan;
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
    /// Number of seeds to run in turn: this one and those that follow
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Seconds for which faults are made
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// A file with the faults to make, in place of those of a seed
    #[arg(long, conflicts_with_all = ["seed", "seeds", "seconds"])]
    schedule: Option<PathBuf>,
    /// Folder for schedules, and for the logs of runs that fail
    #[arg(long, default_value = "target/chaos")]
    to: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    until_ended(async { all(&arguments).await.map(status) }).await
}

/// Runs what is asked for; returns whether nothing was found.
async fn all(arguments: &Arguments) -> Result<bool> {
    std::fs::create_dir_all(&arguments.to).with_context(|| arguments.to.display().to_string())?;
    if let Some(file) = &arguments.schedule {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        return Ok(holds(arguments, &name, &schedule::parse(&text)?).await);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let first = arguments.seed.unwrap_or(now.as_secs());
    let mut failed = vec![];
    for seed in first..first.saturating_add(arguments.seeds) {
        let plan = schedule::plan(seed, Duration::from_secs(arguments.seconds));
        let name = format!("seed-{seed}");
        let file = arguments.to.join(format!("{name}.jsonl"));
        std::fs::write(&file, schedule::print(&plan))
            .with_context(|| file.display().to_string())?;
        if !holds(arguments, &name, &plan).await {
            failed.push(seed);
        }
    }
    if arguments.seeds > 1 {
        println!(
            "== {} seeds from {first} on, violations in {failed:?}",
            arguments.seeds
        );
    }
    Ok(failed.is_empty())
}

/// Runs one plan; returns whether nothing was found.
async fn holds(arguments: &Arguments, name: &str, plan: &Plan) -> bool {
    println!(
        "== {name}: {} faults; {:?}",
        plan.steps.len(),
        plan.settings
    );
    let found = run(plan, &arguments.to.join(name)).await;
    let found = found.unwrap_or_else(|error| vec![Violation::new(TEST_BED, format!("{error:#}"))]);
    for violation in &found {
        println!("   VIOLATED {violation}");
    }
    if found.is_empty() {
        println!("== {name}: nothing was violated");
    }
    found.is_empty()
}
