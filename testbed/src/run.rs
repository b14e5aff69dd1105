//! Ends the programs of the test bed, by themselves or by a signal, with all that they have started. And lets them
//! tell what they have checked.

use std::process::ExitCode;

use anyhow::Result;

use crate::waiting::await_signal;

/// Runs a program until it is done, or somebody ends it: then the exit status is the one that shells have for the signal. The
/// guardian takes everything away as soon as what was started is dropped, or this process is gone.
pub fn run(program: impl Future<Output = Result<ExitCode>>) -> impl Future<Output = ExitCode> {
    until_ended(Box::pin(program))
}

async fn until_ended(program: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    // It may be installed already: all install this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ended = tokio::select! {
        ended = program => ended,
        signal = await_signal() => signal.map_err(Into::into).map(|(by, code)| {
            eprintln!("\n{by}; nothing is left behind");
            ExitCode::from(code)
        }),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    })
}

/// The exit status of a program that has found what it looked for, or not.
pub fn status(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether a check holds, and its text.
pub type Check = (bool, String);

/// Prints the checks. Returns whether all of them hold.
pub fn told(checks: &[Check]) -> bool {
    for (holds, what) in checks {
        println!("{} {what}", if *holds { "ok  " } else { "FAIL" });
    }
    checks.iter().all(|(holds, _)| *holds)
}
