//! What the API server says of the cluster: one record for each node, kept up to date by watches. Pure.

mod answered;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::pool::BottlerocketPoolStatus;
use brupop_api::{BottlerocketShadow, Item, Marker, Object, State};
use jiff::Timestamp;
use kube::core::SelectorExt as _;

use crate::drain::DrainPlan;
use crate::facts::Owner;
use crate::led::LedNode;
use crate::objects::{AgentPod, NodeFacts, WatchedFleet};
use crate::pool::Pool;
use crate::rules::{GateQuery, PoolGate, Rules};

pub use answered::version;
pub use watched::Watched;

/// What is known of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// One record for each node, by the name that its shadow has or would have.
    pub records: BTreeMap<String, NodeRecord>,
    /// The fleet, if there is one.
    pub fleet: Option<Arc<Item<WatchedFleet>>>,
    /// The pools, by name: the first 128.
    pub pools: BTreeMap<String, WatchedPool>,
    /// The first pool that was left out since pools were listed, if there are more than 128.
    pub pool_left_out: Option<String>,
    /// Bumped when a pool's spec changes or a pool is deleted.
    pub(crate) pools_revision: u64,
    /// The entry in which each agent's pod is, by the pod's name; `None` if it cannot be read.
    agents: BTreeMap<String, Option<String>>,
    /// The objects whose states come from answers that their watches have not caught up with.
    ahead: BTreeMap<Object<String>, answered::Ahead>,
}

/// What is known of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeRecord {
    /// The Node, if there is one.
    pub node: Option<Arc<NodeFacts>>,
    /// The Node's `resourceVersion`.
    pub node_version: Option<u64>,
    /// The shadow, if there is one; perhaps it cannot be read.
    pub shadow: Option<Arc<Item<BottlerocketShadow>>>,
    /// The pods of its agent, by name.
    pub agents: BTreeMap<String, AgentPod>,
    /// What this process knows of it while it leads.
    pub led: LedNode,
}

/// A pool as it is watched, readable or not.
#[derive(Clone, Debug)]
pub struct WatchedPool {
    /// The object.
    pub item: Item<Pool>,
}

impl NodeRecord {
    /// The shadow, if there is one that can be read.
    pub fn shadow(&self) -> Option<&BottlerocketShadow> {
        self.shadow.as_ref()?.ok()
    }

    /// The marker, if there is one that can be read.
    pub fn marker(&self) -> Option<&Marker> {
        self.node.as_ref()?.marker.as_ref()?.as_ref().ok()
    }

    /// The agent's pod. During a rollout of the `DaemonSet` a node may have two: one that is Ready wins.
    pub fn agent(&self) -> Option<&AgentPod> {
        self.agents
            .values()
            .find(|agent| agent.is_ready())
            .or_else(|| self.agents.values().next_back())
    }

    /// Whether we have cordoned the node, and its drain goes on: it has neither ended nor been given up, and the node is Ready.
    pub fn is_being_drained(&self) -> bool {
        let drains =
            |marker: &Marker| marker.drain_started_at.is_some() && marker.drained_at.is_none();
        let readiness = self.node.as_ref().and_then(|node| node.readiness);
        self.marker().is_some_and(drains)
            && readiness.is_some_and(|readiness| readiness.ready)
            && self
                .shadow()
                .is_some_and(|shadow| shadow.spec.state != State::Idle)
    }

    /// Records what the node's drain has to do now, and what holds that up, if its pods are known.
    pub fn record_drain(
        &mut self,
        drain: Option<(Arc<DrainPlan>, Option<String>)>,
        now: Timestamp,
    ) {
        let volumes = self.node.as_ref().map_or(0, |node| node.volumes_in_use);
        self.led.record_drain(drain, volumes, now);
    }

    fn is_empty(&self) -> bool {
        self.node.is_none() && self.shadow.is_none() && self.agents.is_empty()
    }
}

impl WatchedPool {
    pub fn stored(&self) -> Option<&BottlerocketPoolStatus> {
        self.item.ok().map(|pool| &pool.stored)
    }

    /// Whether it selects a node with these labels. If not even its selector can be read, nobody knows which nodes it was
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

    pub(crate) fn gates(&self) -> &[PoolGate] {
        self.rules().map_or(&[], |rules| &rules.gates)
    }
}

impl Cluster {
    /// All objects of this kind, in place of those that are known, but for newer ones that answers have brought.
    pub fn replace<K: Watched>(&mut self, objects: impl IntoIterator<Item = K>) {
        K::replace(objects, self);
    }

