//! Properties of pools: limits, order, pauses and deletions; and states that must be reachable.

use brupop_api::Marker;
use brupop_api::State;
use brupop_core::facts::{NodeView, PoolFacts};
use stateright::Property;

use crate::ledger::{Held, Ledger};
use crate::objects::{Node, POOLS, Shadow, VERSIONS};
use crate::pools::{POOL_LIMIT, Pools, held, owner, pool_of};
use crate::state::{Config, Faults, Safeguard};
use crate::world::{Place, World};

const OUT_OF_SERVICE: &str = "nodes of a pool that are out of service never exceed its limit";

/// The properties that the checker holds against every state.
pub(super) fn all(config: &Config) -> Vec<Property<Config>> {
    let mut all = vec![];
    if config.pools.is_some() {
        all.push(Property::always(
            "slots of a pool never exceed its limit",
            |_, world: &World| (0..2).all(|pool| world.ledger.in_use_of(pool) <= POOL_LIMIT),
        ));
        all.push(Property::always(
            "reboots in a pool never exceed its limit",
            |config: &Config, world: &World| {
                (0..2).all(|pool| world.count_in(config, pool, Place::is_granted) <= POOL_LIMIT)
            },
        ));
    }
    // No write of a Node can test whether its update still has its slot. So one that is decided on a view of long ago, or
    // lingers, may cordon a node that has given it back; the next pass uncordons it.
    let sees_now = config.faults.stale_leaders == 0 || config.without == Some(Safeguard::SeenNow);
    if config.pools.is_some() && sees_now {
        all.push(Property::always(
            OUT_OF_SERVICE,
            |config: &Config, world: &World| {
                let out = |place: &Place| place.is_cordoned_by_us() || place.is_granted();
                (0..2).all(|pool| world.count_in(config, pool, out) <= POOL_LIMIT)
            },
        ));
    }
    if config.only_pools_change() {
        all.push(Property::always(
            "no node fails for what is said of its pool",
            |_, world: &World| {
                world
                    .places
                    .iter()
                    .all(|place| place.shadow.is_none_or(|shadow| shadow.failures.is_none()))
            },
        ));
    }
    let Faults {
        pauses,
        pool_pauses,
        windows,
        ..
    } = config.faults;
    if pauses + pool_pauses + windows > 0 {
        all.push(Property::sometimes(
            "a slot is given back for a pause",
            |config: &Config, world: &World| {
                world.places.iter().enumerate().any(|(at, place)| {
                    let shadow = place
                        .shadow
                        .filter(|it| it.state == State::Idle && it.version == Some(1));
                    let pool = |node: Node| owner(config, world.pools, Some(node.pool));
                    let paused = place.node.is_some_and(|node| held(world.pools, pool(node)));
                    let paused = paused || world.ledger.paused;
                    shadow.is_some()
                        && paused
                        && place.host.version == 0
                        && world.ledger.slots[at].is_none()
                })
            },
        ));
    }
    if config.faults.pool_deletions > 0 {
        all.push(Property::sometimes(
            "a host reboots whose pool is gone",
            |_, world: &World| {
                world
                    .places
                    .iter()
                    .zip(&world.ledger.slots)
                    .any(|(place, slot)| {
                        let pool = slot.and_then(|held| held.pool);
                        place.host.rebooting
                            && pool.is_some_and(|pool| world.pools[usize::from(pool)].gone)
                    })
            },
        ));
    }
    all
}

/// A leader's view when it decided on slots.
pub(crate) struct Judged<'s> {
    pub(crate) views: &'s [NodeView<'static>],
    pub(crate) pools: Pools,
}

