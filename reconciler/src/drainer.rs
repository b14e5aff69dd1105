//! Which nodes' pods are watched, and what follows from their pods: what a drain has to do, and what no drain gets
//! past.

mod look;
mod passed_over;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::evict::Evictions;
use crate::pass::Wake;
use crate::requests::ApiServer;
use crate::watches::{PodWatches, WantedPods, Watches};
use crate::workloads::WorkloadReads;
use brupop_core::cluster::Cluster;
use brupop_core::drain::{self, DrainPlan, LOOKS_AT_ONCE, PodKey};
use brupop_core::leader::LeaderState;
use brupop_core::policy::Policy;
use look::{Basis, Look, NodeDrain, NodePods};
use passed_over::PassedOver;

/// Knows the pods of the nodes that are emptied, or will be soon, and what was tried with them.
#[derive(Default)]
pub(crate) struct Drainer {
    pods: PodWatches,
    pub(crate) workloads: WorkloadReads,
    /// Shadows of the nodes that start next, or will: their pods are looked at before that.
    preflight: BTreeSet<String>,
    /// What follows from the pods of nodes, by name of the shadow.
    node_pods: BTreeMap<String, NodePods>,
    /// The node whose pods were looked at last: the one after it is next, so that each has its turn.
    looked_at: String,
    /// Nodes that are passed over because of their pods, by name of the shadow.
    passed_over: BTreeMap<String, PassedOver>,
    pub(crate) evictions: Evictions,
}

/// What a look at pods needs to know beside them.
pub(crate) struct Around<'a> {
    pub(crate) api: &'a ApiServer,
    pub(crate) watches: &'a Watches,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Duration,
    /// The time at `now`.
    pub(crate) time: Timestamp,
}

impl Drainer {
    /// Watches the pods of nodes that are being emptied, or will be soon, and makes drain plans from those that are
    /// known.
    pub(crate) fn watch(
        &mut self,
        around: &Around<'_>,
        cluster: &mut Cluster,
        leader: &LeaderState,
        wake: &mut Wake,
    ) {
        let &Around {
            api, watches, now, ..
        } = around;
        self.note_dropped(self.pods.take_dropped(), now);
        let wanted = self.wanted(cluster).into_iter();
        let begun = |shadow| {
            cluster
                .records
                .get(shadow)?
                .marker()?
                .drain_started_at
                .as_deref()
        };
        let wanted = wanted.map(|(_, shadow, node)| WantedPods {
            shadow,
            node,
            drain: begun(shadow),
        });
        self.pods.want(&api.client, watches, wanted, now);
        self.look_at_pods(around, cluster, leader);
        let (mut drains, mut scales) =
            (self.drains(around, cluster, wake), self.workloads.scales());
        let mut obstacles = self.obstacles(around, cluster, wake);
        self.evictions
            .retain(drains.values().map(|(plan, _)| &**plan));
        for (name, record) in &mut cluster.records {
            record.record_drain(drains.remove(name), around.time);
            record.led.scales = scales.remove(name);
            record.led.obstacle = obstacles.remove(name);
        }
        for namespace in self.pods.relaxed() {
            self.evictions.retry(&namespace, now);
        }
    }

    /// Has the pods watched of these nodes, which start next, from the next pass on. Returns whether they are others than
    /// before.
    pub(crate) fn preflight(&mut self, names: BTreeSet<String>) -> bool {
        let changed = names != self.preflight;
        self.preflight = names;
        changed
    }

    /// How many budgets cannot be read.
    pub(crate) fn unreadable_budgets(&self) -> usize {
        self.pods.unreadable_budgets()
    }

    /// The first pod of this drain whose eviction has been refused for long, and why.
    pub(crate) fn lasting_refusal<'p>(&self, plan: &'p DrainPlan) -> Option<(&'p PodKey, &str)> {
        self.evictions.lasting_refusal(plan)
    }

    /// Looks at the pods of the nodes where something has changed, in turn. However many there are, it does a bounded part of
    /// this at once, and then the loop goes on with it. Until then a node keeps what followed from its pods, unless its update has
    /// come further: then nothing is known. Returns whether anything else follows from pods than before.
    pub(crate) fn look_at_pods(
        &mut self,
        around: &Around<'_>,
        cluster: &Cluster,
        leader: &LeaderState,
    ) -> bool {
        let now = around.now;
        let Self {
            pods: watched,
            node_pods,
            looked_at,
            ..
        } = self;
        let Some(budgets_revision) = watched.budgets_revision() else {
            return !std::mem::take(node_pods).is_empty();
        };
        let mut budgets = None;
        let mut changed = watched.has_dropped();
        let known = watched.known();
        node_pods.retain(|name, _| known.contains_key(name));
        let mut cost = 0;
        for (name, pods) in after(&known, &looked_at.clone()) {
            let record = cluster.records.get(name);
            let revisions = [*pods, budgets_revision];
            let from = Basis::of(
                record,
                revisions,
                (
                    cluster.rules(cluster.owner(name), around.policy),
                    leader.may_force,
                ),
                (&leader.ahead, around.time),
            );
            let before = node_pods.get(name);
            if before.is_some_and(|it| it.from == from && it.until.is_none_or(|until| now < until))
            {
                continue;
            }
            // The watch lists the pods once it is told that the drain has begun.
            let is_listed = from.begun() == watched.drain(name);
            if cost >= LOOKS_AT_ONCE || !is_listed {
                if is_listed {
                    around.watches.pods_changed.notify_one();
                }
                let is_past = before.is_some_and(|before| !before.from.is_as_far_as(&from));
                changed |= is_past && node_pods.remove(name).is_some();
                continue;
            }
            looked_at.clone_from(name);
            let (pods, budgets) = (
                watched.pods(name),
                budgets.get_or_insert_with(|| watched.budgets()),
            );
            cost += drain::cost(pods.iter().map(AsRef::as_ref), budgets);
            let look = Look {
                around,
                pods: &pods,
                budgets,
            };
            let after = look.at(from, before);
            changed |= before.is_none_or(|before| before.leads_to() != after.leads_to());
            node_pods.insert(name.clone(), after);
        }
        changed
    }

    /// The drains of nodes whose pods are known, and what holds up those that have begun.
    fn drains(
        &self,
        around: &Around<'_>,
        cluster: &Cluster,
        wake: &mut Wake,
    ) -> BTreeMap<String, (Arc<DrainPlan>, Option<String>)> {
        let mut drains = BTreeMap::new();
        for (name, found) in self
            .node_pods
            .iter()
            .filter(|(name, _)| cluster.records.contains_key(*name))
        {
            if let Some(until) = found.until {
                wake.by(until);
            }
            let NodeDrain { plan, .. } = &found.drain;
            let held_up_by = || self.evictions.held_up_by(plan, around.time);
            let held_up_by = found.from.begun().and_then(|_| held_up_by());
            drains.insert(name.clone(), (Arc::clone(plan), held_up_by));
        }
        drains
    }
}

/// All of them, and first those after the last one at which was looked.
fn after<'k>(
    known: &'k BTreeMap<String, u64>,
    last: &str,
) -> impl Iterator<Item = (&'k String, &'k u64)> {
    let after_it = known.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
    after_it.chain(known.range::<str, _>((Bound::Unbounded, Bound::Included(last))))
}

#[cfg(test)]
mod tests;
