//! The bounded run of the model, and the sensitivity runs: without a safeguard it finds a counterexample.
//! `make model` checks larger worlds.

use brupop_model::{Config, Faults, Safeguard};
use stateright::{Checker, HasDiscoveries, Model};

const SMALL: Config =
    Config { nodes: 2, limit: 1, attempts: 2, faults: NO_FAULTS, foreign_cordon: false, without: None };

const NO_FAULTS: Faults = Faults {
    takeovers: 0,
    stale_leaders: 0,
    stale_agents: 0,
    agent_crashes: 0,
    fall_backs: 0,
    own_reboots: 0,
    failed_commands: 0,
    people: 0,
    deadlines: 0,
    silent_agents: 0,
};

fn holds(config: Config) {
    let checker = config.checker().symmetry().threads(2).spawn_dfs().join();
    assert!(checker.is_done());
    checker.assert_properties();
}

fn finds_a_counterexample(config: Config) {
    let checker =
        config.checker().symmetry().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken: Vec<&str> = checker
        .model()
        .properties()
        .iter()
        .filter(|property| matches!(property.expectation, stateright::Expectation::Always))
        .filter(|property| checker.discovery(property.name).is_some())
        .map(|property| property.name)
        .collect();
    assert!(!broken.is_empty(), "without {:?} nothing goes wrong", config.without);
    println!("without {:?}: {broken:?} in {} states", config.without, checker.state_count());
}

#[test]
fn three_nodes_in_quiet_weather() {
    holds(Config { nodes: 3, ..SMALL });
    holds(Config { nodes: 3, limit: 2, foreign_cordon: true, ..SMALL });
}

#[test]
fn two_leaders_one_of_them_stale() {
    let faults = Faults { takeovers: 1, stale_leaders: 1, ..NO_FAULTS };
    holds(Config { attempts: 1, faults, ..SMALL });
}

#[test]
fn one_node_with_every_fault_of_hosts_and_agents() {
    let faults = Faults { agent_crashes: 1, stale_agents: 1, fall_backs: 1, own_reboots: 1, ..NO_FAULTS };
    holds(Config { nodes: 1, faults, ..SMALL });
    let faults = Faults { failed_commands: 1, deadlines: 1, people: 1, ..NO_FAULTS };
    holds(Config { nodes: 1, faults, ..SMALL });
}

#[test]
fn an_agent_that_falls_silent_keeps_no_slot() {
    let faults = Faults { silent_agents: 1, fall_backs: 1, own_reboots: 1, ..NO_FAULTS };
    holds(Config { faults, ..SMALL });
}

#[test]
fn without_the_generation_test_it_goes_wrong() {
    let faults = Faults { stale_agents: 1, stale_leaders: 1, deadlines: 1, ..NO_FAULTS };
    finds_a_counterexample(Config { nodes: 1, faults, without: Some(Safeguard::Generation), ..SMALL });
}

#[test]
fn without_the_test_of_the_slots_it_goes_wrong() {
    let faults = Faults { takeovers: 1, stale_leaders: 1, ..NO_FAULTS };
    finds_a_counterexample(Config { faults, without: Some(Safeguard::Slots), ..SMALL });
}

#[test]
fn without_the_test_of_the_claim_it_goes_wrong() {
    let faults = Faults { stale_leaders: 1, stale_agents: 1, deadlines: 1, ..NO_FAULTS };
    finds_a_counterexample(Config { nodes: 1, faults, without: Some(Safeguard::Claim), ..SMALL });
}

#[test]
fn without_the_handshake_it_goes_wrong() {
    let faults = Faults { stale_agents: 1, people: 1, ..NO_FAULTS };
    finds_a_counterexample(Config { nodes: 1, faults, without: Some(Safeguard::Handshake), ..SMALL });
}

#[test]
fn without_the_test_of_the_marker_it_goes_wrong() {
    let faults = Faults { stale_leaders: 1, takeovers: 1, people: 1, ..NO_FAULTS };
    finds_a_counterexample(Config { nodes: 1, faults, without: Some(Safeguard::Marker), ..SMALL });
}

#[test]
fn without_a_fresh_list_of_pods_it_goes_wrong() {
    let faults = Faults { stale_leaders: 1, fall_backs: 1, ..NO_FAULTS };
    finds_a_counterexample(Config { nodes: 1, faults, without: Some(Safeguard::FreshPods), ..SMALL });
}
