//! Updates the Bottlerocket hosts of a cluster, a few at a time.

use brupop_reconciler::{process, settings::Settings};
use brupop_runtime::logs;
use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let settings = Settings::parse();
    if let Err(error) = logs::init() {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match process::run(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the reconciler cannot run");
            ExitCode::FAILURE
        }
    }
}
