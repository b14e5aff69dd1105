//! What a leader knows beside what the API server says. It is worked out from the cluster, the time and what the shell reports,
//! and ends with the leadership. Pure.

mod misplaced;
mod owners;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::drain::{DrainPlan, Obstacle};
use crate::facts::{Owner, in_order};
pub use crate::times::Ahead;
use crate::workloads::Scales;
pub use owners::RulesByOwner;
pub(crate) use owners::{AtTime, KnownOwner, KnownPool};

/// What a leader knows of nodes, by name of the shadow, and of pools.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The owners of nodes.
    pub(crate) owners: BTreeMap<String, KnownOwner>,
    /// What the clock says of pools, and how their gates are, by name of the pool.
    pub(crate) pools: BTreeMap<String, KnownPool>,
    /// What the clock says of the default pool.
    pub(crate) default_pool: Option<AtTime>,
    /// The revision of the pools from which owners and pools were computed.
    pub(crate) pools_revision: u64,
    /// The drains of nodes whose pods are watched and known.
    pub drains: BTreeMap<String, KnownDrain>,
    /// What stands in the way of drains. It is remembered for a while after the pods are no longer watched.
    pub obstacles: BTreeMap<String, Obstacle>,
    /// May this reconciler delete pods that are left at the drain's deadline?
    pub may_force: bool,
    /// What the API server takes no change of.
    pub denied: BTreeMap<String, Denied>,
    /// The workloads that were read because pods of theirs are to be evicted from a node, or were.
    pub scales: BTreeMap<String, Scales>,
    /// Since when Nodes have been seen cordoned.
    pub cordoned: BTreeMap<String, Timestamp>,
    /// The times that were ahead when this leader first saw them.
    pub ahead: Ahead,
}

/// Why the API server takes no change of a Node or of its shadow: rules of others, or a webhook that is down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// Of the Node.
    pub node: Option<String>,
    /// Of the shadow.
    pub shadow: Option<String>,
}

/// The drain of a node whose pods are known.
#[derive(Clone, Debug, Default)]
pub struct KnownDrain {
    /// What it has to do.
    pub plan: Arc<DrainPlan>,
    /// How this process has seen the node empty, if it is.
    pub empty: Option<Empty>,
    /// What holds it up, mostly in the API server's words.
    pub held_up_by: Option<String>,
}

/// A node that was seen empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Since when, and since when its volumes in use have not become fewer.
    pub since: Timestamp,
    /// The fewest volumes in use.
    pub volumes: usize,
}

/// What is known of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownNode<'k> {
    pub(crate) owner: Option<Owner>,
    pub(crate) drain: Option<&'k KnownDrain>,
    pub(crate) obstacle: Option<&'k Obstacle>,
    pub(crate) denied: Option<&'k Denied>,
    pub(crate) scales: Option<&'k Scales>,
    pub(crate) cordoned: Option<Timestamp>,
}

impl Known {
    /// What the drain of this node has to do.
    pub fn drain(&self, name: &str) -> Option<&DrainPlan> {
        self.drains.get(name).map(|drain| &*drain.plan)
    }

    /// Finds what is known of nodes, which are asked for in the order of their names.
    pub(crate) fn nodes<'k>(&'k self) -> impl FnMut(&str) -> KnownNode<'k> {
        let (mut drains, mut obstacles) = (in_order(&self.drains), in_order(&self.obstacles));
        let (mut denied, mut scales) = (in_order(&self.denied), in_order(&self.scales));
        let (mut cordoned, mut owners) = (in_order(&self.cordoned), in_order(&self.owners));
        move |name| KnownNode {
            owner: owners(name).map(|known| known.owner),
            drain: drains(name),
            obstacle: obstacles(name),
            denied: denied(name),
            scales: scales(name),
            cordoned: cordoned(name).copied(),
        }
    }

    /// Records what drains have to do now, and what holds them up.
    pub fn note_drains(
        &mut self,
        plans: impl Iterator<Item = (String, Arc<DrainPlan>, Option<String>)>,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        let before = std::mem::take(&mut self.drains);
        let drains = plans.map(|(name, plan, held_up_by)| {
            let node = cluster
                .entries
                .get(&name)
                .and_then(|entry| entry.node.as_ref());
            let volumes = node.map_or(0, |node| node.facts.volumes_in_use);
            let before = before.get(&name).and_then(|before| before.empty);
            let as_before = before.filter(|before| before.volumes <= volumes);
            let empty = plan.is_done().then(|| {
                as_before.unwrap_or(Empty {
                    since: now,
                    volumes,
                })
            });
            (
                name,
                KnownDrain {
                    plan,
                    empty,
                    held_up_by,
                },
            )
        });
        self.drains = drains.collect();
    }

    /// Notes which Nodes are seen cordoned now. The time of the taint says since when, so that a new leader knows it, too.
    pub fn note_cordons(&mut self, cluster: &Cluster, now: Timestamp) {
        let before = std::mem::take(&mut self.cordoned);
        let cordoned = cluster
            .nodes()
            .filter(|(_, node)| node.facts.unschedulable)
            .map(|(name, node)| {
                let tainted = node.facts.cordoned_at.filter(|since| *since <= now);
                (
                    name.to_owned(),
                    tainted.or(before.get(name).copied()).unwrap_or(now),
                )
            });
        self.cordoned = cordoned.collect();
    }
}

#[cfg(test)]
mod tests;