impl Judged<'_> {
    /// Returns why this change of the ledger is wrong, if it is.
    pub(crate) fn wrong(
        &self,
        config: &Config,
        before: &Ledger,
        after: &Ledger,
    ) -> Option<&'static str> {
        self.too_many(before, after)
            .or_else(|| self.began_though_held(before, after))
            .or_else(|| self.began_out_of_turn(config, before, after))
            .or_else(|| self.noted_too_early(before, after))
            .or_else(|| self.forgotten(before, after))
    }

    /// The pool in which the leader saw this node.
    fn pool(&self, at: usize) -> Option<u8> {
        pool_of(self.pools, self.views.get(at)?.owner)
    }

    /// Yields the nodes whose update begins with these slots.
    fn begins(&self, before: &Ledger, after: &Ledger) -> impl Iterator<Item = usize> {
        let begins = |(at, view): (usize, &NodeView<'_>)| {
            let idle = view
                .shadow
                .is_some_and(|shadow| shadow.spec.state == State::Idle);
            (idle && before.slots[at].is_none() && after.slots[at].is_some()).then_some(at)
        };
        self.views.iter().enumerate().filter_map(begins)
    }

    /// A slot has changed its pool; or one was taken in a pool that has as many already, by the pools of the slots and
    /// by where the leader sees their nodes.
    fn too_many(&self, before: &Ledger, after: &Ledger) -> Option<&'static str> {
        for (at, (was, is)) in before.slots.iter().zip(after.slots).enumerate() {
            let Some(is) = is else { continue };
            let kept = was.filter(|was| (was.life, was.attempt) == (is.life, is.attempt));
            if kept.is_some_and(|was| was.pool != is.pool) {
                return Some("a slot changes its pool");
            }
            let counts = |(other, held): (usize, &Option<Held>)| {
                held.is_some_and(|held| held.pool == is.pool || self.pool(other) == is.pool)
            };
            let used = after
                .slots
                .iter()
                .enumerate()
                .filter(|it| counts(*it))
                .count() as u64;
            if kept.is_none() && is.pool.is_some() && is.pool == self.pool(at) && used > POOL_LIMIT
            {
                return Some("an update begins in a pool that has as many as it may");
            }
        }
        None
    }

    fn began_though_held(&self, before: &Ledger, after: &Ledger) -> Option<&'static str> {
        let wrong = self
            .begins(before, after)
            .any(|at| held(self.pools, self.views[at].owner));
        wrong.then_some("an update begins although its pool is paused, or gone")
    }

    /// The second pool begins before the first is done, by what the ledger has noted.
    fn began_out_of_turn(
        &self,
        config: &Config,
        before: &Ledger,
        after: &Ledger,
    ) -> Option<&'static str> {
        let done = before.done.is_some();
        let second = || {
            self.begins(before, after)
                .any(|at| self.pool(at) == Some(1))
        };
        (config.order && !done && second())
            .then_some("an update begins before the pool that goes first is done with it")
    }

    /// The first pool is noted as done, and the leader saw that it was not: a node in service has to run the update, and
    /// none may want it, or have a slot for it.
    fn noted_too_early(&self, before: &Ledger, after: &Ledger) -> Option<&'static str> {
        if before.done.is_some() || after.done.is_none() {
            return None;
        }
        let first = || {
            self.views
                .iter()
                .enumerate()
                .filter(|(at, _)| self.pool(*at) == Some(0))
        };
        let runs = first().filter_map(|(_, view)| view.node).any(|node| {
            node.version() == Some(VERSIONS[1])
                && node.is_ready()
                && node.marker().is_none_or(Marker::is_kept)
                && !node.unschedulable
        });
        let comes = first().any(|(at, _)| after.slots[at].is_some());
        (!runs || comes || self.first_is_left()).then_some("a pool is noted as done that is not")
    }

    /// Whether a node of the first pool wants the update.
    pub(crate) fn first_is_left(&self) -> bool {
        let mut first = self
            .views
            .iter()
            .enumerate()
            .filter(|(at, _)| self.pool(*at) == Some(0));
        first.any(|(_, view)| {
            let wanted = view
                .shadow
                .and_then(|shadow| shadow.status.target_version.as_deref());
            let updated = view
                .node
                .is_none_or(|node| node.version() == Some(VERSIONS[1]));
            !updated && wanted == Some(VERSIONS[1])
        })
    }

    /// That the first pool is done is forgotten without a halt, though the second still comes after it.
    fn forgotten(&self, before: &Ledger, after: &Ledger) -> Option<&'static str> {
        (before.done.is_some() && after.done.is_none() && !after.is_halted() && !self.pools[1].gone)
            .then_some("it is forgotten that a pool is done")
    }
}