    /// The record of this name, which is made unless it is there.
    pub fn record(&mut self, name: &str) -> &mut NodeRecord {
        self.records.entry(name.to_owned()).or_default()
    }

    /// Which pool owns this node, if that is known.
    pub fn owner(&self, name: &str) -> Option<Owner> {
        self.records.get(name)?.led.owner
    }

    /// What the drain of this node has to do, if its pods are known.
    pub fn drain(&self, name: &str) -> Option<&DrainPlan> {
        let drain = self.records.get(name)?.led.drain.as_ref();
        drain.map(|drain| &*drain.plan)
    }

    /// Forgets what was known of nodes by the leadership that has ended.
    pub fn forget_led(&mut self) {
        for record in self.records.values_mut() {
            record.led = LedNode::default();
        }
    }

    /// The Nodes, by the name that their shadow has or would have.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Arc<NodeFacts>)> {
        self.records
            .iter()
            .filter_map(|(name, entry)| Some((name.as_str(), entry.node.as_ref()?)))
    }

    /// The shadows, including those that cannot be read.
    pub fn shadows(&self) -> impl Iterator<Item = &Item<BottlerocketShadow>> {
        self.records
            .values()
            .filter_map(|entry| entry.shadow.as_deref())
    }

    /// The Node of the shadow of this name.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeFacts>> {
        self.records.get(name)?.node.as_ref()
    }

    /// Whether there is a shadow of this name.
    pub fn has_shadow(&self, name: &str) -> bool {
        self.records
            .get(name)
            .is_some_and(|entry| entry.shadow.is_some())
    }

    /// How many agents' pods cannot be read.
    pub fn unreadable_agents(&self) -> usize {
        self.agents.values().filter(|entry| entry.is_none()).count()
    }

    /// The fleet, if there is one that can be read.
    pub fn fleet(&self) -> Option<&WatchedFleet> {
        self.fleet.as_ref()?.ok()
    }

    pub fn ledger(&self) -> Option<&BottlerocketFleetStatus> {
        self.fleet()?.object.status.as_ref()
    }

    /// The shadow of this name, if there is one that can be read.
    pub fn shadow(&self, name: &str) -> Option<&BottlerocketShadow> {
        self.records.get(name)?.shadow()
    }

    /// The names of Nodes that the API server lets us patch as far as we know, and that have a shadow of which the same is
    /// true.
    pub fn normal_nodes(&self) -> Vec<&str> {
        let normal = self.records.values().filter_map(|entry| {
            let node = entry
                .node
                .as_ref()
                .filter(|node| !matches!(node.marker, Some(Err(_))) && !node.overgrown)?;
            entry.shadow().map(|_| node.name())
        });
        normal.collect()
    }

    /// How many nodes have an update to finish, changes to undo, or one of these slots. Of a node whose Node or shadow cannot
    /// be read, that may be so.
    pub fn busy_nodes(&self, slots: &BTreeMap<String, Slot>) -> usize {
        let is_busy = |entry: &NodeRecord| {
            let shadow = entry.shadow.as_ref();
            entry
                .node
                .as_ref()
                .is_some_and(|node| node.marker.is_some())
                || shadow
                    .is_some_and(|item| item.ok().is_none_or(|it| it.spec.state != State::Idle))
        };
        let without_slot = self
            .records
            .iter()
            .filter(|(name, _)| !slots.contains_key(*name));
        slots.len() + without_slot.filter(|(_, entry)| is_busy(entry)).count()
    }

    /// What all gates ask.
    pub fn gate_queries(&self) -> BTreeSet<&GateQuery> {
        self.pools
            .values()
            .flat_map(WatchedPool::gates)
            .map(|gate| &gate.query)
            .collect()
    }

    /// Whether the drains of a pool delete the pods that are left at their deadline.
    pub fn wants_force(&self) -> bool {
        let mut rules = self.pools.values().filter_map(WatchedPool::rules);
        rules.any(|rules| rules.wants_force)
    }

    /// The gates of these pools (by index), with the names of their pools.
    pub fn gates_of(&self, pools: &BTreeSet<usize>) -> impl Iterator<Item = (&str, &PoolGate)> {
        let of = self
            .pools
            .values()
            .enumerate()
            .filter(|(index, _)| pools.contains(index));
        of.flat_map(|(_, pool)| pool.gates().iter().map(|gate| (pool.item.name(), gate)))
    }

    /// The labels that say in which zones the nodes of each pool are, where these are not the well-known one.
    pub(crate) fn topology_keys(&self) -> Vec<Option<&str>> {
        self.pools
            .values()
            .map(|pool| pool.rules()?.topology_key())
            .collect()
    }
}

#[cfg(test)]
mod tests;
