//! The API server's view of the cluster: one record for each node, kept up to date by watches. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::names::shadow_name;
use brupop_api::pool::{Gate, PrometheusGate};
use brupop_api::{BottlerocketShadow, Item, Marker, Object, State};
use jiff::Timestamp;
use kube::Resource;

use crate::drain::{DrainPlan, Obstacle};
use crate::objects::{AgentPod, NodeFacts, PodItem, WatchedFleet};
use crate::pool::{Owner, POOLS_MAX, Pool};
use crate::workloads::Scales;

/// A watch that is behind an answer for so long may have missed it: the object is read again.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// The known state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// One record for each node, by the name that its shadow has or would have.
    pub records: BTreeMap<String, NodeRecord>,
    /// The fleet, if there is one.
    pub fleet: Option<Arc<Item<WatchedFleet>>>,
    /// The pools, by name: the first 128.
    pub pools: BTreeMap<String, Pool>,
    /// The first pool that was left out since pools were listed, if there are more than 128.
    pub pool_left_out: Option<String>,
    /// Bumped when a pool's spec changes or a pool is deleted.
    pub(crate) pools_revision: u64,
    /// The entry in which each agent's pod is, by the pod's name; `None` if it cannot be read.
    agents: BTreeMap<String, Option<String>>,
    /// The objects whose states come from answers that their watches have not caught up with: the resourceVersion (of an object that
    /// was deleted, a later one than its last), and since when.
    ahead: BTreeMap<Object<String>, (u64, Duration)>,
}

/// The known state of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeRecord {
    /// The Node, if there is one.
    pub node: Option<Arc<NodeFacts>>,
    pub node_version: Option<u64>,
    /// The shadow, if there is one; perhaps it cannot be read.
    pub shadow: Option<Arc<Item<BottlerocketShadow>>>,
    /// The pods of its agent, by name.
    pub agents: BTreeMap<String, AgentPod>,
    /// Knowledge of this process while it leads.
    pub led: LedNode,
}

/// A leader's own knowledge of one node. It ends with the leadership, and with the Node.
#[derive(Clone, Debug, Default)]
pub struct LedNode {
    /// The pool that owns it; `None` until that is found out for the Node and the pools as they are.
    pub(crate) owner: Option<Owner>,
    /// The work of its drain, if its pods are watched and known.
    pub plan: Option<Arc<DrainPlan>>,
    /// The observation that it is empty, if its pods are known and it is.
    pub empty: Option<Empty>,
    /// The cause of its drain's delay, mostly in the API server's words.
    pub held_up_by: Option<String>,
    /// The obstacle to its drain. It is remembered for a while after the pods are no longer watched.
    pub obstacle: Option<Obstacle>,
    /// The reason why the API server takes no change of the Node: rules of others, or a webhook that is down.
    pub node_denied: Option<String>,
    /// The reason why the API server takes no change of the shadow.
    pub shadow_denied: Option<String>,
    /// The workloads that were read because pods of theirs are to be evicted from it, or were.
    pub scales: Option<Scales>,
    /// The time since which its Node has been seen cordoned, if it is.
    pub(crate) cordoned: Option<Timestamp>,
}

impl LedNode {
    /// Whether its pods are known, and none is left that a drain would evict.
    pub fn is_drained(&self) -> bool {
        self.plan.as_deref().is_some_and(DrainPlan::is_done)
    }

    /// Returns why the API server takes no change of it, if that is so.
    pub fn denied(&self) -> Option<&str> {
        self.node_denied
            .as_deref()
            .or(self.shadow_denied.as_deref())
    }
}

impl Default for &LedNode {
    fn default() -> Self {
        static NOTHING_KNOWN: LazyLock<LedNode> = LazyLock::new(LedNode::default);
        &NOTHING_KNOWN
    }
}

/// A node that was seen empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// The start of emptiness, and the time of the last volume that was detached.
    pub since: Timestamp,
    /// The fewest volumes in use.
    pub volumes: usize,
}

