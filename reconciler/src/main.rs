//! Updates the Bottlerocket hosts of a cluster, a few at a time.

use brupop_reconciler::cli::{Command, Settings};
use brupop_reconciler::{plan, process};
use brupop_runtime::{Program, environment};
use clap::Parser as _;
use std::io::Write as _;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let settings = Settings::parse();
    let unknown = match environment::prepare(Program::Reconciler) {
        Ok(unknown) => unknown,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match &settings.command {
        None => {
            environment::log_unknown(&unknown);
            ended("the reconciler cannot run", process::run(settings.clone()).await)
        }
        Some(Command::Plan(args)) => ended(
            "there is no plan",
            plan::run(settings.policy(), &settings.gate_sources, args).await.map(|text| say(&text)),
        ),
    }
}

fn ended<E: std::error::Error + 'static>(what: &str, result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "{what}");
            ExitCode::FAILURE
        }
    }
}

/// If the reader has closed the pipe, as `head` does, that is no failure.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
