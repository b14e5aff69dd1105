//! The bounded run of the model: worlds as `brupop-model` takes them. `make model` checks larger ones.

use brupop_model::Config;
use clap::Parser as _;
use stateright::{Checker, Model};

fn holds(world: &str) {
    let config = Config::parse_from(std::iter::once("").chain(world.split(' ')));
    let checker = config.checker().symmetry().threads(2).spawn_dfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
    println!("{} states: {world}", checker.state_count());
}

macro_rules! worlds {
    ($($name:ident { $($world:literal)+ })+) => { $(#[test] fn $name() { $(holds($world);)+ })+ };
}

worlds! {
    three_nodes_in_quiet_weather {
        "--nodes 3"
        "--nodes 3 --limit 2 --attempts 1 --foreign-cordon"
    }
    two_leaders_one_of_them_stale {
        "--nodes 1 --attempts 1 --takeovers 1 --stale-leaders 1"
        "--nodes 2 --attempts 1 --takeovers 1 --fall-backs 1"
    }
    one_node_with_every_fault {
        "--nodes 1 --agent-crashes 1 --stale-agents 1 --fall-backs 1 --own-reboots 1"
        "--nodes 1 --failed-commands 1 --deadlines 1 --people 1"
    }
    an_agent_that_falls_silent_keeps_no_slot {
        "--nodes 2 --attempts 1 --silent-agents 1 --fall-backs 1 --own-reboots 1"
    }
    an_agent_that_lies_halts_nothing {
        "--nodes 1 --halts --lies 2 --fall-backs 1"
        "--nodes 2 --attempts 1 --lies 1 --silent-agents 1"
    }
    people_resume_the_halts_that_they_saw {
        "--nodes 2 --halts --fall-backs 2 --resumes 2"
        "--nodes 1 --halts --fall-backs 1 --own-reboots 1 --deadlines 2 --resumes 1"
    }
    nobody_begins_while_the_fleet_is_paused {
        "--nodes 1 --attempts 1 --pauses 2 --stale-leaders 1"
        "--nodes 2 --attempts 1 --pauses 2 --fall-backs 1"
    }
    a_window_that_closes_takes_slots_back_and_cordons_nothing {
        "--nodes 2 --limit 2 --windows 2"
        "--nodes 2 --attempts 1 --windows 1 --pauses 1 --takeovers 1"
        "--nodes 1 --attempts 1 --windows 1 --takeovers 1 --stale-leaders 1"
        "--nodes 2 --pools 1 --attempts 1 --windows 1 --moves 1 --pool-deletions 1"
    }
    pools_keep_their_limits {
        "--nodes 3 --limit 3 --attempts 1 --pools 2"
        "--nodes 2 --limit 2 --attempts 1 --pools 1 --moves 2 --fall-backs 1"
        "--nodes 2 --limit 2 --attempts 1 --pools 2 --moves 1 --takeovers 1"
    }
    a_pool_comes_after_another {
        "--nodes 2 --limit 2 --halts --pools 1 --order --fall-backs 1 --resumes 1"
        "--nodes 2 --limit 2 --halts --pools 1 --order --attempts 1 --moves 1 --takeovers 1"
    }
    a_halt_clears_the_order_and_a_newcomer_does_not {
        "--nodes 3 --limit 3 --halts --pools 1 --order --attempts 1 --fall-backs 2 --resumes 1"
        "--nodes 3 --limit 3 --halts --pools 2 --order --attempts 1 --moves 1"
        "--nodes 2 --limit 2 --halts --pools 1 --order --attempts 1 --pool-pauses 1 --pool-deletions 1"
    }
    halts_hold_in_all_pools {
        "--nodes 2 --limit 2 --halts --pools 1 --attempts 1 --fall-backs 1 --deadlines 1 --moves 1"
        "--nodes 2 --limit 2 --halts --pools 1 --attempts 1 --fall-backs 1 --resumes 1 --takeovers 1"
    }
    a_paused_pool_takes_slots_back_and_cordons_nothing {
        "--nodes 2 --limit 2 --pools 1 --pool-pauses 2"
        "--nodes 2 --limit 2 --pools 2 --attempts 1 --pool-pauses 1 --takeovers 1"
        "--nodes 1 --pools 1 --attempts 1 --pool-pauses 1 --takeovers 1 --stale-leaders 1"
    }
    a_pool_is_deleted_while_its_node_is_updated {
        "--nodes 2 --pools 1 --attempts 1 --pool-deletions 1 --fall-backs 1"
        "--nodes 2 --limit 2 --pools 1 --attempts 1 --pool-deletions 2"
        "--nodes 1 --pools 0 --attempts 1 --pool-deletions 1 --stale-leaders 1"
    }
    people_cordon_and_uncordon_at_any_time {
        "--nodes 1 --people 3 --fall-backs 1 --foreign-cordon"
        "--nodes 1 --attempts 1 --people 1 --stale-leaders 1"
    }
    deleted_shadows_are_made_again {
        "--nodes 1 --deletions 1 --people 1 --fall-backs 1 --deadlines 1"
        "--nodes 1 --attempts 1 --deletions 1 --stale-leaders 1"
    }
    replaced_nodes_are_updated_and_stay_counted {
        "--nodes 2 --halts --attempts 1 --replacements 1 --fall-backs 1 --deadlines 1"
        "--nodes 1 --replacements 1 --deletions 1 --stale-agents 1"
    }
}
