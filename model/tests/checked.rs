//! The bounded run of the model. `make model` checks larger worlds.

use brupop_model::{Config, Faults};
use stateright::{Checker, Model};

const ONE: Config = Config::ONE;
const SMALL: Config = Config { nodes: 2, ..ONE };

fn holds(config: Config) {
    let checker = config.checker().symmetry().threads(2).spawn_dfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
    println!("{} states: {config:?}", checker.state_count());
}

#[test]
fn three_nodes_in_quiet_weather() {
    holds(Config { nodes: 3, ..SMALL });
    holds(Config { nodes: 3, limit: 2, attempts: 1, foreign_cordon: true, ..SMALL });
}

#[test]
fn two_leaders_one_of_them_stale() {
    let faults = Faults { takeovers: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..ONE });
    let faults = Faults { takeovers: 1, fall_backs: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..SMALL });
}

#[test]
fn one_node_with_every_fault() {
    let faults = Faults { agent_crashes: 1, stale_agents: 1, fall_backs: 1, own_reboots: 1, ..Faults::NONE };
    holds(Config { faults, ..ONE });
    let faults = Faults { failed_commands: 1, deadlines: 1, people: 1, ..Faults::NONE };
    holds(Config { faults, ..ONE });
}

#[test]
fn an_agent_that_falls_silent_keeps_no_slot() {
    let faults = Faults { silent_agents: 1, fall_backs: 1, own_reboots: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..SMALL });
}

#[test]
fn an_agent_that_lies_halts_nothing() {
    let faults = Faults { lies: 2, fall_backs: 1, ..Faults::NONE };
    holds(Config { halts: true, faults, ..ONE });
    let faults = Faults { lies: 1, silent_agents: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..SMALL });
}

#[test]
fn people_lift_the_halts_that_they_saw() {
    let faults = Faults { fall_backs: 2, acknowledgements: 2, ..Faults::NONE };
    holds(Config { halts: true, faults, ..SMALL });
    let faults = Faults { fall_backs: 1, own_reboots: 1, deadlines: 2, acknowledgements: 1, ..Faults::NONE };
    holds(Config { halts: true, faults, ..ONE });
}

#[test]
fn nobody_begins_while_the_fleet_is_paused() {
    let faults = Faults { pauses: 2, stale_leaders: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..ONE });
    let faults = Faults { pauses: 2, fall_backs: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..SMALL });
}

#[test]
fn a_window_that_closes_takes_slots_back_and_cordons_nothing() {
    let faults = Faults { windows: 2, ..Faults::NONE };
    holds(Config { limit: 2, faults, ..SMALL });
    let faults = Faults { windows: 1, pauses: 1, takeovers: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..SMALL });
    let faults = Faults { windows: 1, takeovers: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..ONE });
    let faults = Faults { windows: 1, moves: 1, pool_deletions: 1, ..Faults::NONE };
    holds(Config { pools: Some(1), attempts: 1, faults, ..SMALL });
}

#[test]
fn what_upstream_left_is_given_up_before_its_drain_outside_the_window() {
    let faults = Faults { windows: 2, fall_backs: 1, ..Faults::NONE };
    holds(Config { upstream: true, faults, ..ONE });
    let faults = Faults { windows: 1, pauses: 1, people: 1, ..Faults::NONE };
    holds(Config { upstream: true, attempts: 1, faults, ..ONE });
}

#[test]
fn pools_keep_their_limits() {
    holds(Config { nodes: 3, limit: 3, attempts: 1, pools: Some(2), ..SMALL });
    let faults = Faults { moves: 2, fall_backs: 1, ..Faults::NONE };
    holds(Config { limit: 2, attempts: 1, pools: Some(1), faults, ..SMALL });
    let faults = Faults { moves: 1, takeovers: 1, ..Faults::NONE };
    holds(Config { limit: 2, attempts: 1, pools: Some(2), faults, ..SMALL });
}

#[test]
fn a_pool_comes_after_another() {
    let ordered = Config { limit: 2, halts: true, pools: Some(1), order: true, ..SMALL };
    let faults = Faults { fall_backs: 1, acknowledgements: 1, ..Faults::NONE };
    holds(Config { faults, ..ordered });
    let faults = Faults { moves: 1, takeovers: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..ordered });
}