impl NodeRecord {
    /// The shadow, if there is one that can be read.
    pub fn shadow(&self) -> Option<&BottlerocketShadow> {
        self.shadow.as_ref()?.ok()
    }

    /// The marker, if there is one that can be read.
    pub fn marker(&self) -> Option<&Marker> {
        self.node.as_ref()?.marker()
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
        self.marker().is_some_and(drains)
            && self.node.as_ref().is_some_and(|node| node.is_ready())
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
        let before = self.led.empty.filter(|before| before.volumes <= volumes);
        let now_empty = Empty {
            since: now,
            volumes,
        };
        let (plan, held_up_by) = drain.unzip();
        (self.led.plan, self.led.held_up_by) = (plan, held_up_by.flatten());
        self.led.empty = (self.led.is_drained()).then(|| before.unwrap_or(now_empty));
    }

    fn is_empty(&self) -> bool {
        self.node.is_none() && self.shadow.is_none() && self.agents.is_empty()
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

    /// Returns which pool owns this node, if that is known.
    pub fn owner(&self, name: &str) -> Option<Owner> {
        self.records.get(name)?.led.owner
    }

    /// Returns what the drain of this node has to do, if its pods are known.
    pub fn drain(&self, name: &str) -> Option<&DrainPlan> {
        self.records.get(name)?.led.plan.as_deref()
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

    /// Returns how many agents' pods cannot be read.
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

    /// Returns how many nodes have an update to finish, changes to undo, or one of these slots. Of a node whose Node or shadow
    /// cannot be read, that may be so.
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

    /// Returns what all gates ask.
    pub fn gate_queries(&self) -> BTreeSet<&PrometheusGate> {
        self.pools
            .values()
            .flat_map(Pool::gates)
            .map(|gate| &gate.prometheus)
            .collect()
    }

    /// Whether the drains of a pool delete the pods that are left at their deadline.
    pub fn wants_force(&self) -> bool {
        let mut rules = self.pools.values().filter_map(Pool::rules);
        rules.any(|rules| rules.wants_force)
    }

    /// The gates of these pools (by index), with the names of their pools.
    pub fn gates_of(&self, pools: &BTreeSet<usize>) -> impl Iterator<Item = (&str, &Gate)> {
        let of = self
            .pools
            .iter()
            .enumerate()
            .filter(|(index, _)| pools.contains(index));
        of.flat_map(|(_, (name, pool))| pool.gates().iter().map(|gate| (name.as_str(), gate)))
    }

    /// Changes a record, if it is there. One that knows nothing any more goes.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        if let Some(record) = self.records.get_mut(name) {
            change(record);
            if record.is_empty() {
                self.records.remove(name);
            }
        }
    }
}

/// Answers to requests are applied before the watches bring them, so that the next pass sees its own writes.
impl Cluster {
    /// Puts in an object as its watch brings it. Drops a state that is older than what an answer has brought, or the same.
    /// Returns whether a decision could be another.
    pub fn watched<K: Watched>(&mut self, object: K) -> bool {
        !self.is_behind(&object) && object.put(self)
    }

    /// Removes an object whose watch says that it was deleted. Returns whether a decision could be another.
    pub fn deleted<K: Watched>(&mut self, object: &K) -> bool {
        let is_news = !self.is_behind(object);
        if is_news {
            K::remove(object.name(), self);
        }
        is_news
    }

    /// Puts in an object as the answer to a request has it; `None` if the answer says that it is gone. The request was decided
    /// on version `seen`. Drops the answer if the watch has brought a newer state meanwhile, or the end of the object.
    pub fn answered<K: Watched>(
        &mut self,
        name: &str,
        answer: Option<K>,
        seen: Option<u64>,
        now: Duration,
    ) {
        let Some(object) = K::object(name) else {
            return;
        };
        let known = self.version(&object);
        let version = answer.as_ref().map_or(seen.map(|it| it + 1), version);
        let is_newer = known.is_some() && known < version;
        if known != seen && !is_newer {
            return;
        }
        match answer {
            Some(answer) => drop(answer.put(self)),
            None => K::remove(name, self),
        }
        if let Some(version) = version.filter(|_| known < version) {
            self.ahead.insert(object, (version, now));
        } else {
            self.ahead.remove(&object);
        }
    }

