//! How many more nodes may be out of service: in each pool, and in the whole fleet.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::SLOTS_MAX;
use brupop_api::fleet::Slot;

use super::{LimitScope, Reason, Turn, UsedUp};
use crate::facts::NO_ZONE;
use crate::facts::{FleetFacts, NodeView, Owner};
use crate::objects::NodeFacts;

/// Where a node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place<'a> {
    /// The `BottlerocketPool` (by index) in whose limit it counts; `None` = the default pool, as for nodes that no pool may
    /// update.
    pub(super) pool: Option<usize>,
    /// Its zone, if it has one.
    pub(super) zone: Option<&'a str>,
    /// Its own name, if it is of the control plane.
    control_plane: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// The place of a node.
    pub(super) fn of(view: &NodeView<'a>) -> Self {
        let pool = match view.owner {
            Owner::Pool(index) => Some(index),
            Owner::DefaultPool | Owner::Conflict(..) | Owner::Unknown => None,
        };
        let control_plane = view
            .node
            .filter(|node| node.control_plane)
            .map(NodeFacts::name);
        Self {
            pool,
            zone: view.zone,
            control_plane,
        }
    }
}

/// What is left of the limits.
pub(super) struct Room<'a> {
    fleet: Places<'a>,
    default_pool: Places<'a>,
    pools: Vec<Places<'a>>,
    /// For each pool that keeps zones apart: those that have an unavailable node.
    busy: BTreeMap<usize, BTreeSet<Zone<'a>>>,
    /// The node of the control plane that has a slot.
    control_plane: Option<&'a str>,
}

/// A zone, for a pool that keeps zones apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Zone<'a> {
    /// The one of this name. Nodes that have none are a zone, too.
    Of(Option<&'a str>),
    /// The zone of a node that has left the pool.
    Unknown,
}

/// What is left of one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Places<'a> {
    limit: u64,
    /// Used by slots.
    slots: u64,
    /// Used by nodes that are out of service without a slot.
    unavailable: u64,
    /// The first of them.
    unavailable_node: Option<&'a str>,
    /// Nodes that get the places of these slots once they are given back.
    successors: u64,
}

impl<'a> Places<'a> {
    fn of(limit: u64) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    fn note_unavailable(&mut self, node: &'a str) {
        self.unavailable += 1;
        self.unavailable_node.get_or_insert(node);
    }

    /// The ledger has room for this many slots, however many nodes may be unavailable.
    fn is_full(self) -> bool {
        self.slots >= SLOTS_MAX || self.slots + self.unavailable >= self.limit
    }
}

