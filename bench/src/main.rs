//! Carries out a case so many times, for `.ci/instructions` to count what that takes.

use std::process::ExitCode;

use brupop_bench_cases::CASES;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().and_then(|wanted| CASES.into_iter().find(|(name, _)| *name == wanted));
    let times = arguments.next().and_then(|times| times.parse().ok());
    let (Some((_, run)), Some(times)) = (case, times) else {
        eprintln!("Usage: brupop-case <case> <how often>; these are the cases:");
        for (name, _) in CASES {
            println!("{name}");
        }
        return ExitCode::FAILURE;
    };
    run(times);
    ExitCode::SUCCESS
}
