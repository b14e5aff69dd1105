//! Without a safeguard the model finds a counterexample: so it would notice.

use std::collections::BTreeSet;

use brupop_model::{Config, Faults, Safeguard};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

const ONE: Config = Config::ONE;

/// With the safeguard the world is sound; without it, this property does not hold.
fn is_found(without: Safeguard, property: &str, world: Config) {
    let sound = world.checker().symmetry().threads(2).spawn_dfs().join();
    assert_eq!(broken(&sound), BTreeSet::new(), "with {without:?}");
    let world = Config { without: Some(without), ..world };
    // One thread: of two counterexamples of one length it is always the same that is found first.
    let builder = world.checker().symmetry().threads(1).finish_when(HasDiscoveries::AnyFailures);
    let unsound = builder.spawn_bfs().join();
    let found = broken(&unsound);
    assert!(found.contains(property), "without {without:?}: {found:?}");
    println!("without {without:?}: {found:?} in {} states", unsound.state_count());
}

/// The properties that do not hold, and the rules that are broken.
fn broken(checker: &impl Checker<Config>) -> BTreeSet<&'static str> {
    let properties = checker.model().properties();
    let always = properties.iter().filter(|property| matches!(property.expectation, Expectation::Always));
    always
        .filter_map(|property| Some((property.name, checker.discovery(property.name)?)))
        .map(|(name, path)| path.last_state().broken.unwrap_or(name))
        .collect()
}

#[test]
fn the_test_of_the_generation() {
    let faults = Faults { stale_leaders: 1, deadlines: 1, ..Faults::NONE };
    is_found(
        Safeguard::Generation,
        "an update begins without its slot",
        Config { attempts: 1, faults, ..ONE },
    );
}

#[test]
fn the_test_of_the_fleets_generation() {
    let faults = Faults { stale_leaders: 1, pauses: 1, ..Faults::NONE };
    is_found(
        Safeguard::Pause,
        "an update begins while the fleet is paused",
        Config { attempts: 1, faults, ..ONE },
    );
}

#[test]
fn the_test_of_the_slots() {
    let faults = Faults { stale_leaders: 1, ..Faults::NONE };
    is_found(
        Safeguard::Slots,
        "slots never exceed the limit",
        Config { nodes: 2, attempts: 1, faults, ..ONE },
    );
}

#[test]
fn the_test_of_the_slots_in_pools() {
    let faults = Faults { stale_leaders: 1, ..Faults::NONE };
    is_found(
        Safeguard::Slots,
        "an update begins in a pool that has as many as it may",
        Config { nodes: 2, limit: 2, pools: Some(2), attempts: 1, faults, ..ONE },
    );
}

#[test]
fn a_slot_counts_where_it_was_taken() {
    let faults = Faults { moves: 1, ..Faults::NONE };
    is_found(
        Safeguard::SlotPool,
        "an update begins in a pool that has as many as it may",
        Config { nodes: 2, limit: 2, pools: Some(2), attempts: 1, faults, ..ONE },
    );
}

#[test]
fn the_order_of_pools() {
    is_found(
        Safeguard::Order,
        "an update begins before the pool that goes first is done with it",
        Config { nodes: 2, limit: 2, halts: true, pools: Some(1), order: true, attempts: 1, ..ONE },
    );
}

/// Two pools, of which the second has to wait for the first.
const ORDERED: Config = Config { limit: 3, halts: true, pools: Some(1), order: true, attempts: 1, ..ONE };

#[test]
fn a_pool_is_not_done_as_long_as_a_node_wants_the_version() {
    is_found(
        Safeguard::NoneWants,
        "a pool is noted as done that is not",
        Config { nodes: 3, pools: Some(2), ..ORDERED },
    );
}

#[test]
fn a_pool_that_was_done_stays_so() {
    let faults = Faults { moves: 1, ..Faults::NONE };
    is_found(Safeguard::Latch, "a pool waits for one that was done", Config { nodes: 2, faults, ..ORDERED });
}

#[test]
fn a_halt_clears_what_is_done() {
    let faults = Faults { fall_backs: 2, ..Faults::NONE };
    is_found(
        Safeguard::DoneUntilHalt,
        "a pool is done with an update that is halted",
        Config { nodes: 3, faults, ..ORDERED },
    );
}

/// One pool is paused, or deleted, while its nodes are updated.
const CHANGED: Config = Config { nodes: 2, limit: 2, pools: Some(1), attempts: 1, ..ONE };

#[test]
fn the_pool_is_asked_again_before_the_cordon() {
    let faults = Faults { pool_pauses: 1, ..Faults::NONE };
    is_found(
        Safeguard::AskedAgain,
        "a node is cordoned although its pool is paused",
        Config { faults, ..CHANGED },
    );
}

#[test]
fn the_window_is_looked_at_again_before_the_cordon() {
    let faults = Faults { windows: 1, ..Faults::NONE };
    is_found(
        Safeguard::AskedAgain,
        "a node is cordoned although its pool is paused",
        Config { attempts: 1, faults, ..ONE },
    );
}