impl<'a> Room<'a> {
    /// What these slots leave. A slot counts in the pool in which it was taken and, if its node has changed its pool
    /// since, in the one that owns it now.
    pub(super) fn beside<'s>(
        fleet: &FleetFacts<'_>,
        slots: impl Iterator<Item = (&'s Slot, Place<'a>)>,
    ) -> Self {
        let index: BTreeMap<&str, usize> = fleet
            .pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (pool.name, index))
            .collect();
        let one_by_one = fleet
            .pools
            .iter()
            .enumerate()
            .filter(|(_, pool)| pool.one_zone_at_a_time);
        let mut room = Self {
            fleet: Places::of(fleet.ceiling),
            default_pool: Places::of(fleet.default_pool.limit),
            pools: fleet
                .pools
                .iter()
                .map(|pool| Places::of(pool.limit))
                .collect(),
            busy: one_by_one
                .map(|(index, _)| (index, BTreeSet::new()))
                .collect(),
            control_plane: None,
        };
        for (slot, now) in slots {
            let taken_in = match &slot.pool {
                None => Some(None),
                Some(pool) => index.get(pool.as_str()).map(|index| Some(*index)),
            };
            if let Some(pool) = taken_in.filter(|pool| now.pool != *pool) {
                room.places(pool).slots += 1;
                room.keep_busy(pool, Zone::Unknown);
            }
            room.take(now);
        }
        room
    }

    /// Whether one more node may be taken out of service there.
    pub(super) fn has(&self, place: Place<'a>) -> bool {
        let keeps_quorum = place.control_plane.is_none() || self.control_plane.is_none();
        keeps_quorum && self.has_places(place.pool) && self.busy_elsewhere(place).is_none()
    }

    /// Whether the limits of this pool and of the fleet leave a place, whatever zone or node of the control plane is busy.
    pub(super) fn has_places(&self, pool: Option<usize>) -> bool {
        !self.fleet.is_full() && !self.of(pool).is_full()
    }

    /// Whether there will be room for one more node there, beside those that follow already, once all updates there are over.
    pub(super) fn will_have(&self, place: Place<'a>) -> bool {
        let places = self.of(place.pool);
        places.successors < places.slots && self.busy_elsewhere(place).is_none()
    }

    /// A node follows there.
    pub(super) fn note_successor(&mut self, place: Place<'a>) {
        self.places(place.pool).successors += 1;
    }

    /// A node gets a slot there.
    pub(super) fn take(&mut self, place: Place<'a>) {
        self.fleet.slots += 1;
        self.places(place.pool).slots += 1;
        self.keep_busy(place.pool, Zone::Of(place.zone));
        self.control_plane = self.control_plane.or(place.control_plane);
    }

    /// This node is out of service there without a slot.
    pub(super) fn note_unavailable(&mut self, place: Place<'a>, node: &'a str) {
        self.fleet.note_unavailable(node);
        self.places(place.pool).note_unavailable(node);
        self.keep_busy(place.pool, Zone::Of(place.zone));
    }

    /// What the others there wait for.
    pub(super) fn why(&self, place: Place<'a>) -> Reason<'a> {
        let places = self.of(place.pool);
        let (full, limit) = match place.pool {
            // The fleet's may be the lower one, also for the default pool.
            _ if !places.is_full()
                || (self.fleet.is_full() && self.fleet.limit <= places.limit) =>
            {
                (self.fleet, LimitScope::Fleet)
            }
            Some(_) => (places, LimitScope::Pool),
            None => (places, LimitScope::DefaultPool),
        };
        if full.is_full() {
            let by_others = full.unavailable_node.filter(|_| full.slots == 0);
            return by_others.map_or(Reason::LimitReached(Turn::NoSlot), |node| {
                Reason::LimitUsedByUnavailableNodes(UsedUp { node, limit })
            });
        }
        match (
            self.busy_elsewhere(place),
            self.control_plane.filter(|_| place.control_plane.is_some()),
        ) {
            (Some(Zone::Of(zone)), _) => Reason::WaitingForZone(zone.unwrap_or(NO_ZONE)),
            (Some(Zone::Unknown), _) => Reason::WaitingForZone("of a node that has left the pool"),
            (None, Some(node)) => Reason::ControlPlaneBusy(node),
            (None, None) => Reason::LimitReached(Turn::NoSlot),
        }
    }

    /// Another zone than this, in a pool that keeps them apart, that has an unavailable node.
    fn busy_elsewhere(&self, place: Place<'a>) -> Option<Zone<'a>> {
        self.busy
            .get(&place.pool?)?
            .iter()
            .find(|zone| **zone != Zone::Of(place.zone))
            .copied()
    }

    fn keep_busy(&mut self, pool: Option<usize>, zone: Zone<'a>) {
        if let Some(busy) = pool.and_then(|index| self.busy.get_mut(&index)) {
            busy.insert(zone);
        }
    }

    fn of(&self, pool: Option<usize>) -> Places<'a> {
        pool.map_or(self.default_pool, |index| {
            self.pools.get(index).copied().unwrap_or_default()
        })
    }

    fn places(&mut self, pool: Option<usize>) -> &mut Places<'a> {
        // A pool without facts has no limit to count against; the default pool has.
        pool.and_then(|index| self.pools.get_mut(index))
            .unwrap_or(&mut self.default_pool)
    }
}
