//! `make bench`: what a user of the operator pays, measured on the shipped programs.

mod cluster;
mod idle;
mod moments;
mod phases;
mod requests;
mod roll_out;
mod starts;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use brupop_testbed::await_signal;
use brupop_testbed::figures::{Figure, Report, take_over};
use clap::{Parser, ValueEnum};

/// Measures what a user of the operator pays, and prints it as one table.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench", version)]
struct Arguments {
    /// Measure only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// How often each small fleet is updated
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    times: u8,
    /// For how many seconds a fleet is idle
    #[arg(long, default_value_t = 600)]
    idle_seconds: u64,
    /// Print everything that happened to the node that took the median time
    #[arg(long)]
    timeline: bool,
    /// Have these figures in the table, too: files that other benchmarks have written by `--to`
    #[arg(long, num_args = 1..)]
    take_over: Vec<PathBuf>,
    /// Write all figures here, as JSON
    #[arg(long)]
    to: Option<PathBuf>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Fleets of 8 nodes: time and requests (six minutes)
    Rollout,
    /// A fleet of 200 nodes (two minutes)
    Large,
    /// How soon something happens (three minutes)
    Starts,
    /// A fleet with nothing to do (eleven minutes)
    Idle,
}

impl Part {
    async fn measure(self, arguments: &Arguments) -> Result<Vec<Figure>> {
        match self {
            Self::Rollout => roll_out::small(arguments.times.into(), arguments.timeline).await,
            Self::Large => roll_out::large(arguments.timeline).await,
            Self::Starts => starts::measure().await,
            Self::Idle => idle::measure(Duration::from_secs(arguments.idle_seconds)).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let _installed = rustls::crypto::ring::default_provider().install_default();
    // The test bed's guardian takes everything away as soon as a fleet is dropped, or this process is gone.
    tokio::select! {
        result = bench(&arguments) => result,
        signal = await_signal() => {
            let (by, code) = signal?;
            eprintln!("\n{by}; nothing is left behind");
            Ok(ExitCode::from(code))
        }
    }
}

/// Measures one part after the other. A part that fails is named in the end; the others are measured all the same.
async fn bench(arguments: &Arguments) -> Result<ExitCode> {
    let wanted = |part: &Part| arguments.only.is_empty() || arguments.only.contains(part);
    // Before anything is measured, so that a file that is missing is known at once.
    let others = arguments.take_over.iter().map(|from| take_over(from)).collect::<Result<Vec<_>>>()?;
    let mut report = Report::begin();
    let mut failed = vec![];
    let began = Instant::now();
    for part in Part::value_variants().iter().filter(|part| wanted(part)) {
        match part.measure(arguments).await {
            Ok(figures) => report.figures.extend(figures),
            Err(error) => {
                eprintln!("{part:?}: {error:#}");
                failed.push(part);
            }
        }
    }
    report.figures.extend(others.into_iter().flatten());
    println!("\n{}", report.render());
    eprintln!("measured in {} s", began.elapsed().as_secs());
    if let Some(to) = &arguments.to {
        report.write(to)?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("these parts failed, see above: {failed:?}");
    Ok(ExitCode::FAILURE)
}
