//! Carries out a case so many times, for `.ci/instructions` to count what that takes; or takes the time of each case.

use std::fs;
use std::process::ExitCode;

use brupop_bench_cases::CASES;

mod times;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--times", to] => match fs::write(to, times::figures().to_string()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{to}: {error}");
                ExitCode::FAILURE
            }
        },
        [case, times] => run(case, times),
        _ => usage(),
    }
}

fn run(case: &str, times: &str) -> ExitCode {
    let case = CASES.into_iter().find(|(name, _)| *name == case);
    let (Some((_, run)), Ok(times)) = (case, times.parse::<usize>()) else { return usage() };
    run(&mut |once| (0..times).for_each(|_| once()));
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("Usage: brupop-case <case> <how often> | brupop-case --times <file>; these are the cases:");
    for (name, _) in CASES {
        println!("{name}");
    }
    ExitCode::FAILURE
}
