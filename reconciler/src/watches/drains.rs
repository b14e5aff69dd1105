//! Watches for drains: of the pods of some nodes, of all budgets, and of single workloads, whose pods are, or were, evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brupop_api::Item;
use brupop_runtime::{list_and_watch_in_turn, watch_one};
use futures::StreamExt as _;
use kube::api::ListParams;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{Outage, Signals, Watched, Watches};
use brupop_core::drain::{self, Budgets};
use brupop_core::facts::Evicted;
use brupop_core::objects::{Budget, PodItem};
use brupop_core::workloads::{self, EvictedOwner, Found, Kind, Scale, Workload};

/// The pods of at most so many nodes are watched at once. Further nodes are drained later.
pub(crate) const MAX_POD_WATCHES: usize = 256;

/// So many lists of these are read at once. Each has a connection, and an object in memory that is not complete: of 9 MB at
/// most if etcd's limits are the usual ones, and anybody with a namespace can make those.
const LISTS_AT_ONCE: usize = 8;

/// Watches of the pods of some nodes, and of all budgets. Nothing is watched while no node is drained, about to be, or
/// passed over.
pub struct PodWatches {
    turns: Arc<Semaphore>,
    watches: BTreeMap<String, Watched<PodItem>>,
    budgets: Option<(Watched<Item<Budget>>, Budgets)>,
}

impl Default for PodWatches {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(LISTS_AT_ONCE)), watches: BTreeMap::new(), budgets: None }
    }
}

impl PodWatches {
    /// Watches the pods of these nodes (name of the shadow, name of the node), the most important first, and no others.
    pub fn want<'a>(
        &mut self,
        client: &Client,
        Watches { changed, pods_changed, failures, .. }: &Watches,
        wanted: impl Iterator<Item = (&'a str, &'a str)>,
    ) {
        let wanted: BTreeMap<&str, &str> = wanted.take(MAX_POD_WATCHES).collect();
        self.watches.retain(|shadow, _| wanted.contains_key(shadow.as_str()));
        if wanted.is_empty() {
            self.budgets = None;
        } else if self.budgets.is_none() {
            let (api, turns) = (Api::all(client.clone()), Arc::clone(&self.turns));
            let budgets =
                move || list_and_watch_in_turn(api.clone(), ListParams::default(), Arc::clone(&turns));
            let signals = (Arc::clone(changed), Arc::clone(failures));
            self.budgets =
                Some((Watched::start("budgets", budgets, drain::matters, signals), Budgets::default()));
        }
        for (shadow, node) in wanted {
            self.watches.entry(shadow.to_owned()).or_insert_with(|| {
                let (api, params) = (Api::<PodItem>::all(client.clone()), on_node(node));
                let turns = Arc::clone(&self.turns);
                let pods = move || list_and_watch_in_turn(api.clone(), params.clone(), Arc::clone(&turns));
                let signals = (Arc::clone(pods_changed), Arc::clone(failures));
                Watched::start("the pods of a node", pods, |_, _| true, signals)
            });
        }
    }

    /// Are the pods of the node of this shadow watched?
    pub fn watches(&self, shadow: &str) -> bool {
        self.watches.contains_key(shadow)
    }

    /// The namespaces in which a budget allows more than at the last call.
    pub fn relaxed(&mut self) -> BTreeSet<String> {
        let Some((watched, budgets)) = &mut self.budgets else { return BTreeSet::new() };
        let found = watched.store.state();
        budgets.relaxed(found.iter().map(AsRef::as_ref))
    }

    /// How many budgets cannot be read.
    pub fn unreadable_budgets(&self) -> usize {
        let Some((watched, _)) = &self.budgets else { return 0 };
        watched.store.state().iter().filter(|budget| budget.body.is_err()).count()
    }

    /// The nodes whose pods are known, by name of the shadow, each with a number that rises when its pods change.
    pub fn known(&self) -> impl Iterator<Item = (&str, u64)> {
        let synced = self.watches.iter().filter(|(_, watched)| watched.synced());
        synced.map(|(shadow, watched)| (shadow.as_str(), watched.revision()))
    }

    /// A number that rises when budgets change; `None` as long as they are not known.
    pub fn budgets_revision(&self) -> Option<u64> {
        let (budgets, _) = self.budgets.as_ref()?;
        budgets.synced().then(|| budgets.revision())
    }

    /// All budgets.
    pub fn budgets(&self) -> Vec<Arc<Item<Budget>>> {
        self.budgets.as_ref().map_or_else(Vec::new, |(budgets, _)| budgets.store.state())
    }

    /// The pods of the node of this shadow.
    pub fn pods(&self, shadow: &str) -> Vec<Arc<PodItem>> {
        self.watches.get(shadow).map_or_else(Vec::new, |watched| watched.store.state())
    }
}

/// The pods of one node.
pub(crate) fn on_node(node: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.nodeName={node}"))
}

