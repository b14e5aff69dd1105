//! How many more nodes may be out of service: in each group, and in the whole fleet.

use std::collections::BTreeMap;

use brupop_api::fleet::Slot;

use super::Reason;
use crate::facts::{FleetFacts, NodeView, Steering};

/// The nodes that count against one limit: those of a pool, or those that no pool owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// No pool owns them.
    Unpooled,
    /// Those of the pool with this index.
    Pool(usize),
}

/// The group of a node.
pub(super) fn group(view: &NodeView<'_>) -> Group {
    match view.steering {
        Steering::Pool(index) => Group::Pool(index),
        Steering::Environment | Steering::Conflict(_) | Steering::Nobody => Group::Unpooled,
    }
}

/// What is left of the limits.
pub(super) struct Room {
    fleet: Places,
    unpooled: Places,
    pools: Vec<Places>,
}

/// What is left of one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    limit: usize,
    /// Used by slots.
    slots: usize,
    /// Used by nodes that are out of service without a slot.
    unavailable: usize,
}

impl Places {
    fn of(limit: u64) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), ..Self::default() }
    }

    fn is_full(self) -> bool {
        self.slots + self.unavailable >= self.limit
    }
}

impl Room {
    /// What these slots leave. A slot counts in the pool in which it was taken and, if its node has changed its pool
    /// since, in the one that owns it now.
    pub(super) fn beside<'s>(
        fleet: &FleetFacts<'_>,
        slots: impl Iterator<Item = (&'s Slot, Option<Group>)>,
    ) -> Self {
        let index: BTreeMap<&str, usize> =
            fleet.pools.iter().enumerate().map(|(index, pool)| (pool.name, index)).collect();
        let pools = fleet.pools.iter().map(|pool| Places::of(pool.limit)).collect();
        let mut room = Self { fleet: Places::of(fleet.ceiling), unpooled: Places::of(fleet.limit), pools };
        for (slot, now) in slots {
            let taken_in = match &slot.pool {
                None => Some(Group::Unpooled),
                Some(pool) => index.get(pool.as_str()).map(|index| Group::Pool(*index)),
            };
            room.fleet.slots += 1;
            for group in taken_in.into_iter().chain(now.filter(|now| Some(*now) != taken_in)) {
                room.places(group).slots += 1;
            }
        }
        room
    }

    /// May one more node of this group be taken out of service?
    pub(super) fn has(&self, group: Group) -> bool {
        !self.fleet.is_full() && !self.of(group).is_full()
    }

    /// A node of this group gets a slot.
    pub(super) fn take(&mut self, group: Group) {
        self.fleet.slots += 1;
        self.places(group).slots += 1;
    }

    /// A node of this group is out of service without a slot.
    pub(super) fn note_unavailable(&mut self, group: Group) {
        self.fleet.unavailable += 1;
        self.places(group).unavailable += 1;
    }

    /// What the others of this group wait for.
    pub(super) fn why(&self, group: Group) -> Reason<'static> {
        let places = self.of(group);
        let full = if places.is_full() { places } else { self.fleet };
        if full.is_full() && full.slots == 0 {
            Reason::LimitUsedByUnavailableNodes
        } else {
            Reason::LimitReached
        }
    }

    fn of(&self, group: Group) -> Places {
        match group {
            Group::Unpooled => self.unpooled,
            Group::Pool(index) => self.pools.get(index).copied().unwrap_or_default(),
        }
    }

    fn places(&mut self, group: Group) -> &mut Places {
        match group {
            Group::Unpooled => &mut self.unpooled,
            // A pool without facts has no limit to count against; the fleet has.
            Group::Pool(index) => self.pools.get_mut(index).unwrap_or(&mut self.unpooled),
        }
    }
}
