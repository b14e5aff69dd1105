//! Versions that are halted in one pool: their updates left workloads of its nodes unavailable.
//!
//! Whether a host comes up with a version says something about the version, and counts in the whole fleet. Whether the
//! workloads of a node come back says as much about these, and so counts in its pool. The records are kept by name of the
//! pool, so making a pool again lifts nothing; and there is room for few, so what finds none counts in the whole fleet.

use std::collections::BTreeMap;

use brupop_api::crds::POOL_RECORDS_MAX;
use brupop_api::fleet::{NodeFailure, Slot, VersionRecord};
use brupop_api::{Field, Value};
use jiff::Timestamp;

use super::Abort;
use super::records::{self, Halted};
use crate::facts::{FleetFacts, NodeView, Steering};
use crate::rules::FailureBudget;
use crate::times;

/// A pool and a version.
type Key<'a> = (&'a str, &'a str);

/// The records of pools that change.
#[derive(Default)]
pub(super) struct PoolHalts<'a> {
    changed: BTreeMap<Key<'a>, VersionRecord>,
}

/// Is this version halted for this node, in the fleet or in its pool?
pub(super) fn is_halted_anywhere(fleet: &FleetFacts<'_>, view: &NodeView<'_>, version: &str) -> bool {
    let variant = view.node.and_then(|node| node.variant);
    let record = fleet.versions.get(version);
    record.is_some_and(|record| record.is_halted_for(variant)) || is_halted_for(fleet, view, version)
}

/// Is this version halted in the pool that steers this node?
pub(super) fn is_halted_for(fleet: &FleetFacts<'_>, view: &NodeView<'_>, version: &str) -> bool {
    let Steering::Pool(index) = view.steering else { return false };
    fleet.pools.get(index).is_some_and(|pool| is_halted(fleet, pool.name, version))
}

/// Is this version halted in this pool?
fn is_halted(fleet: &FleetFacts<'_>, pool: &str, version: &str) -> bool {
    stored(fleet, (pool, version)).is_some_and(|record| record.halted.is_some())
}

/// The pool in which such a failure of an update with this slot counts; `None` = it counts in the whole fleet, as it does if
/// the pool is gone.
fn blamed<'a>(fleet: &FleetFacts<'a>, slot: &'a Slot, reason: &str) -> Option<&'a str> {
    let of_workloads = [Abort::WorkloadsUnavailable, Abort::WorkloadsUnavailableAmongOthers];
    let name = slot.pool.as_deref().filter(|_| of_workloads.iter().any(|abort| abort.as_str() == reason))?;
    fleet.pool(name).map(|_| name)
}

fn stored<'a>(fleet: &FleetFacts<'a>, (pool, version): Key<'_>) -> Option<&'a VersionRecord> {
    if fleet.pool_versions.is_empty() {
        return None;
    }
    fleet.pool_versions.get(&format!("{pool}/{version}"))
}

/// Up to when a person has acknowledged this pool's halts of this version.
fn acknowledged(fleet: &FleetFacts<'_>, (name, version): Key<'_>) -> Option<Timestamp> {
    let halts = &fleet.pool(name)?.rules?.acknowledged;
    times::read(Some(&halts.iter().find(|halt| halt.version == version)?.halted_at))
}

impl<'a> PoolHalts<'a> {
    /// Lifts the halts that a person has acknowledged.
    pub(super) fn lift(&mut self, fleet: &FleetFacts<'a>) {
        for (name, record) in fleet.pool_versions {
            let (Some(key), Some(halt)) = (name.split_once('/'), &record.halted) else { continue };
            if let Some(upto) = records::lifted(fleet.now, acknowledged(fleet, key), halt) {
                let lifted = (None, Some(upto.to_string()));
                self.change(fleet, key, |record| (record.halted, record.acknowledged_at) = lifted);
            }
        }
    }

    fn change(&mut self, fleet: &FleetFacts<'a>, key: Key<'a>, change: impl FnOnce(&mut VersionRecord)) {
        change(self.changed.entry(key).or_insert_with(|| stored(fleet, key).cloned().unwrap_or_default()));
    }

    /// The record in which such a failure of an update with this slot is counted, if it counts in a pool.
    pub(super) fn record(
        &self,
        fleet: &FleetFacts<'a>,
        slot: &'a Slot,
        version: &'a str,
        reason: &str,
    ) -> Option<&VersionRecord> {
        let key = (blamed(fleet, slot, reason)?, version);
        self.changed.get(&key).or_else(|| stored(fleet, key))
    }

