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
    if let Err(code) = environment::prepare(Program::Reconciler) {
        return code;
    }
    match &settings.command {
        None => environment::ended(
            "the reconciler cannot run",
            process::run(settings.clone()).await,
        ),
        Some(Command::Plan(args)) => environment::ended(
            "there is no plan",
            plan::run(settings.policy(), &settings.gate_sources, args)
                .await
                .map(|text| say(&text)),
        ),
    }
}

/// If the reader has closed the pipe, as `head` does, that is no failure.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
