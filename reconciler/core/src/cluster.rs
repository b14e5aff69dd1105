//! What the API server says of the cluster: one entry for each node, kept up to date by watches. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::{BottlerocketShadow, Item, Marker, State, names};

use crate::objects::{AgentPod, Ledger, PodItem, WatchedNode};
use crate::ownership::{DurationsByOwner, Owner, WatchedPool};
use crate::workloads::{EvictedOwner, evicted_owners};

/// What is known of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// One entry for each node, by the name that its shadow has or would have.
    pub entries: BTreeMap<String, Entry>,
    /// The ledger, if there is one.
    pub ledger: Option<Arc<Item<Ledger>>>,
    /// The pools, by name.
    pub pools: BTreeMap<String, WatchedPool>,
    /// The entry in which each agent's pod is, by the pod's name; `None` if it cannot be read.
    agents: BTreeMap<String, Option<String>>,
}

/// What is known of one node.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The Node, if there is one.
    pub node: Option<Arc<WatchedNode>>,
    /// The shadow, if there is one; perhaps it cannot be read.
    pub shadow: Option<Arc<Item<BottlerocketShadow>>>,
    /// Which pool owns the Node; `None` = see [`Cluster::prepare_pools`].
    pub owner: Option<Owner>,
    /// Does its pool respect pods that ask not to be disrupted? `None` = no pool says so, or otherwise.
    pub respects_pods: Option<bool>,
    /// The pods of its agent, by name.
    pub agents: BTreeMap<String, AgentPod>,
}

impl Entry {
    /// The shadow, if there is one that can be read.
    pub fn shadow(&self) -> Option<&BottlerocketShadow> {
        self.shadow.as_ref()?.ok()
    }

    /// The marker, if there is one that can be read.
    pub fn marker(&self) -> Option<&Marker> {
        self.node.as_ref()?.marker().ok()?
    }

    /// The agent's pod. During a rollout of the `DaemonSet` a node may have two: one that is Ready wins.
    pub fn agent(&self) -> Option<&AgentPod> {
        self.agents.values().find(|agent| agent.is_ready()).or(self.agents.values().next_back())
    }

    /// Forgets what only a leader looks at.
    pub fn forget_what_leaders_know(&mut self) {
        let Self { node, shadow, agents, .. } = std::mem::take(self);
        *self = Self { node, shadow, agents, ..Self::default() };
    }

    fn is_empty(&self) -> bool {
        self.node.is_none() && self.shadow.is_none() && self.agents.is_empty()
    }
}

/// A kind of objects that is watched.
pub trait Member: Sized {
    /// This object is there now, perhaps in place of an earlier version. Returns whether a decision could be another.
    fn put(self, cluster: &mut Cluster) -> bool;

    /// The object of this name is gone.
    fn remove(name: &str, cluster: &mut Cluster);

    /// `metadata.name`.
    fn name(&self) -> &str;

    /// Forgets of these, which are being listed, what is beyond a bound of their sum, if there is one.
    fn bound(_listed: &mut [Self]) {}

    /// These are all, in place of those that are known.
    fn replace(objects: impl IntoIterator<Item = Self>, cluster: &mut Cluster) {
        let mut gone = Self::names(cluster);
        for object in objects {
            gone.remove(object.name());
            object.put(cluster);
        }
        for name in gone {
            Self::remove(&name, cluster);
        }
    }

    /// The names of all that are there.
    fn names(cluster: &Cluster) -> BTreeSet<String>;
}

impl Member for WatchedNode {
    fn put(self, cluster: &mut Cluster) -> bool {
        let entry = cluster.entry(&names::shadow_name(self.name()));
        let changed = entry.node.as_ref().is_none_or(|old| !old.same_facts(&self));
        if changed {
            entry.owner = None;
        }
        entry.node = Some(Arc::new(self));
        changed
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.change(&names::shadow_name(name), |entry| entry.node = None);
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.nodes().map(|(_, node)| node.name().to_owned()).collect()
    }
}

impl Member for Item<BottlerocketShadow> {
    fn put(self, cluster: &mut Cluster) -> bool {
        let name = self.name().to_owned();
        cluster.entry(&name).shadow = Some(Arc::new(self));
        true
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.change(name, |entry| entry.shadow = None);
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        let with_shadow = cluster.entries.iter().filter(|(_, entry)| entry.shadow.is_some());
        with_shadow.map(|(name, _)| name.clone()).collect()
    }
}

impl Member for Item<Ledger> {
    fn put(self, cluster: &mut Cluster) -> bool {
        cluster.ledger = Some(Arc::new(self));
        true
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.ledger.take_if(|ledger| ledger.name() == name);
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.ledger.iter().map(|ledger| ledger.name().to_owned()).collect()
    }
}

