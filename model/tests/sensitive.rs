//! Without a safeguard the model finds a counterexample: so it would notice.

use std::collections::BTreeSet;

use brupop_model::Config;
use clap::Parser as _;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// With the safeguard the world is sound; without it, this property does not hold.
fn is_found(without: &str, world: &str, property: &str) {
    let world = format!("--without {without} {world}");
    let unsound = Config::parse_from(std::iter::once("").chain(world.split(' ')));
    let sound = Config {
        without: None,
        ..unsound
    };
    assert_eq!(
        broken(&sound.checker().symmetry().threads(2).spawn_dfs().join()),
        BTreeSet::new(),
        "{world}"
    );
    // One thread: of two counterexamples of one length it is always the same that is found first.
    let builder = unsound
        .checker()
        .symmetry()
        .threads(1)
        .finish_when(HasDiscoveries::AnyFailures);
    let unsound = builder.spawn_bfs().join();
    let found = broken(&unsound);
    assert!(found.contains(property), "{world}: {found:?}");
    println!("{world}: {found:?} in {} states", unsound.state_count());
}

/// The properties that do not hold, and the rules that are broken.
fn broken(checker: &impl Checker<Config>) -> BTreeSet<&'static str> {
    let properties = checker.model().properties();
    let always = properties
        .iter()
        .filter(|property| matches!(property.expectation, Expectation::Always));
    always
        .filter_map(|property| Some((property.name, checker.discovery(property.name)?)))
        .map(|(name, path)| path.last_state().broken.unwrap_or(name))
        .collect()
}

macro_rules! found {
    ($($name:ident: $without:literal, $world:literal => $property:literal;)+) => {
        $(#[test] fn $name() { is_found($without, $world, $property); })+
    };
}

// For each test: the safeguard, the world, and the property that fails there without it.
found! {
    the_test_of_the_generation: "generation", "--nodes 1 --attempts 1 --stale-leaders 1 --deadlines 1"
        => "an update begins without its slot";
    the_test_of_the_fleets_generation: "pause", "--nodes 1 --attempts 1 --stale-leaders 1 --pauses 1"
        => "an update begins while the fleet is paused";
    the_test_of_the_slots: "slots", "--nodes 2 --attempts 1 --stale-leaders 1"
        => "slots never exceed the limit";
    the_test_of_the_slots_in_pools: "slots", "--nodes 2 --limit 2 --pools 2 --attempts 1 --stale-leaders 1"
        => "an update begins in a pool that has as many as it may";
    a_slot_counts_where_it_was_taken: "slot-pool", "--nodes 2 --limit 2 --pools 2 --attempts 1 --moves 1"
        => "an update begins in a pool that has as many as it may";
    the_order_of_pools: "order", "--nodes 2 --limit 2 --halts --pools 1 --order --attempts 1"
        => "an update begins before the pool that goes first is done with it";
    a_pool_is_not_done_as_long_as_a_node_wants_the_version:
        "none-wants", "--nodes 3 --limit 3 --halts --pools 2 --order --attempts 1"
        => "a pool is noted as done that is not";
    a_pool_that_was_done_stays_so: "latch", "--nodes 2 --limit 3 --halts --pools 1 --order --attempts 1 --moves 1"
        => "it is forgotten that a pool is done";
    a_halt_clears_what_is_done:
        "done-until-halt", "--nodes 3 --limit 3 --halts --pools 1 --order --attempts 1 --fall-backs 2"
        => "a pool is done with an update that is halted";
    the_pool_is_asked_again_before_the_cordon:
        "asked-again", "--nodes 2 --limit 2 --pools 1 --attempts 1 --pool-pauses 1"
        => "a node is cordoned although its pool is paused";
    the_window_is_looked_at_again_before_the_cordon: "asked-again", "--nodes 1 --attempts 1 --windows 1"
        => "a node is cordoned although its pool is paused";
    a_paused_pool_is_not_asked_after_the_cordon:
        "finished", "--nodes 2 --limit 2 --pools 1 --attempts 1 --pool-pauses 1"
        => "an update is given up after the cordon for what is said of its pool";
    a_pause_of_a_pool_is_no_failure: "no-failure", "--nodes 2 --limit 2 --pools 1 --attempts 1 --pool-pauses 1"
        => "no node fails for what is said of its pool";
    a_slot_counts_even_if_its_pool_is_gone: "gone-slot", "--nodes 2 --pools 1 --attempts 1 --pool-deletions 1"
        => "slots never exceed the limit";
    no_reboot_into_a_halted_version_in_any_pool:
        "halt", "--nodes 2 --limit 2 --pools 1 --attempts 1 --halts --fall-backs 1 --deadlines 1"
        => "a reboot into an update that is halted is granted";
    a_cordon_that_lingers_comes_without_a_slot:
        "seen-now", "--nodes 2 --limit 2 --pools 2 --attempts 1 --stale-leaders 1"
        => "nodes of a pool that are out of service never exceed its limit";
    the_test_of_the_claim: "claim", "--nodes 1 --attempts 1 --stale-leaders 1 --stale-agents 1 --deadlines 1"
        => "a host is rebooted from a boot that was not granted";
    the_handshake: "handshake", "--nodes 1 --stale-agents 1 --people 1"
        => "a host is rebooted from a boot that was not granted";
    the_test_of_the_marker: "marker", "--nodes 1 --stale-leaders 1 --people 1"
        => "a host is rebooted that is not marked as drained";
    a_fresh_list_of_pods: "fresh-pods", "--nodes 1 --stale-leaders 1 --fall-backs 1"
        => "a host is rebooted while pods run on it";
    a_write_of_the_node_before_the_grant: "fresh-node", "--nodes 1 --stale-leaders 1 --people 2"
        => "a host is rebooted that is not marked as drained";
    // A canary that is late does not keep the second node from trying; then the first falls back.
    no_reboot_into_a_version_that_is_halted:
        "halt", "--nodes 2 --limit 2 --attempts 1 --halts --fall-backs 1 --deadlines 1"
        => "a reboot into an update that is halted is granted";
    few_try_what_nobody_has_reached: "canaries", "--nodes 2 --limit 2 --attempts 1 --halts"
        => "too many nodes try an unproven update";
    idle_at_the_slots_own_attempt: "own-attempt", "--nodes 1 --stale-leaders 1 --fall-backs 1"
        => "an update begins without its slot";
    a_cordon_that_is_not_ours: "foreign-cordon", "--nodes 1 --foreign-cordon"
        => "a person's cordon is taken away";
    // No reboot is granted all the same, for a fresh list of pods says no; and that for ever.
    drained_is_taken_back_when_somebody_uncordons: "drained-again", "--nodes 1 --people 1"
        => "a quiet cluster settles";
    a_failure_counted_as_its_slot_returns: "counted", "--nodes 1 --halts --fall-backs 1"
        => "a failure that is over is counted";
}
