//! How the watches keep the cluster up to date: what of each kind is there now, and what is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use brupop_api::{BottlerocketShadow, Item, Object, names};
use kube::Resource;

use super::{Cluster, NodeRecord, WatchedPool};
use crate::led::LedNode;
use crate::objects::{AgentPod, NodeFacts, PodItem, WatchedFleet};
use crate::pool::{POOLS_MAX, Pool};

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
        let version = self.metadata.resource_version.as_ref();
        let version = version.and_then(|version| version.parse().ok());
        let node = NodeFacts::from(self);
        let record = cluster.record(&names::shadow_name(&node.name));
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
        cluster.change(&names::shadow_name(name), |record| {
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
        let pool = WatchedPool { item: self };
        // Most changes of a pool are those of its status, which we write.
        let before = cluster.pools.get(&name);
        let mut changed = !before.is_some_and(|before| {
            let both = before.item.ok().zip(pool.item.ok());
            both.is_some_and(|(before, now)| now.says_the_same(before))
        });
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

impl Cluster {
    /// Changes an record, if it is there. One that knows nothing any more goes.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        if let Some(record) = self.records.get_mut(name) {
            change(record);
            if record.is_empty() {
                self.records.remove(name);
            }
        }
    }
}
