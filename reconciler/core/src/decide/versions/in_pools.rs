//! The records of single pools, among those that change: which of them halt a version for a node, and how much room they have.

use brupop_api::crds::POOL_RECORDS_MAX;
use brupop_api::fleet::VersionRecord;

use super::{Key, VersionRecords};
use crate::facts::{FleetFacts, NodeView};

impl<'a> VersionRecords<'a> {
    /// Do the changes of this pass halt this version for this node: in the fleet, in its pool, or in one that goes first?
    pub(crate) fn halts(&self, fleet: &FleetFacts<'a>, view: &NodeView<'a>, version: &str) -> bool {
        let variant = view.node.and_then(|node| node.variant);
        let pool = fleet.pool_of(view);
        let first = pool.and_then(|pool| pool.rules).into_iter().flat_map(|rules| rules.after.iter());
        let pools = first.map(|(pool, _)| pool.as_str()).chain(pool.map(|pool| pool.name));
        pools.map(Some).chain([None]).any(|pool| {
            let record = self.changed.get(&Key { pool, version });
            record.is_some_and(|record| record.is_halted_for(variant))
        })
    }

    /// Is there room for this record of a pool, perhaps for that of a pool that is gone, or of a halt that was lifted?
    pub(super) fn has_room(&self, fleet: &FleetFacts<'a>, key: Key<'a>) -> bool {
        let used = fleet.pool_versions.len() + self.new_in_pools(fleet);
        self.record(fleet, key).is_some() || used < POOL_RECORDS_MAX + self.idle(fleet).len()
    }

    /// The stored records of pools that go, so that there is room for the new ones.
    pub(super) fn gone(&self, fleet: &FleetFacts<'a>) -> impl Iterator<Item = Key<'a>> + use<'a> {
        let used = fleet.pool_versions.len() + self.new_in_pools(fleet);
        self.idle(fleet).into_iter().take(used.saturating_sub(POOL_RECORDS_MAX))
    }

    fn new_in_pools(&self, fleet: &FleetFacts<'a>) -> usize {
        self.changed.keys().filter(|key| key.pool.is_some() && key.stored(fleet).is_none()).count()
    }

    /// The stored records of pools that may go, in the order in which they do.
    fn idle(&self, fleet: &FleetFacts<'a>) -> Vec<Key<'a>> {
        let may_go = |key: Key<'_>, record: &VersionRecord| {
            let pool = key.pool.and_then(|pool| fleet.pool(pool));
            !self.changed.contains_key(&key) && (record.halted.is_none() || pool.is_none())
        };
        let mut idle: Vec<_> =
            Key::all_of_pools(fleet).filter(|(key, record)| may_go(*key, record)).collect();
        idle.sort_by_key(|(key, record)| (record.halted.as_ref().map(|halt| halt.at.as_str()), *key));
        idle.into_iter().map(|(key, _)| key).collect()
    }
}
