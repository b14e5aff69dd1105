//! What the API server says of the cluster: one entry for each node, kept up to date by watches. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::pool::BottlerocketPoolStatus;
use brupop_api::{BottlerocketShadow, Item, Marker, State, names};
use kube::core::SelectorExt as _;

use crate::objects::{AgentPod, PodItem, WatchedFleet, WatchedNode};
use crate::pool::{self, Pool};
use crate::rules::{GateQuery, PoolGate, Rules};

/// What is known of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// One entry for each node, by the name that its shadow has or would have.
    pub entries: BTreeMap<String, Entry>,
    /// The fleet, if there is one.
    pub fleet: Option<Arc<Item<WatchedFleet>>>,
    /// The pools, by name.
    pub pools: BTreeMap<String, WatchedPool>,
    /// A number that rises when a pool says something else, or is gone.
    pub(crate) said: u64,
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
    /// The pods of its agent, by name.
    pub agents: BTreeMap<String, AgentPod>,
}

/// A pool as it is watched, readable or not.
#[derive(Clone, Debug)]
pub struct WatchedPool {
    /// The object.
    pub item: Item<Pool>,
    /// What [`Cluster::said`] was when it began to say what it says.
    pub(crate) said: u64,
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
        self.agents.values().find(|agent| agent.is_ready()).or_else(|| self.agents.values().next_back())
    }

    fn is_empty(&self) -> bool {
        self.node.is_none() && self.shadow.is_none() && self.agents.is_empty()
    }
}

/// A kind of objects that is watched.
pub trait Watched: Sized {
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

impl Watched for WatchedNode {
    fn put(self, cluster: &mut Cluster) -> bool {
        let entry = cluster.entry(&names::shadow_name(self.name()));
        let changed = entry.node.as_ref().is_none_or(|old| !old.same_facts(&self));
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

impl Watched for Item<BottlerocketShadow> {
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

impl Watched for Item<WatchedFleet> {
    fn put(self, cluster: &mut Cluster) -> bool {
        cluster.fleet = Some(Arc::new(self));
        true
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.fleet.take_if(|fleet| fleet.name() == name);
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.fleet.iter().map(|fleet| fleet.name().to_owned()).collect()
    }
}

/// The agents' pods.
impl Watched for PodItem {
    fn put(self, cluster: &mut Cluster) -> bool {
        let agent = AgentPod::of(&self);
        let shadow = agent.as_ref().map(|agent| names::shadow_name(&agent.node));
        let before = cluster.agents.get(self.name()).cloned();
        let counts = self.body.is_err() || shadow.is_some();
        if !counts || before.as_ref().is_some_and(|before| *before != shadow) {
            <Self as Watched>::remove(self.name(), cluster);
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

impl Watched for Item<Pool> {
    fn put(self, cluster: &mut Cluster) -> bool {
        let name = self.name().to_owned();
        let before = cluster.pools.remove(&name);
        let pool = cluster.in_place_of(before, self);
        cluster.pools.insert(name, pool);
        let Cluster { pools, said, .. } = cluster;
        if pool::bound(pools.values_mut().filter_map(|pool| pool.item.body.as_mut().ok())) {
            *said += 1;
            pools.values_mut().filter(|pool| pool.is_given_up()).for_each(|pool| pool.said = *said);
        }
        true
    }

    fn bound(listed: &mut [Self]) {
        pool::bound(listed.iter_mut().filter_map(|item| item.body.as_mut().ok()));
    }

    /// There may be thousands, so their sum is looked at once.
    fn replace(objects: impl IntoIterator<Item = Self>, cluster: &mut Cluster) {
        let mut listed: Vec<Self> = objects.into_iter().collect();
        Self::bound(&mut listed);
        let mut before = std::mem::take(&mut cluster.pools);
        for item in listed {
            let name = item.name().to_owned();
            let pool = cluster.in_place_of(before.remove(&name), item);
            cluster.pools.insert(name, pool);
        }
        cluster.said += u64::from(!before.is_empty());
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.said += u64::from(cluster.pools.remove(name).is_some());
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.pools.keys().cloned().collect()
    }
}

impl WatchedPool {
    /// The status that is stored.
    pub fn stored(&self) -> Option<&BottlerocketPoolStatus> {
        self.item.ok().map(|pool| &pool.stored)
    }

    /// Does it select a node with these labels? If not even its selector can be read, nobody knows which nodes it was
    /// meant for, so it holds all.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.item.ok().and_then(|pool| pool.selector.as_ref());
        selector.is_none_or(|selector| selector.matches(labels))
    }

    pub(crate) fn priority(&self) -> u64 {
        self.item.ok().map_or(u64::MAX, |pool| pool.priority)
    }

    /// What it says of its nodes, if that can be understood.
    pub fn rules(&self) -> Option<&Rules> {
        self.item.ok()?.rules.as_ref().ok()
    }

    /// Why it cannot be understood, if so.
    pub(crate) fn invalid(&self) -> Option<String> {
        match &self.item.body {
            Ok(pool) => pool.rules.as_ref().err().map(ToString::to_string),
            Err(why) => Some(why.to_string()),
        }
    }

    /// Its gates.
    pub(crate) fn gates(&self) -> &[PoolGate] {
        self.rules().map_or(&[], |rules| &rules.gates)
    }

    fn is_given_up(&self) -> bool {
        self.item.ok().is_some_and(Pool::is_given_up)
    }
}

impl Cluster {
    /// All objects of this kind, in place of those that are known.
    pub fn replace<K: Watched>(&mut self, objects: impl IntoIterator<Item = K>) {
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

    /// The fleet, if there is one that can be read.
    pub fn fleet(&self) -> Option<&WatchedFleet> {
        self.fleet.as_ref()?.ok()
    }

    /// The ledger.
    pub fn ledger(&self) -> Option<&BottlerocketFleetStatus> {
        self.fleet()?.object.status.as_ref()
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

    /// The pool as it is now, in place of what it was. Most changes of a pool are those of its status, which we write.
    fn in_place_of(&mut self, before: Option<WatchedPool>, item: Item<Pool>) -> WatchedPool {
        let before = before.filter(|before| match (before.item.ok(), item.ok()) {
            (Some(before), Some(now)) => now.says_the_same(before),
            _ => false,
        });
        let said = before.map_or_else(
            || {
                self.said += 1;
                self.said
            },
            |before| before.said,
        );
        WatchedPool { item, said }
    }

    /// Is there a pool of which it is forgotten what it says?
    pub fn has_given_pools_up(&self) -> bool {
        self.pools.values().any(WatchedPool::is_given_up)
    }

    /// What all gates ask.
    pub fn gate_queries(&self) -> BTreeSet<&GateQuery> {
        self.pools.values().flat_map(WatchedPool::gates).map(|gate| &gate.query).collect()
    }

    /// The gates of these pools (by index), with the names of their pools.
    pub fn gates_of(&self, pools: &BTreeSet<usize>) -> impl Iterator<Item = (&str, &PoolGate)> {
        let of = self.pools.values().enumerate().filter(|(index, _)| pools.contains(index));
        of.flat_map(|(_, pool)| pool.gates().iter().map(|gate| (pool.item.name(), gate)))
    }

    /// The labels that say in which zones the nodes of each pool are, where these are not the well-known one.
    pub(crate) fn topology_keys(&self) -> Vec<Option<&str>> {
        self.pools.values().map(|pool| pool.rules()?.topology_key()).collect()
    }
}

#[cfg(test)]
mod tests;