    /// Returns the objects that are to be read again, and when the next one will be.
    pub fn overdue(&self, now: Duration) -> (Vec<Object<String>>, Option<Duration>) {
        let due = self
            .ahead
            .iter()
            .map(|(object, (_, since))| (object, *since + READ_AGAIN));
        let (overdue, later): (Vec<_>, Vec<_>) = due.partition(|(_, due)| *due <= now);
        let overdue = overdue.into_iter().map(|(object, _)| object.clone());
        let next = later.into_iter().map(|(_, due)| due).min();
        (overdue.collect(), next)
    }

    /// Returns the resourceVersion in which an object is known.
    pub fn version(&self, object: &Object<String>) -> Option<u64> {
        match object {
            Object::Ledger | Object::FleetStatus => version(&**self.fleet.as_ref()?),
            Object::ShadowSpec(name) | Object::ShadowStatus(name) => {
                version(&**self.records.get(name)?.shadow.as_ref()?)
            }
            Object::PoolStatus(name) => {
                let version = self.pools.get(name)?.metadata.resource_version.as_ref();
                version?.parse().ok()
            }
            Object::Node(name) => self.records.get(&shadow_name(name))?.node_version,
        }
    }

    fn is_ahead<K: Watched>(&self, name: &str) -> bool {
        K::object(name).is_some_and(|object| self.ahead.contains_key(&object))
    }

    /// Whether this state, which a watch has brought, is no newer than what an answer has brought. Forgets the answer once the
    /// watch has caught up.
    fn is_behind<K: Watched>(&mut self, watched: &K) -> bool {
        let Some(object) = K::object(watched.name()) else {
            return false;
        };
        let ahead = self.ahead.get(&object).map(|(version, _)| *version);
        let version = version(watched);
        if ahead <= version {
            self.ahead.remove(&object);
        }
        ahead.is_some() && version <= ahead
    }
}

/// Returns an object's resourceVersion as a number, so that versions can be compared.
pub fn version(object: &impl Resource) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

/// A kind of objects that is watched.
pub trait Watched: Resource + Sized {
    /// This object is there now, perhaps in place of an earlier version. Returns whether a decision could be another.
    fn put(self, cluster: &mut Cluster) -> bool;

    /// The object of this name is gone.
    fn remove(name: &str, cluster: &mut Cluster);

    /// `metadata.name`.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Returns what a request calls the object of this name, if requests change such objects.
    fn object(_name: &str) -> Option<Object<String>> {
        None
    }

    /// Drops of these, which are being listed, what is beyond the bound of their kind, if there is one.
    fn bound(_listed: &mut Vec<Self>) {}

    /// These are all, in place of those that are known.
    fn replace(objects: impl IntoIterator<Item = Self>, cluster: &mut Cluster) {
        let mut gone = Self::names(cluster);
        for object in objects {
            gone.remove(object.name());
            cluster.watched(object);
        }
        for name in gone {
            if !cluster.is_ahead::<Self>(&name) {
                Self::remove(&name, cluster);
            }
        }
    }

    /// The names of all that are there.
    fn names(cluster: &Cluster) -> BTreeSet<String>;
}

impl Watched for Item<NodeFacts> {
    fn object(name: &str) -> Option<Object<String>> {
        Some(Object::Node(name.to_owned()))
    }

    fn put(self, cluster: &mut Cluster) -> bool {
        let version = version(&self);
        let node = NodeFacts::from(self);
        let record = cluster.record(&shadow_name(&node.name));
        let old = record.node.as_deref();
        // Most changes of a Node are its kubelet's heartbeats.
        let changed = old != Some(&node);
        if old.is_some_and(|old| old.uid != node.uid) {
            record.led = LedNode::default();
        } else if changed {
            record.led.owner = None;
        }
        (record.node, record.node_version) = (Some(Arc::new(node)), version);
        changed
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.change(&shadow_name(name), |record| {
            (record.node, record.node_version) = (None, None);
            record.led = LedNode::default();
        });
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster
            .nodes()
            .map(|(_, node)| node.name().to_owned())
            .collect()
    }
}