#[test]
fn a_halt_clears_the_order_and_a_newcomer_does_not() {
    let ordered = Config { halts: true, pools: Some(1), order: true, attempts: 1, ..SMALL };
    let faults = Faults { fall_backs: 2, acknowledgements: 1, ..Faults::NONE };
    holds(Config { nodes: 3, limit: 3, faults, ..ordered });
    let faults = Faults { moves: 1, ..Faults::NONE };
    holds(Config { nodes: 3, limit: 3, pools: Some(2), faults, ..ordered });
    let faults = Faults { pool_pauses: 1, pool_deletions: 1, ..Faults::NONE };
    holds(Config { limit: 2, faults, ..ordered });
}

#[test]
fn halts_hold_in_all_pools() {
    let faults = Faults { fall_backs: 1, deadlines: 1, moves: 1, ..Faults::NONE };
    holds(Config { limit: 2, halts: true, pools: Some(1), attempts: 1, faults, ..SMALL });
    let faults = Faults { fall_backs: 1, acknowledgements: 1, takeovers: 1, ..Faults::NONE };
    holds(Config { limit: 2, halts: true, pools: Some(1), attempts: 1, faults, ..SMALL });
}

#[test]
fn a_paused_pool_takes_slots_back_and_cordons_nothing() {
    let faults = Faults { pool_pauses: 2, ..Faults::NONE };
    holds(Config { limit: 2, pools: Some(1), faults, ..SMALL });
    let faults = Faults { pool_pauses: 1, takeovers: 1, ..Faults::NONE };
    holds(Config { limit: 2, pools: Some(2), attempts: 1, faults, ..SMALL });
    let faults = Faults { pool_pauses: 1, takeovers: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { pools: Some(1), attempts: 1, faults, ..ONE });
}

#[test]
fn a_pool_is_deleted_while_its_node_is_updated() {
    let faults = Faults { pool_deletions: 1, fall_backs: 1, ..Faults::NONE };
    holds(Config { limit: 1, pools: Some(1), attempts: 1, faults, ..SMALL });
    let faults = Faults { pool_deletions: 2, ..Faults::NONE };
    holds(Config { limit: 2, pools: Some(1), attempts: 1, hold: true, faults, ..SMALL });
    let faults = Faults { pool_deletions: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { pools: Some(0), attempts: 1, faults, ..ONE });
}

#[test]
fn people_cordon_and_uncordon_at_any_time() {
    let faults = Faults { people: 3, fall_backs: 1, ..Faults::NONE };
    holds(Config { faults, foreign_cordon: true, ..ONE });
    let faults = Faults { people: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..ONE });
}

#[test]
fn stubborn_pods_are_left_by_every_leader() {
    let faults = Faults { takeovers: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { stubborn: true, attempts: 1, faults, ..ONE });
    let faults = Faults { people: 2, deadlines: 1, fall_backs: 1, ..Faults::NONE };
    holds(Config { stubborn: true, faults, ..ONE });
}

#[test]
fn deleted_shadows_are_made_again() {
    let faults = Faults { deletions: 1, people: 1, fall_backs: 1, deadlines: 1, ..Faults::NONE };
    holds(Config { faults, ..ONE });
    let faults = Faults { deletions: 1, stale_leaders: 1, ..Faults::NONE };
    holds(Config { attempts: 1, faults, ..ONE });
}

#[test]
fn replaced_nodes_are_updated_and_stay_counted() {
    let faults = Faults { replacements: 1, fall_backs: 1, deadlines: 1, ..Faults::NONE };
    holds(Config { halts: true, attempts: 1, faults, ..SMALL });
    let faults = Faults { replacements: 1, deletions: 1, stale_agents: 1, ..Faults::NONE };
    holds(Config { faults, ..ONE });
}

#[test]
fn what_upstream_left_behind_is_finished_or_undone() {
    let faults = Faults { deadlines: 1, fall_backs: 1, own_reboots: 1, people: 1, ..Faults::NONE };
    holds(Config { upstream: true, faults, ..ONE });
    let faults = Faults { takeovers: 1, ..Faults::NONE };
    holds(Config { upstream: true, attempts: 1, faults, ..SMALL });
}