/// The agents' pods.
impl Member for PodItem {
    fn put(self, cluster: &mut Cluster) -> bool {
        let agent = AgentPod::of(&self);
        let shadow = agent.as_ref().map(|agent| names::shadow_name(&agent.node));
        let before = cluster.agents.get(self.name()).cloned();
        let counts = self.body.is_err() || shadow.is_some();
        if !counts || before.as_ref().is_some_and(|before| *before != shadow) {
            <Self as Member>::remove(self.name(), cluster);
        }
        if counts {
            cluster.agents.insert(self.name().to_owned(), shadow.clone());
        }
        let Some((agent, shadow)) = agent.zip(shadow) else { return before != counts.then_some(None) };
        let old = cluster.entry(&shadow).agents.insert(self.name().to_owned(), agent.clone());
        old != Some(agent)
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        if let Some(Some(shadow)) = cluster.agents.remove(name) {
            cluster.change(&shadow, |entry| {
                entry.agents.remove(name);
            });
        }
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.agents.keys().cloned().collect()
    }
}

impl Cluster {
    /// All objects of this kind, in place of those that are known.
    pub fn replace<K: Member>(&mut self, objects: impl IntoIterator<Item = K>) {
        K::replace(objects, self);
    }

    /// The entry of this name, which is made unless it is there.
    pub fn entry(&mut self, name: &str) -> &mut Entry {
        self.entries.entry(name.to_owned()).or_default()
    }

    /// Changes an entry, if it is there. One that knows nothing any more goes.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(name) {
            change(entry);
            if entry.is_empty() {
                self.entries.remove(name);
            }
        }
    }

    /// The Nodes, by the name that their shadow has or would have.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Arc<WatchedNode>)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name.as_str(), entry.node.as_ref()?)))
    }

    /// The shadows, including those that cannot be read.
    pub fn shadows(&self) -> impl Iterator<Item = &Item<BottlerocketShadow>> {
        self.entries.values().filter_map(|entry| entry.shadow.as_deref())
    }

    /// The Node of the shadow of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<WatchedNode>> {
        self.entries.get(name)?.node.as_ref()
    }

    /// Is there a shadow of this name?
    pub fn has_shadow(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.shadow.is_some())
    }

    /// How many agents' pods cannot be read.
    pub fn unreadable_agents(&self) -> usize {
        self.agents.values().filter(|entry| entry.is_none()).count()
    }

    /// The ledger, if there is one that can be read.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()?.ok()
    }

    /// The ledger's status.
    pub fn status(&self) -> Option<&BottlerocketFleetStatus> {
        self.ledger()?.fleet.status.as_ref()
    }

    /// The shadow of this name, if there is one that can be read.
    pub fn shadow(&self, name: &str) -> Option<&BottlerocketShadow> {
        self.entries.get(name)?.shadow()
    }

    /// The names of Nodes that the API server lets us patch as far as we know, and that have a shadow of which the same is
    /// true.
    pub fn normal_nodes(&self) -> Vec<&str> {
        let normal = self.entries.values().filter_map(|entry| {
            let node = entry.node.as_ref().filter(|node| node.marker().is_ok() && !node.facts.overgrown)?;
            entry.shadow().map(|_| node.name())
        });
        normal.collect()
    }

    /// How many nodes have an update to finish, changes to undo, or one of these slots. Of a node whose Node or shadow cannot
    /// be read, that may be so.
    pub fn busy_nodes(&self, slots: &BTreeMap<String, Slot>) -> usize {
        let is_busy = |entry: &Entry| {
            let shadow = entry.shadow.as_ref();
            entry.node.as_ref().is_some_and(|node| !matches!(node.marker(), Ok(None)))
                || shadow.is_some_and(|item| item.ok().is_none_or(|it| it.spec.state != State::Idle))
        };
        let without_slot = self.entries.iter().filter(|(name, _)| !slots.contains_key(*name));
        slots.len() + without_slot.filter(|(_, entry)| is_busy(entry)).count()
    }

    /// The owners of evicted pods that have to become available again, by name of the shadow: those of nodes that are
    /// being monitored, where workloads are looked at.
    pub fn monitored(&self, durations: &DurationsByOwner) -> BTreeMap<String, Vec<EvictedOwner>> {
        let owners = self.entries.iter().filter_map(|(name, entry)| {
            let watched = entry.shadow()?.spec.state == State::MonitoringUpdate
                && !durations.of(entry.owner.as_ref()).workloads.is_zero();
            Some((name.clone(), evicted_owners(entry.marker().filter(|_| watched)?)))
        });
        owners.collect()
    }
}

#[cfg(test)]
mod tests;
