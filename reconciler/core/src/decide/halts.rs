//! Versions that are halted in the whole fleet or in one pool: which record says so, and where a failure counts.
//!
//! Whether a host comes up with a version says something about the version, and counts in the whole fleet. Whether the
//! workloads of a node come back says as much about these, and so counts in its pool. A pool's records are kept by its
//! name, so making a pool again lifts nothing; and there is room for few, so what finds none counts in the whole fleet.

use brupop_api::Field;
use brupop_api::fleet::{AcknowledgedHalt, Slot, VersionRecord};
use jiff::Timestamp;

use super::Abort;
use crate::facts::{FleetFacts, NodeView};
use crate::rules::FailureBudget;
use crate::times;

/// Which record it is: what became of a version in the whole fleet, or in one pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    /// `None` = the whole fleet.
    pub(super) pool: Option<&'a str>,
    pub(super) version: &'a str,
}

impl<'a> Key<'a> {
    pub(super) fn of_fleet(version: &'a str) -> Self {
        Self { pool: None, version }
    }

    pub(super) fn of_pool(pool: &'a str, version: &'a str) -> Self {
        Self { pool: Some(pool), version }
    }

    /// All records that the ledger has.
    pub(super) fn all(fleet: &FleetFacts<'a>) -> impl Iterator<Item = (Self, &'a VersionRecord)> + use<'a> {
        let of_fleet = fleet.versions.iter().map(|(version, record)| (Self::of_fleet(version), record));
        of_fleet.chain(Self::all_of_pools(fleet))
    }

    pub(super) fn all_of_pools(
        fleet: &FleetFacts<'a>,
    ) -> impl Iterator<Item = (Self, &'a VersionRecord)> + use<'a> {
        fleet.pool_versions.iter().filter_map(|(name, record)| {
            let (pool, version) = name.split_once('/')?;
            Some((Self::of_pool(pool, version), record))
        })
    }

    /// The record, as the ledger has it.
    pub(super) fn stored<'f>(self, fleet: &FleetFacts<'f>) -> Option<&'f VersionRecord> {
        match self.pool {
            None => fleet.versions.get(self.version),
            // Most fleets have none.
            Some(_) if fleet.pool_versions.is_empty() => None,
            Some(pool) => fleet.pool_versions.get(&format!("{pool}/{}", self.version)),
        }
    }

    /// Up to when a person has acknowledged its halts.
    pub(super) fn acknowledged(self, fleet: &FleetFacts<'_>) -> Option<Timestamp> {
        let halts: &[AcknowledgedHalt] = match self.pool {
            None => fleet.acknowledged,
            Some(pool) => &fleet.pool(pool)?.rules?.acknowledged,
        };
        times::read(Some(&halts.iter().find(|halt| halt.version == self.version)?.halted_at))
    }

    /// How many nodes may fail.
    pub(super) fn budget(self, fleet: &FleetFacts<'_>) -> FailureBudget {
        let Some(pool) = self.pool else { return fleet.budget };
        let rules = fleet.pool(pool).and_then(|pool| pool.rules);
        rules.map_or(FailureBudget::DEFAULT, |rules| rules.failures)
    }

    pub(super) fn field(self) -> Field<'a> {
        let Self { pool, version } = self;
        pool.map_or(Field::VersionRecord(version), |pool| Field::PoolRecord { pool, version })
    }
}

/// Is this version halted for this node, in the fleet or in its pool?
pub(super) fn is_halted_anywhere(fleet: &FleetFacts<'_>, view: &NodeView<'_>, version: &str) -> bool {
    let variant = view.node.and_then(|node| node.variant);
    let record = fleet.versions.get(version);
    record.is_some_and(|record| record.is_halted_for(variant)) || is_halted_for(fleet, view, version)
}

/// Is this version halted in the pool that steers this node?
pub(super) fn is_halted_for(fleet: &FleetFacts<'_>, view: &NodeView<'_>, version: &str) -> bool {
    let record = fleet.pool_of(view).and_then(|pool| Key::of_pool(pool.name, version).stored(fleet));
    record.is_some_and(|record| record.halted.is_some())
}

/// The pool in which such a failure of an update with this slot counts; `None` = it counts in the whole fleet, as it does if
/// the pool is gone.
pub(super) fn blamed<'a>(fleet: &FleetFacts<'a>, slot: &'a Slot, reason: &str) -> Option<&'a str> {
    let of_workloads = [Abort::WorkloadsUnavailable, Abort::WorkloadsUnavailableAmongOthers];
    let name = slot.pool.as_deref().filter(|_| of_workloads.iter().any(|abort| abort.as_str() == reason))?;
    fleet.pool(name).map(|_| name)
}
