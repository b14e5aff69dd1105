//! `make bench`: what a user of the operator pays, measured on the shipped programs.

mod moments;
mod phases;
mod requests;
mod roll_out;

use std::process::ExitCode;

use anyhow::Result;
use brupop_testbed::await_signal;
use clap::Parser;

use crate::roll_out::{Place, RollOut};

/// Measures roll-outs by the shipped programs on a real control plane: time and requests for each node.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench", version)]
struct Arguments {
    /// Print everything that happened to one node, the one that took the median time
    #[arg(long)]
    timeline: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let _installed = rustls::crypto::ring::default_provider().install_default();
    // The test bed's guardian takes everything away as soon as a fleet is dropped, or this process is gone.
    tokio::select! {
        result = bench(&arguments) => result.map(|()| ExitCode::SUCCESS),
        signal = await_signal() => {
            let (by, code) = signal?;
            eprintln!("\n{by}; nothing is left behind");
            Ok(ExitCode::from(code))
        }
    }
}

async fn bench(arguments: &Arguments) -> Result<()> {
    let (nodes, limit) = (8, "4");
    for place in [Place::OnTheFleet, Place::Elsewhere] {
        eprintln!("{nodes} nodes, limit {limit}, our own pods {place}");
        let measured = RollOut::run(nodes, limit, place).await?;
        println!(
            "\n{nodes} nodes, limit {limit}, our own pods {place}: overhead per node {:.2} s (median), all of it {:.2} s\n",
            measured.overhead().as_secs_f64(),
            measured.took.as_secs_f64(),
        );
        println!("{}", requests::render(&measured.requests, nodes));
        println!("{}", phases::render(&measured.moments));
        if arguments.timeline {
            println!("{}", phases::timeline(&measured.moments));
        }
    }
    Ok(())
}