impl Watched for Item<BottlerocketShadow> {
    fn object(name: &str) -> Option<Object<String>> {
        Some(Object::ShadowSpec(name.to_owned()))
    }

    fn put(self, cluster: &mut Cluster) -> bool {
        let name = self.name().to_owned();
        cluster.record(&name).shadow = Some(Arc::new(self));
        true
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.change(name, |record| record.shadow = None);
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        let with_shadow = cluster
            .records
            .iter()
            .filter(|(_, record)| record.shadow.is_some());
        with_shadow.map(|(name, _)| name.clone()).collect()
    }
}

impl Watched for Item<WatchedFleet> {
    fn object(_: &str) -> Option<Object<String>> {
        Some(Object::Ledger)
    }

    fn put(self, cluster: &mut Cluster) -> bool {
        cluster.fleet = Some(Arc::new(self));
        true
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.fleet.take_if(|fleet| fleet.name() == name);
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster
            .fleet
            .iter()
            .map(|fleet| fleet.name().to_owned())
            .collect()
    }
}

/// The pods of agents, by their nodes.
impl Watched for PodItem {
    fn put(self, cluster: &mut Cluster) -> bool {
        let agent = AgentPod::of(&self);
        let shadow = agent.as_ref().map(|agent| shadow_name(&agent.node));
        let before = cluster.agents.get(self.name()).cloned();
        let counts = self.body.is_err() || shadow.is_some();
        if !counts || before.as_ref().is_some_and(|before| *before != shadow) {
            <Self as Watched>::remove(self.name(), cluster);
        }
        if counts {
            cluster
                .agents
                .insert(self.name().to_owned(), shadow.clone());
        }
        let Some((agent, shadow)) = agent.zip(shadow) else {
            return before != counts.then_some(None);
        };
        let old = cluster
            .record(&shadow)
            .agents
            .insert(self.name().to_owned(), agent.clone());
        old != Some(agent)
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        if let Some(Some(shadow)) = cluster.agents.remove(name) {
            cluster.change(&shadow, |record| {
                record.agents.remove(name);
            });
        }
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.agents.keys().cloned().collect()
    }
}

impl Watched for Item<Pool> {
    fn object(name: &str) -> Option<Object<String>> {
        Some(Object::PoolStatus(name.to_owned()))
    }

    fn put(self, cluster: &mut Cluster) -> bool {
        let name = self.name().to_owned();
        let pool = Pool::from(self);
        // Most changes of a pool are those of its status, which we write.
        let before = cluster.pools.get(&name);
        let mut changed = !before.is_some_and(|before| pool.says_the_same(before));
        cluster.pools.insert(name.clone(), pool);
        if cluster.pools.len() > POOLS_MAX
            && let Some((last, _)) = cluster.pools.pop_last()
        {
            changed = last != name;
            let first = cluster.pool_left_out.take();
            cluster.pool_left_out = Some(first.map_or(last.clone(), |first| first.min(last)));
        }
        cluster.pools_revision += u64::from(changed);
        true
    }

    fn bound(listed: &mut Vec<Self>) {
        if listed.len() > POOLS_MAX + 1 {
            listed.sort_by(|one, other| one.name().cmp(other.name()));
            listed.truncate(POOLS_MAX + 1);
        }
    }

    /// Pools that are gone leave first, so that they keep no other out.
    fn replace(objects: impl IntoIterator<Item = Self>, cluster: &mut Cluster) {
        let listed: Vec<Self> = objects.into_iter().collect();
        let names: BTreeSet<&str> = listed.iter().map(Watched::name).collect();
        let before = cluster.pools.len();
        cluster
            .pools
            .retain(|name, _| names.contains(name.as_str()));
        cluster.pools_revision += u64::from(cluster.pools.len() < before);
        cluster.pool_left_out = None;
        for pool in listed {
            cluster.watched(pool);
        }
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.pools_revision += u64::from(cluster.pools.remove(name).is_some());
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.pools.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