    /// Counts a failure, if it is one that counts in a pool, and there is room for it.
    pub(super) fn failed(
        &mut self,
        fleet: &FleetFacts<'a>,
        slot: &'a Slot,
        version: &'a str,
        node: &str,
        reason: &str,
    ) -> bool {
        let Some(key) = blamed(fleet, slot, reason).map(|pool| (pool, version)) else { return false };
        if !self.has_room(fleet, key) {
            return false;
        }
        let named = acknowledged(fleet, key);
        self.change(fleet, key, |record| {
            let at = records::moment(fleet.now, named, record);
            records::note_failure(
                record,
                NodeFailure { node: node.into(), at, reason: reason.into(), variant: None },
            );
        });
        true
    }

    /// Records that a node has reached a version after all, from its pool.
    pub(super) fn succeeded(&mut self, fleet: &FleetFacts<'a>, slot: &'a Slot, version: &'a str, node: &str) {
        let Some(key) = slot.pool.as_deref().map(|pool| (pool, version)) else { return };
        let failed = |record: &VersionRecord| record.failures.iter().any(|failure| failure.node == node);
        if self.changed.get(&key).or_else(|| stored(fleet, key)).is_some_and(failed) {
            self.change(fleet, key, |record| record.failures.retain(|failure| failure.node != node));
        }
    }

    /// Halts the versions that too many nodes of a pool failed to reach. Tells of those that were not halted before.
    pub(super) fn halt(
        &mut self,
        fleet: &FleetFacts<'a>,
        is_proven: impl Fn(&str) -> bool,
    ) -> Vec<Halted<'a>> {
        let mut halted = vec![];
        for (&(name, version), record) in &mut self.changed {
            let rules = fleet.pool(name).and_then(|pool| pool.rules);
            let budget = rules.map_or(FailureBudget::DEFAULT, |rules| rules.failures);
            let budget = if is_proven(version) { budget.proven } else { budget.unproven };
            halted.extend(
                records::halt(fleet.now, version, record, |_, _| budget)
                    .map(|halted| Halted { why: format!("in the pool {name}, {}", halted.why), ..halted }),
            );
        }
        halted
    }

    /// Do the changes of this pass halt this version for this node: in its pool, or in one that goes first?
    pub(super) fn halts(&self, fleet: &FleetFacts<'a>, view: &NodeView<'a>, version: &str) -> bool {
        let Some(pool) = fleet.pool_of(view) else { return false };
        let first = pool.rules.into_iter().flat_map(|rules| &rules.after).map(|(pool, _)| pool.as_str());
        let halted = |pool| self.changed.get(&(pool, version)).is_some_and(|record| record.halted.is_some());
        first.chain([pool.name]).any(halted)
    }

    /// Is this version halted in this pool, after the changes of this pass?
    pub(super) fn is_halted(&self, fleet: &FleetFacts<'a>, key: Key<'_>) -> bool {
        let record = self.changed.get(&key).or_else(|| stored(fleet, key));
        record.is_some_and(|record| record.halted.is_some())
    }

    /// Is there room for this record, perhaps for that of a pool that is gone, or of a halt that was lifted?
    fn has_room(&self, fleet: &FleetFacts<'a>, key: Key<'a>) -> bool {
        let known = |key: Key<'a>| stored(fleet, key).is_some();
        let new = self.changed.keys().filter(|key| !known(**key)).count();
        let used = fleet.pool_versions.len() + new;
        known(key) || self.changed.contains_key(&key) || used < POOL_RECORDS_MAX + self.idle(fleet).len()
    }

    /// The stored records that may go, in the order in which they do.
    fn idle(&self, fleet: &FleetFacts<'a>) -> Vec<Key<'a>> {
        let all = fleet.pool_versions.iter();
        let all = all.filter_map(|(name, record)| Some((name.split_once('/')?, record)));
        let mut idle: Vec<_> = all
            .filter(|(key, _)| !self.changed.contains_key(key))
            .filter(|((name, _), record)| record.halted.is_none() || fleet.pool(name).is_none())
            .map(|(key, record)| (record.halted.as_ref().map(|halt| halt.at.as_str()), key))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, key)| key).collect()
    }

    /// What is to be set in the ledger.
    pub(super) fn sets(self, fleet: &FleetFacts<'a>) -> Vec<(Field<'a>, Value<'a>)> {
        let new = self.changed.keys().filter(|key| stored(fleet, **key).is_none()).count();
        let surplus = (fleet.pool_versions.len() + new).saturating_sub(POOL_RECORDS_MAX);
        let gone = self.idle(fleet).into_iter().take(surplus);
        let field = |(pool, version): Key<'a>| Field::PoolRecord { pool, version };
        let gone: Vec<_> = gone.map(|key| (field(key), Value::Absent)).collect();
        let changed = self.changed.into_iter();
        gone.into_iter()
            .chain(changed.map(|(key, record)| (field(key), Value::VersionRecord(record))))
            .collect()
    }
}
