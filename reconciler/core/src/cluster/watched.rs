//! How the watches keep the cluster up to date: what of each kind is there now, and what is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use brupop_api::{BottlerocketShadow, Item, names};
use kube::Resource;

use super::{Cluster, Entry, WatchedPool};
use crate::objects::{AgentPod, PodItem, WatchedFleet, WatchedNode};
use crate::pool::{self, Pool};

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

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster
            .nodes()
            .map(|(_, node)| node.name().to_owned())
            .collect()
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

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        let with_shadow = cluster
            .entries
            .iter()
            .filter(|(_, entry)| entry.shadow.is_some());
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
            .entry(&shadow)
            .agents
            .insert(self.name().to_owned(), agent.clone());
        old != Some(agent)
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        if let Some(Some(shadow)) = cluster.agents.remove(name) {
            cluster.change(&shadow, |entry| {
                entry.agents.remove(name);
            });
        }
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
        if pool::bound(
            pools
                .values_mut()
                .filter_map(|pool| pool.item.body.as_mut().ok()),
        ) {
            *said += 1;
            pools
                .values_mut()
                .filter(|pool| pool.is_given_up())
                .for_each(|pool| pool.said = *said);
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

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.pools.keys().cloned().collect()
    }
}

impl Cluster {
    /// Changes an entry, if it is there. One that knows nothing any more goes.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(name) {
            change(entry);
            if entry.is_empty() {
                self.entries.remove(name);
            }
        }
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
}
