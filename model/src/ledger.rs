//! The fleet's object: slots, what became of the one version, and which halt of it a person ends.

use brupop_api::fleet::VersionRecord;

use crate::objects::{NODES, NODES_MAX, small, time};

/// Most successes that a record tells apart.
pub const SUCCEEDED_MAX: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Held {
    /// The life of the shadow that it is for.
    pub life: u8,
    pub attempt: u8,
    /// Its node has not been Ready for long since its host began its reboot.
    pub lost: bool,
    /// The failure of its node is counted.
    pub counted: bool,
    /// The pool in which it was taken.
    pub pool: Option<u8>,
    /// It was taken while the update was halted, or by the patch that halted it; by anyone who did not see that.
    pub blindly: bool,
}

/// The outcome of the update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// The nodes that failed to reach it: the time of the last failure of each.
    pub failures: [Option<u8>; NODES_MAX],
    /// A node stands in it more than once; that must not be.
    pub doubled: bool,
    /// Number of nodes that reached it.
    pub succeeded: u8,
    /// No new node tries it: the time of that halt.
    pub halted: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ledger {
    /// The generation of the spec.
    pub generation: u8,
    /// A person has paused the fleet.
    pub paused: bool,
    pub term: u8,
    pub slots: [Option<Held>; NODES_MAX],
    /// The outcome of the update, if any.
    pub record: Option<Record>,
    /// The time since which the pool that goes first is done with the update.
    pub done: Option<u8>,
    /// The time that stands for the update in `spec.resumedVersions`.
    pub resumed: Option<u8>,
}

impl Ledger {
    pub fn in_use(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// Slots in use that were taken in this pool.
    pub fn in_use_of(&self, pool: u8) -> u64 {
        self.slots
            .iter()
            .flatten()
            .filter(|held| held.pool == Some(pool))
            .count() as u64
    }

    /// The same ledger with its nodes in another order, see [`crate::World::in_order`].
    pub(crate) fn in_order(&self, order: &[usize]) -> Self {
        let mut ledger = *self;
        for (to, &from) in order.iter().enumerate() {
            ledger.slots[to] = self.slots[from];
            if let (Some(record), Some(old)) = (&mut ledger.record, self.record) {
                record.failures[to] = old.failures[from];
            }
        }
        ledger
    }

    pub fn is_halted(&self) -> bool {
        self.record.is_some_and(|record| record.halted.is_some())
    }
}

impl Record {
    /// Returns how many nodes failed.
    pub fn failed(&self) -> u64 {
        self.failures.iter().flatten().count() as u64
    }

    pub(crate) fn of(record: &VersionRecord) -> Self {
        let mut failures = [None; NODES_MAX];
        let mut doubled = false;
        for failure in &record.failures {
            if let Some(index) = NODES.iter().position(|name| *name == failure.node) {
                doubled |= failures[index].is_some();
                failures[index] = Some(time(&failure.at));
            }
        }
        Self {
            failures,
            doubled,
            succeeded: small(record.succeeded).min(SUCCEEDED_MAX),
            halted: record.halted_at.as_deref().map(time),
        }
    }
}