/// Returns why it is wrong that the second pool waits, if it does: the first was done with the update, by the ledger.
pub(crate) fn waits_again(
    config: &Config,
    seen: &Ledger,
    pools: &[PoolFacts<'_>],
) -> Option<&'static str> {
    let second = pools.iter().find(|pool| pool.name == POOLS[1])?;
    let waits = || {
        second
            .waits_for
            .get(VERSIONS[1])
            .is_some_and(Option::is_some)
    };
    (config.order && seen.done.is_some() && waits()).then_some("a pool waits for one that was done")
}

/// Returns why what the ledger notes of the pool that goes first is wrong, if it is.
pub(super) fn wrong_note(world: &World) -> Option<&'static str> {
    world.ledger.done?;
    if world.arrivals == 0 {
        Some("a pool is done with an update that no host has come up with")
    } else if world.ledger.is_halted() {
        Some("a pool is done with an update that is halted")
    } else {
        None
    }
}

/// A leader's view when it decided on a write for a node.
#[derive(Clone, Copy)]
pub(crate) struct Saw {
    pub(crate) halt: bool,
    /// The node's pool did not let it go on, or the fleet was paused.
    pub(crate) held: bool,
    pub(crate) draining: bool,
}

/// Returns why this change of a Node is wrong, if it is: its drain begins though the leader saw that the fleet or its pool is
/// paused, or outside its window, or gone with nobody to steer it.
pub(crate) fn wrong_cordon(
    before: Option<Node>,
    after: Option<Node>,
    saw: Saw,
) -> Option<&'static str> {
    let started = |node: Option<Node>| {
        node.and_then(|node| node.marker)
            .is_some_and(|mark| mark.started)
    };
    (saw.held && started(after) && !started(before))
        .then_some("a node is cordoned although its pool is paused")
}

/// Returns why this change of a spec is wrong, if it is: an update begins though the leader saw that the pool is paused; or it
/// is given up after the cordon, though nothing has changed but pools.
pub(crate) fn wrong_spec(
    config: &Config,
    place: &Place,
    before: &Shadow,
    after: &Shadow,
    saw: Saw,
) -> Option<&'static str> {
    let (was_idle, is_idle) = (before.state == State::Idle, after.state == State::Idle);
    if was_idle && !is_idle && saw.held {
        return Some("an update begins although its pool is paused, or gone");
    }
    let given_up = !was_idle && is_idle && place.host.version == 0;
    (config.only_pools_change() && !config.halts && given_up && saw.draining)
        .then_some("an update is given up after the cordon for what is said of its pool")
}

/// Whether the pool of this node, or the pool that goes first, holds its update. That pool may have lost its nodes.
pub(super) fn holds_back(config: &Config, world: &World, place: &Place) -> bool {
    let owner = owner(config, world.pools, place.node.map(|node| node.pool));
    let done = world.ledger.done.is_some();
    let second = || pool_of(world.pools, owner) == Some(1);
    held(world.pools, owner) || config.order && !done && second()
}

impl World {
    /// Returns how many such nodes count in this pool: one with a slot does where the slot was taken.
    fn count_in(&self, config: &Config, pool: u8, is_such: impl Fn(&Place) -> bool) -> u64 {
        let counts_in = |at: usize, place: &Place| match self.ledger.slots[at] {
            Some(held) => held.pool,
            None => pool_of(
                self.pools,
                owner(config, self.pools, place.node.map(|node| node.pool)),
            ),
        };
        let places = self.places.iter().enumerate();
        places
            .filter(|(at, place)| is_such(place) && counts_in(*at, place) == Some(pool))
            .count() as u64
    }
}

impl Place {
    fn is_cordoned_by_us(&self) -> bool {
        let mark = self
            .node
            .filter(|node| node.unschedulable)
            .and_then(|node| node.marker);
        mark.is_some_and(|mark| mark.cordoned)
    }

    /// Whether its host may reboot now, or is about to.
    fn is_granted(&self) -> bool {
        self.shadow
            .is_some_and(|shadow| shadow.grant == Some(self.host.boot))
    }
}
