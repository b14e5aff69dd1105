//! What a leader knows beside the cluster and its nodes. It is worked out from the cluster, the time and what the shell reports,
//! and ends with the leadership. Pure.

mod misplaced;
mod owners;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::cluster::Cluster;
pub use crate::times::Ahead;
pub use owners::RulesByOwner;
pub(crate) use owners::{AtTime, KnownPool};

/// What a leader knows of the fleet and its pools.
#[derive(Clone, Debug, Default)]
pub struct LeaderState {
    /// The term in which it leads.
    pub term: u64,
    /// Whether our own admission rules were seen to be in force.
    pub enforced: bool,
    /// Whether no other operator was seen here.
    pub alone: bool,
    /// Name of the node that it runs on, if it is known.
    pub own_node: Option<String>,
    /// Whether this reconciler may delete pods that are left at the drain's deadline.
    pub may_force: bool,
    /// What the clock says of pools, and how their gates are, by name of the pool.
    pub(crate) pools: BTreeMap<String, KnownPool>,
    /// What the clock says of the default pool.
    pub(crate) default_pool: Option<AtTime>,
    /// The revision of the pools from which owners and pools were computed.
    pub(crate) pools_revision: u64,
    /// The times that were ahead when this leader first saw them.
    pub ahead: Ahead,
}

impl LeaderState {
    /// A leader of this term, on this node, that has found our rules in force and no other operator.
    pub fn new(term: u64, own_node: &str) -> Self {
        Self {
            term,
            enforced: true,
            alone: true,
            own_node: Some(own_node.to_owned()),
            ..Self::default()
        }
    }
}

impl Cluster {
    /// Records which Nodes are seen cordoned now. The time of the taint says since when, so that a new leader knows it, too.
    pub fn record_cordons(&mut self, now: Timestamp) {
        for record in self.records.values_mut() {
            let cordoned = record.node.as_ref().filter(|node| node.unschedulable);
            let before = record.led.cordoned;
            record.led.cordoned = cordoned.map(|node| {
                let tainted = node.cordoned_at.filter(|since| *since <= now);
                tainted.or(before).unwrap_or(now)
            });
        }
    }
}
