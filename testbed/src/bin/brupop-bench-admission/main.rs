//! `make bench-admission`: what admission costs an agent's status patch, on a real API server.

mod cluster;
mod do_nothing;
mod measure;
mod ports;
mod reports;
mod table;
mod variants;
mod waits;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use brupop_testbed::figures::hand_over;
use clap::{Parser, Subcommand};
use cluster::Cluster;

/// Measures status patches of agents with and without webhook and policies, interleaved, in one run.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench-admission", version)]
struct Arguments {
    /// How often each variant has its turn
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Write figures here, as JSON, for `brupop-bench --take-over`
    #[arg(long)]
    to: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// The webhook that ours is compared with; the benchmark runs it
    DoNothing(do_nothing::Options),
    /// Measures who is served by the webhook during a flood of connections
    Ports,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // As our webhook has it; and the benchmark itself has no more cores than that either.
    let runtime = runtime.worker_threads(2).enable_all().build();
    let result = runtime.map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            match arguments.command {
                Some(Command::DoNothing(options)) => do_nothing::serve(options).await,
                Some(Command::Ports) => ports::bench().await,
                None => bench(arguments.rounds, arguments.to.as_deref()).await,
            }
        })
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(rounds: u32, to: Option<&Path>) -> Result<()> {
    eprintln!(
        "starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, and both webhooks"
    );
    let cluster = Cluster::start().await?;
    eprintln!("measuring");
    let measured = measure::all(&cluster, rounds).await?;
    let waits = cluster.waits().await?;
    measure::check(&measured, &waits)?;
    println!("{}", table::render(&measured, &waits));
    if let Some(to) = to {
        hand_over(&table::figures(&measured), to)?;
    }
    Ok(())
}
