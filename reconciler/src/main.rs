//! Updates the Bottlerocket hosts of a cluster, a few at a time.

use brupop_api::settings::Program;
use brupop_reconciler::cli::{Command, Settings};
use brupop_reconciler::{plan, process};
use brupop_runtime::environment;
use clap::Parser as _;
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let settings = Settings::parse();
    let prepared = match settings.command {
        None => environment::prepare(Program::Reconciler, stdout),
        // A plan that goes to another program has no logs in it.
        Some(Command::Plan { .. }) => environment::prepare(Program::Reconciler, stderr),
    };
    if let Err(code) = prepared {
        return code;
    }
    match settings.command {
        None => environment::ended("the reconciler cannot run", process::run(settings).await),
        Some(Command::Plan { now }) => environment::ended(
            "the plan cannot be made",
            plan::run(settings, now).await.map(|text| say(&text)),
        ),
    }
}

/// If the reader has closed the pipe, as `head` does, that is no failure.
fn say(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}
