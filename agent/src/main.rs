//! Agent on each Bottlerocket node: looks after the updates of its host.

use brupop_agent::{options::Options, process};
use brupop_api::settings::Program;
use brupop_runtime::environment;
use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    brupop_runtime::install_crypto_provider();
    let options = Options::parse();
    if let Err(code) = environment::prepare(Program::Agent, std::io::stdout) {
        return code;
    }
    environment::ended("the agent ends", process::run(options).await)
}
