//! `make neighbours`: programs that users run in the same cluster, as they are published, beside the shipped operator.

mod cert_manager;
mod git_ops;
mod karpenter;
mod launched;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use brupop_testbed::binaries::neighbours;
use brupop_testbed::run;
use clap::{Parser, ValueEnum};

/// Runs programs that users have in the same cluster beside the shipped operator, while it updates simulated hosts on a
/// real control plane. Prints what held.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-neighbours", version)]
struct Arguments {
    /// Run only these neighbours, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<Neighbour>,
    /// Path of kubectl's plugin, kubectl-brupop
    #[arg(long)]
    plugin: PathBuf,
}

/// A program that runs beside the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Neighbour {
    /// Karpenter removes nodes that are empty and launches others (seven minutes)
    Karpenter,
    /// Flux' engine applies what is in Git again and again (one minute)
    Flux,
    /// Argo CD's engine compares what is in Git with the cluster (one minute)
    ArgoCd,
    /// cert-manager renews the webhook's certificate every ten seconds (three minutes)
    CertManager,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run::run(async { all(&arguments).await.map(run::status) }).await
}

/// One after the other. One that cannot be run is named in the end; the others are run all the same.
async fn all(arguments: &Arguments) -> Result<bool> {
    let wanted = |it: &Neighbour| arguments.only.is_empty() || arguments.only.contains(it);
    let programs = neighbours().await?;
    let mut checks = vec![];
    for neighbour in Neighbour::value_variants().iter().filter(|it| wanted(it)) {
        eprintln!("-- {neighbour:?}");
        let checked = match neighbour {
            Neighbour::Karpenter => karpenter::beside(&programs).await,
            Neighbour::Flux => git_ops::flux(&programs, &arguments.plugin).await,
            Neighbour::ArgoCd => git_ops::argo_cd(&programs).await,
            Neighbour::CertManager => cert_manager::beside(&programs).await,
        };
        checks.extend(
            checked.unwrap_or_else(|error| vec![(false, format!("{neighbour:?}: {error:#}"))]),
        );
    }
    println!("\n{}", std::fs::read_to_string(programs.join("versions"))?);
    Ok(run::told(&checks))
}
