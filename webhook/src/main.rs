//! Validating admission webhook for the shadows of Bottlerocket hosts.

use brupop_api::settings::Program;
use brupop_runtime::environment;
use brupop_webhook::{options::Options, process};
use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let options = Options::parse();
    if let Err(code) = environment::prepare(Program::Webhook, std::io::stdout) {
        return code;
    }
    environment::ended("the webhook cannot run", process::run(options).await)
}
