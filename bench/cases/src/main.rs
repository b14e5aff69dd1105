//! Runs a case a given number of times, for `.ci/instructions` to count what that takes.

use std::process::ExitCode;

use brupop_bench_cases::CASES;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [case, times] = &arguments[..]
        && let Some((_, run)) = CASES.into_iter().find(|(name, _)| name == case)
        && let Ok(times) = times.parse::<usize>()
    {
        run(&mut |once| (0..times).for_each(|_| once()));
        return ExitCode::SUCCESS;
    }
    eprintln!("Usage: brupop-case <case> <how often>; these are the cases:");
    for (name, _) in CASES {
        println!("{name}");
    }
    ExitCode::FAILURE
}
