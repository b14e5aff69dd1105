//! Updates the Bottlerocket hosts of a cluster, a few at a time.

use brupop_reconciler::settings::{Command, Settings};
use brupop_reconciler::{plan, process};
use brupop_runtime::logs;
use clap::Parser as _;
use std::io::Write as _;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let settings = Settings::parse();
    if let Err(error) = logs::init() {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match &settings.command {
        None => match process::run(settings).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the reconciler cannot run");
                ExitCode::FAILURE
            }
        },
        Some(Command::Plan(args)) => match plan::run(&settings, args).await {
            // A reader that has seen enough, such as `head`, is no failure.
            Ok(text) => {
                let _ = std::io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "there is no plan");
                ExitCode::FAILURE
            }
        },
    }
}