/// A workload of which nothing is known for so long is not waited for any more: its node would hold up those behind it.
const UNANSWERED: Duration = Duration::from_mins(1);
/// At most so many workloads are watched at once. Further ones are not looked at.
pub(crate) const MAX_WORKLOAD_WATCHES: usize = 512;

/// One watch for each workload that matters now.
#[derive(Default)]
pub struct WorkloadWatches {
    watches: BTreeMap<Workload, WatchedWorkload>,
    /// How often something else was found, or another workload was watched.
    revision: Arc<AtomicU64>,
}

struct WatchedWorkload {
    found: watch::Receiver<Option<Found>>,
    task: JoinHandle<()>,
}

impl Drop for WatchedWorkload {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WorkloadWatches {
    /// Watches these workloads and no others: first those that matter most, which come first, and among these those that are
    /// watched already.
    pub fn want(
        &mut self,
        client: &Client,
        Watches { changed, failures, .. }: &Watches,
        wanted: [BTreeSet<Workload>; 2],
    ) {
        let revision = &self.revision;
        let before = self.watches.len();
        let chosen = choose(wanted, |workload| self.watches.contains_key(workload));
        self.watches.retain(|workload, _| chosen.contains(workload));
        revision.fetch_add(u64::from(self.watches.len() != before), Ordering::Relaxed);
        for workload in chosen {
            self.watches.entry(workload).or_insert_with_key(|workload| {
                revision.fetch_add(1, Ordering::Relaxed);
                let (sender, found) = watch::channel(None);
                let signals = (Arc::clone(changed), Arc::clone(failures));
                let follow = follow(client.clone(), workload.clone(), sender, Arc::clone(revision), signals);
                WatchedWorkload { found, task: tokio::spawn(follow) }
            });
        }
    }

    /// A number that rises with each change of what [`found`](Self::found) says.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// What was found of this owner of pods; `None` until its watch has answered.
    pub fn found(&self, owner: &str) -> Option<Found> {
        let Some(workload) = Workload::parse(owner) else { return Some(Found::Unknown) };
        match self.watches.get(&workload) {
            Some(watched) => watched.found.borrow().clone(),
            None => (self.watches.len() >= MAX_WORKLOAD_WATCHES).then_some(Found::Unknown),
        }
    }

    /// Has this pod lost the `DaemonSet` that made it?
    pub fn orphaned(&self, pod: &PodItem) -> bool {
        workloads::orphaned(pod, |owner| self.found(owner))
    }

    /// The state of these owners of evicted pods.
    pub fn evicted<'o>(&self, owners: &'o [EvictedOwner]) -> Evicted<'o> {
        workloads::evicted(owners, |owner| self.found(owner))
    }
}

/// As many as may be watched: first those of the first set, and of each set those that are watched already.
fn choose(wanted: [BTreeSet<Workload>; 2], is_watched: impl Fn(&Workload) -> bool) -> BTreeSet<Workload> {
    let mut chosen = BTreeSet::new();
    for set in wanted {
        let (watched, new): (Vec<_>, Vec<_>) = set.into_iter().partition(&is_watched);
        for workload in watched.into_iter().chain(new) {
            if chosen.len() < MAX_WORKLOAD_WATCHES {
                chosen.insert(workload);
            }
        }
    }
    chosen
}

async fn follow(
    client: Client,
    workload: Workload,
    sender: watch::Sender<Option<Found>>,
    revision: Arc<AtomicU64>,
    (changed, failures): Signals,
) {
    let resource = ApiResource::from_gvk(&workload.kind.full_name());
    let api = Api::<Item<Scale>>::namespaced_with(client, &workload.namespace, &resource);
    let mut events = std::pin::pin!(watch_one(api, &workload.name));
    let mut outage = Outage::new(workload.to_string(), failures);
    let unanswered = Instant::now() + UNANSWERED;
    loop {
        let before = sender.borrow().clone();
        let found = tokio::select! {
            event = events.next() => {
                let Some(event) = event else { return };
                match &event {
                    Ok(_) => outage.is_over(),
                    Err(error) => outage.goes_on(error),
                }
                after(before.clone(), workload.kind, event)
            }
            () = sleep_until(unanswered), if before.is_none() => Some(Found::Unknown),
        };
        if found != before {
            sender.send_replace(found);
            revision.fetch_add(1, Ordering::Relaxed);
            changed.notify_one();
        }
    }
}

/// What is known after the watch has shown this. After most failures the watch goes on where it was, so what was found
/// before stays valid. Without the right to look, or if the request is refused for another reason that does not go away,
/// nothing is known.
fn after(before: Option<Found>, kind: Kind, shown: watcher::Result<Option<Item<Scale>>>) -> Option<Found> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match shown {
        Ok(object) => Some(Found::of(kind, object.as_ref())),
        Err(
            InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status)),
        ) if matches!(status.code, 400..=409 | 422) => Some(Found::Unknown),
        Err(_) => before,
    }
}

#[cfg(test)]
mod tests;
