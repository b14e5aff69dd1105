//! `make bench`: what a user of the operator pays, measured on the shipped programs.

mod cases;
mod fleet;
mod policies;
mod requests;
mod roll_out;
mod scale;
mod starts;
mod table;

use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Result, ensure};
use brupop_testbed::run::run;
use clap::{Parser, ValueEnum};

use crate::table::{Figure, Report};

/// Measures what a user of the operator pays, and prints it as one table.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench", version)]
struct Arguments {
    /// Measure only these parts, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// roll-out: how often each small fleet is updated
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    times: u8,
    /// roll-out, requests: the nodes of the large fleet
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(10..))]
    large: u16,
    #[command(flatten)]
    scale: scale::Options,
}

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A pass of the reconciler over 5,000 nodes, and a verdict of the webhook (seconds)
    Pass,
    /// Duration of updates of 8 and of 200 nodes (five minutes)
    RollOut,
    /// Requests to the API server for each updated node (three minutes)
    Requests,
    /// The report of a kubelet with and without the operator's policies (seconds)
    Policies,
    /// Delays of an update, a change of leaders and a start; and memory (three minutes)
    Starts,
    /// The reconciler with more and more nodes: start, memory, CPU (ten minutes)
    Scale,
}

impl Part {
    async fn measure(self, arguments: &Arguments) -> Result<Vec<Figure>> {
        match self {
            Self::Pass => Ok(cases::measure()),
            Self::RollOut => {
                roll_out::measure(arguments.times.into(), arguments.large.into()).await
            }
            Self::Requests => roll_out::requests(arguments.large.into()).await,
            Self::Policies => policies::measure().await,
            Self::Starts => starts::measure().await,
            Self::Scale => scale::measure(&arguments.scale).await,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    run(bench(&Arguments::parse())).await
}

/// Measures one part after the other. A part that fails is named in the end; the others are measured all the same.
async fn bench(arguments: &Arguments) -> Result<ExitCode> {
    let mut report = Report::begin();
    let wanted = |part: &Part| arguments.only.is_empty() || arguments.only.contains(part);
    let mut failed = vec![];
    for part in Part::value_variants().iter().filter(|part| wanted(part)) {
        say(&format!("{part:?}"));
        match Box::pin(part.measure(arguments))
            .await
            .and_then(all_measured)
        {
            Ok(figures) => report.figures.extend(figures),
            Err(error) => {
                say(&format!("{part:?} failed: {error:#}"));
                failed.push(part);
            }
        }
    }
    say("done");
    println!("\n{}", report.render());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("these parts failed, see above: {failed:?}");
    Ok(ExitCode::FAILURE)
}

fn all_measured(figures: Vec<Figure>) -> Result<Vec<Figure>> {
    for figure in &figures {
        ensure!(figure.value.is_finite(), "{} was not measured", figure.name);
    }
    Ok(figures)
}

/// Prints what is done now, with the seconds since the program's start.
fn say(what: &str) {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    eprintln!("{:>5} s  {what}", BEGAN.elapsed().as_secs());
}
