//! Validating admission webhook for the shadows of Bottlerocket hosts.

use brupop_runtime::{Program, environment};
use brupop_webhook::{options::Options, process};
use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let options = Options::parse();
    match environment::prepare(Program::Webhook) {
        Ok(unknown) => environment::log_unknown(&unknown),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    }
    match process::run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the webhook cannot run");
            ExitCode::FAILURE
        }
    }
}
