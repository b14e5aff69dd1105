//! `kubectl brupop`: a kubectl plugin that shows what the operator does, and why, and steers it.

use std::process::ExitCode;

use brupop_api::crds::MESSAGE_MAX;
use brupop_api::printable::printable;
use brupop_cli::{Arguments, run};
use brupop_runtime::errors::describe;
use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Some errors quote the API server, in at most a few sentences.
            anstream::eprintln!("Error: {}", printable(&describe(&error), 4 * MESSAGE_MAX));
            ExitCode::FAILURE
        }
    }
}
