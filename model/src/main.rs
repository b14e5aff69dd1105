//! `brupop-model`: checks the model and prints states and time.

use std::process::ExitCode;
use std::time::Instant;

use brupop_model::{Config, Faults};
use clap::Parser;
use stateright::{Checker, HasDiscoveries, Model as _};

/// Checks the protocol's model over the shipped functions.
#[derive(Parser)]
#[command(version, args_override_self = true)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
struct Arguments {
    /// How many nodes, 1 to 3.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    nodes: u8,
    /// How many may be updated at once.
    #[arg(long, default_value_t = 1)]
    limit: u64,
    /// Updates tried on a node, 1 to 3.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    attempts: u8,
    /// Changes of leader while the old one goes on.
    #[arg(long, default_value_t = 0)]
    takeovers: u8,
    /// Times that a reconciler goes on with a stale view.
    #[arg(long, default_value_t = 0)]
    stale_leaders: u8,
    /// Times that an agent goes on with a stale view.
    #[arg(long, default_value_t = 0)]
    stale_agents: u8,
    /// Crashes of agents.
    #[arg(long, default_value_t = 0)]
    agent_crashes: u8,
    /// Hosts that fall back when they boot the update.
    #[arg(long, default_value_t = 0)]
    fall_backs: u8,
    /// Hosts that reboot by themselves.
    #[arg(long, default_value_t = 0)]
    own_reboots: u8,
    /// Commands of hosts that fail.
    #[arg(long, default_value_t = 0)]
    failed_commands: u8,
    /// Times that a person cordons or uncordons a node.
    #[arg(long, default_value_t = 0)]
    people: u8,
    /// Steps that take too long.
    #[arg(long, default_value_t = 0)]
    deadlines: u8,
    /// Agents that are never heard of again.
    #[arg(long, default_value_t = 0)]
    silent_agents: u8,
    /// Times that something untrue is said in an agent's name.
    #[arg(long, default_value_t = 0)]
    lies: u8,
    /// Shadows that a person deletes, at most 1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=1))]
    deletions: u8,
    /// Nodes that go away with their machines, at most 1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=1))]
    replacements: u8,
    /// Times that a person acknowledges the update's halt or takes that out again, at most 3.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
    acknowledgements: u8,
    /// Times that a person pauses the fleet or lets it go on, at most 3.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
    pauses: u8,
    /// Times that a person labels a node for the other pool.
    #[arg(long, default_value_t = 0)]
    moves: u8,
    /// Times that a person pauses a pool or lets it go on.
    #[arg(long, default_value_t = 0)]
    pool_pauses: u8,
    /// Times that a person deletes a pool, which may be made again.
    #[arg(long, default_value_t = 0)]
    pool_deletions: u8,
    /// Times that the window of the default pool opens or closes.
    #[arg(long, default_value_t = 0)]
    windows: u8,
    /// There are two pools of one update at once each, and this many nodes are in the first.
    #[arg(long)]
    pools: Option<usize>,
    /// The second pool comes after the first.
    #[arg(long, requires = "pools", requires = "halts")]
    order: bool,
    /// Nodes that no pool selects are held.
    #[arg(long, requires = "pools")]
    hold: bool,
    /// Failed nodes halt the update.
    #[arg(long)]
    halts: bool,
    /// Upstream's operator left one node in mid-update.
    #[arg(long)]
    upstream: bool,
    /// A person cordoned one of the nodes beforehand.
    #[arg(long)]
    foreign_cordon: bool,
    /// Pods come back each time that they are evicted.
    #[arg(long)]
    stubborn: bool,
    /// Search breadth first: a counterexample is as short as can be, and takes longer to be found.
    #[arg(long)]
    shortest: bool,
    /// Stop after this many states.
    #[arg(long, default_value_t = 50_000_000)]
    states: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = Config {
        nodes: arguments.nodes.into(),
        limit: arguments.limit,
        attempts: arguments.attempts,
        faults: Faults {
            takeovers: arguments.takeovers,
            stale_leaders: arguments.stale_leaders,
            stale_agents: arguments.stale_agents,
            agent_crashes: arguments.agent_crashes,
            fall_backs: arguments.fall_backs,
            own_reboots: arguments.own_reboots,
            failed_commands: arguments.failed_commands,
            people: arguments.people,
            deadlines: arguments.deadlines,
            silent_agents: arguments.silent_agents,
            lies: arguments.lies,
            deletions: arguments.deletions,
            replacements: arguments.replacements,
            acknowledgements: arguments.acknowledgements,
            pauses: arguments.pauses,
            moves: arguments.moves,
            pool_pauses: arguments.pool_pauses,
            pool_deletions: arguments.pool_deletions,
            windows: arguments.windows,
        },
        halts: arguments.halts,
        upstream: arguments.upstream,
        foreign_cordon: arguments.foreign_cordon,
        stubborn: arguments.stubborn,
        pools: arguments.pools,
        order: arguments.order,
        hold: arguments.hold,
        without: None,
    };
    let begun = Instant::now();
    let builder = config.checker().symmetry().threads(2).target_state_count(arguments.states);
    let sound = if arguments.shortest {
        report(&arguments, begun, &builder.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join())
    } else {
        report(&arguments, begun, &builder.spawn_dfs().join())
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints how many states were searched in what time, and each property; does all hold?
fn report(arguments: &Arguments, begun: Instant, checker: &impl Checker<Config>) -> bool {
    println!(
        "{} nodes, limit {}: {} states ({} unique) in {:.1} s{}",
        arguments.nodes,
        arguments.limit,
        checker.state_count(),
        checker.unique_state_count(),
        begun.elapsed().as_secs_f64(),
        if checker.is_done() && checker.state_count() < arguments.states { ", all there are" } else { "" },
    );
    let mut sound = true;
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        let always = matches!(property.expectation, stateright::Expectation::Always);
        let holds = found.is_some() != always;
        sound &= holds;
        println!("  {} {}", if holds { "ok  " } else { "FAIL" }, property.name);
        if let (true, Some(path)) = (always, found) {
            // Each world on the way, and what happened in it.
            for (world, action) in path.into_vec() {
                println!("    {world:?}\n  {action:?}");
            }
        }
    }
    sound
}