#[test]
fn the_pool_is_not_asked_after_the_cordon() {
    let property = "an update is given up after the cordon for what is said of its pool";
    let faults = Faults { pool_pauses: 1, ..Faults::NONE };
    is_found(Safeguard::Finished, property, Config { faults, ..CHANGED });
    let faults = Faults { pool_deletions: 1, ..Faults::NONE };
    is_found(Safeguard::Finished, property, Config { hold: true, faults, ..CHANGED });
}

#[test]
fn a_pause_of_a_pool_is_no_failure() {
    let faults = Faults { pool_pauses: 1, ..Faults::NONE };
    is_found(
        Safeguard::NoFailure,
        "no node fails for what is said of its pool",
        Config { faults, ..CHANGED },
    );
}

#[test]
fn a_slot_counts_even_if_its_pool_is_gone() {
    let faults = Faults { pool_deletions: 1, ..Faults::NONE };
    is_found(Safeguard::GoneSlot, "slots never exceed the limit", Config { limit: 1, faults, ..CHANGED });
}

#[test]
fn no_reboot_into_a_halted_version_in_any_pool() {
    let faults = Faults { fall_backs: 1, deadlines: 1, ..Faults::NONE };
    is_found(
        Safeguard::Halt,
        "a reboot into an update that is halted is granted",
        Config { halts: true, faults, ..CHANGED },
    );
}

#[test]
fn a_cordon_that_lingers_comes_without_a_slot() {
    let faults = Faults { stale_leaders: 1, ..Faults::NONE };
    is_found(
        Safeguard::SeenNow,
        "nodes of a pool that are out of service never exceed its limit",
        Config { pools: Some(2), faults, ..CHANGED },
    );
}

#[test]
fn the_test_of_the_claim() {
    let faults = Faults { stale_leaders: 1, stale_agents: 1, deadlines: 1, ..Faults::NONE };
    is_found(
        Safeguard::Claim,
        "a host is rebooted from a boot that was not granted",
        Config { attempts: 1, faults, ..ONE },
    );
}

#[test]
fn the_handshake() {
    let faults = Faults { stale_agents: 1, people: 1, ..Faults::NONE };
    is_found(
        Safeguard::Handshake,
        "a host is rebooted from a boot that was not granted",
        Config { faults, ..ONE },
    );
}

#[test]
fn the_test_of_the_marker() {
    let faults = Faults { stale_leaders: 1, people: 1, ..Faults::NONE };
    is_found(Safeguard::Marker, "a host is rebooted that is not marked as drained", Config { faults, ..ONE });
}

#[test]
fn a_fresh_list_of_pods() {
    let faults = Faults { stale_leaders: 1, fall_backs: 1, ..Faults::NONE };
    is_found(Safeguard::FreshPods, "a host is rebooted while pods run on it", Config { faults, ..ONE });
}

#[test]
fn a_write_of_the_node_before_the_grant() {
    let faults = Faults { stale_leaders: 1, people: 2, ..Faults::NONE };
    is_found(
        Safeguard::FreshNode,
        "a host is rebooted that is not marked as drained",
        Config { faults, ..ONE },
    );
}

#[test]
fn no_reboot_into_a_version_that_is_halted() {
    // A canary that is late does not keep the second node from trying; then the first falls back.
    let faults = Faults { fall_backs: 1, deadlines: 1, ..Faults::NONE };
    is_found(
        Safeguard::Halt,
        "a reboot into an update that is halted is granted",
        Config { nodes: 2, limit: 2, attempts: 1, halts: true, faults, ..ONE },
    );
}

#[test]
fn few_try_what_nobody_has_reached() {
    is_found(
        Safeguard::Canaries,
        "too many nodes try an unproven update",
        Config { nodes: 2, limit: 2, attempts: 1, halts: true, ..ONE },
    );
}

#[test]
fn idle_at_the_slots_own_attempt() {
    is_found(Safeguard::OwnAttempt, "an update begins without its slot", {
        let faults = Faults { stale_leaders: 1, fall_backs: 1, ..Faults::NONE };
        Config { faults, ..ONE }
    });
}

#[test]
fn a_cordon_that_is_not_ours() {
    is_found(
        Safeguard::ForeignCordon,
        "a person's cordon is taken away",
        Config { foreign_cordon: true, ..ONE },
    );
}

#[test]
fn drained_is_taken_back_when_somebody_uncordons() {
    let faults = Faults { people: 1, ..Faults::NONE };
    // No reboot is granted all the same, for a fresh list of pods says no; and that for ever.
    is_found(Safeguard::DrainedAgain, "a quiet cluster settles", Config { faults, ..ONE });
}

#[test]
fn a_failure_counted_as_its_slot_returns() {
    let faults = Faults { fall_backs: 1, ..Faults::NONE };
    is_found(Safeguard::Counted, "a failure that is over is counted", Config { halts: true, faults, ..ONE });
}
