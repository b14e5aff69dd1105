//! `brupop-model`: checks the model and prints states and time.

use std::process::ExitCode;
use std::time::Instant;

use brupop_model::Config;
use clap::Parser;
use stateright::{Checker, HasDiscoveries, Model as _};

/// Checks the protocol's model over the shipped functions.
#[derive(Parser)]
#[command(version, args_override_self = true)]
struct Arguments {
    #[command(flatten)]
    config: Config,
    /// Search breadth first: a counterexample is as short as can be, and takes longer to be found.
    #[arg(long)]
    shortest: bool,
    /// Stop after this many states.
    #[arg(long, default_value_t = 50_000_000)]
    states: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let begun = Instant::now();
    let builder = arguments
        .config
        .checker()
        .symmetry()
        .threads(2)
        .target_state_count(arguments.states);
    let sound = if arguments.shortest {
        report(
            &arguments,
            begun,
            &builder
                .finish_when(HasDiscoveries::AnyFailures)
                .spawn_bfs()
                .join(),
        )
    } else {
        report(&arguments, begun, &builder.spawn_dfs().join())
    };
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the number of states, the time and each property. Returns whether all hold.
fn report(arguments: &Arguments, begun: Instant, checker: &impl Checker<Config>) -> bool {
    println!(
        "{} nodes, limit {}: {} states ({} unique) in {:.1} s{}",
        arguments.config.nodes,
        arguments.config.limit,
        checker.state_count(),
        checker.unique_state_count(),
        begun.elapsed().as_secs_f64(),
        if checker.is_done() && checker.state_count() < arguments.states {
            ", all there are"
        } else {
            ""
        },
    );
    let mut sound = true;
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        let always = matches!(property.expectation, stateright::Expectation::Always);
        let holds = found.is_some() != always;
        sound &= holds;
        println!(
            "  {} {}",
            if holds { "ok  " } else { "FAIL" },
            property.name
        );
        if let (true, Some(path)) = (always, found) {
            // Each world on the way, and what happened in it.
            for (world, action) in path.into_vec() {
                println!("    {world:?}\n  {action:?}");
            }
        }
    }
    sound
}
