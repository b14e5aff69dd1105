//! Watches; a change that matters wakes the reconciler.

mod drains;
mod follow;
#[cfg(test)]
mod unreadable;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brupop_api::{BottlerocketShadow, Item, names};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::Notify;

use brupop_core::cluster::{Cluster, Entry};
use brupop_core::objects::{Ledger, PodItem, WatchedNode};
pub(crate) use drains::{MAX_POD_WATCHES, MAX_WORKLOAD_WATCHES};
pub use drains::{PodWatches, WorkloadWatches};
use follow::{Outage, Signals, Watch, Watched, of};

/// Objects per page of a list. A page is in memory as a whole before it is read, and each of its objects may have more
/// than a megabyte.
pub(crate) const PAGE: u32 = 100;
/// The same for kinds that anybody with a namespace can make.
pub(crate) const PAGE_OF_FOREIGN: u32 = 20;

/// The watches that keep the cluster up to date.
pub struct Watches {
    cluster: Arc<Mutex<Cluster>>,
    nodes: Watch,
    shadows: Watch,
    fleet: Watch,
    agents: Watch,
    /// Notified of each change that matters, except those of nodes' pods.
    pub changed: Arc<Notify>,
    /// Notified of each change of a pod on a node whose pods are watched.
    pub pods_changed: Arc<Notify>,
    /// How many times a watch failed.
    pub failures: Arc<AtomicU64>,
}

impl Watches {
    /// Begins to watch all Nodes, and the shadows, the fleet and the agents' pods of our namespace.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let (changed, failures) = (Arc::<Notify>::default(), Arc::<AtomicU64>::default());
        let signals = || (Arc::clone(&changed), Arc::clone(&failures));
        let everything = || watcher::Config::default().page_size(PAGE);
        let nodes = Api::<WatchedNode>::all(client.clone());
        let shadows = Api::<Item<BottlerocketShadow>>::namespaced(client.clone(), namespace);
        let agents = Api::<PodItem>::namespaced(client.clone(), namespace);
        let of_agents = foreign().labels(&format!("{}=agent", names::COMPONENT_LABEL));
        let fleet = Api::namespaced(client.clone(), namespace);
        let of_fleet = everything().fields(&format!("metadata.name={}", names::FLEET));
        let cluster = Arc::<Mutex<Cluster>>::default();
        let nodes =
            Watch::start("Nodes", move || watcher(nodes.clone(), everything()), of(&cluster), signals());
        let shadows =
            Watch::start("shadows", move || watcher(shadows.clone(), everything()), of(&cluster), signals());
        let agents = Watch::start(
            "the agents' pods",
            move || watcher(agents.clone(), of_agents.clone()),
            of(&cluster),
            signals(),
        );
        let fleet = Watch::start(
            "the fleet",
            move || watcher(fleet.clone(), of_fleet.clone()),
            of::<Item<Ledger>>(&cluster),
            signals(),
        );
        Self { cluster, nodes, shadows, fleet, agents, changed, pods_changed: Arc::default(), failures }
    }

    /// Lists everything again. A silent watch may be silent because nothing happens, or because its connection is dead;
    /// in the second case it may be minutes behind before that is noticed.
    pub fn refresh(&self) {
        self.nodes.refresh();
        self.shadows.refresh();
        self.fleet.refresh();
        self.agents.refresh();
    }

    /// Has each watch listed its objects once?
    pub fn synced(&self) -> bool {
        self.nodes.synced() && self.shadows.synced() && self.fleet.synced() && self.agents.synced()
    }

    /// Has each watch listed its objects since the last [`refresh`](Self::refresh)?
    pub fn is_fresh(&self) -> bool {
        self.nodes.is_fresh() && self.shadows.is_fresh() && self.fleet.is_fresh() && self.agents.is_fresh()
    }

    /// Waits until each watch has listed its objects.
    pub async fn wait_until_synced(&self) {
        for watch in [&self.nodes, &self.shadows, &self.fleet, &self.agents] {
            // An error would mean that the task of a watch has ended; it ends only with this process.
            let _ = watch.listed.clone().wait_for(|times| *times > 0).await;
        }
    }

    /// What is known now. As long as this is held, nothing is learnt.
    ///
    /// # Errors
    /// The ledger exists and cannot be read: then nothing may be decided. Says what is wrong with it.
    pub fn cluster(&self) -> Result<MutexGuard<'_, Cluster>, String> {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match cluster.ledger.as_ref().map(|ledger| &ledger.body) {
            Some(Err(error)) => Err(error.to_string()),
            _ => Ok(cluster),
        }
    }

    /// Forgets what only a leader looks at.
    pub fn forget_what_leaders_know(&self) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.entries.values_mut().for_each(Entry::forget_what_leaders_know);
    }
}

fn foreign() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_OF_FOREIGN)
}
