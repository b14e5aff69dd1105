//! Watches of single workloads: those whose pods are, or were, evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brupop_api::Item;
use brupop_runtime::watch_one;
use futures::StreamExt as _;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Outage, Signals, Watches};
use brupop_core::facts::Evicted;
use brupop_core::objects::PodItem;
use brupop_core::workloads::{self, Found, Kind, Scale, Workload};

/// At most so many workloads are watched at once. Further ones are not looked at.
const MAX_WATCHES: usize = 512;

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
    /// Watches these workloads and no others; those that are watched already come first.
    pub fn want(
        &mut self,
        client: &Client,
        Watches { changed, failures, .. }: &Watches,
        wanted: BTreeSet<Workload>,
    ) {
        let revision = &self.revision;
        let before = self.watches.len();
        self.watches.retain(|workload, _| wanted.contains(workload));
        revision.fetch_add(u64::from(self.watches.len() != before), Ordering::Relaxed);
        for workload in wanted {
            if self.watches.len() >= MAX_WATCHES {
                break;
            }
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
            Some(watched) => *watched.found.borrow(),
            None => (self.watches.len() >= MAX_WATCHES).then_some(Found::Unknown),
        }
    }

    /// Has this pod lost the `DaemonSet` that made it?
    pub fn orphaned(&self, pod: &PodItem) -> bool {
        workloads::orphaned(pod, |owner| self.found(owner))
    }

    /// The state of these owners of evicted pods.
    pub fn evicted<'o>(&self, owners: &'o [String]) -> Evicted<'o> {
        workloads::evicted(owners, |owner| self.found(owner))
    }
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
    while let Some(event) = events.next().await {
        match &event {
            Ok(_) => outage.is_over(),
            Err(error) => outage.goes_on(error),
        }
        let before = *sender.borrow();
        let found = after(before, workload.kind, event);
        sender.send_replace(found);
        if found != before {
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
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_watch_that_fails_forgets_nothing_and_makes_nothing_up() {
        let failed = |code| {
            let status = Status { code, ..Status::default() };
            Err(watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed())))
        };
        for before in [None, Some(Found::Unavailable), Some(Found::Available), Some(Found::Gone)] {
            let after = |shown| after(before, Kind::ReplicaSet, shown);
            assert_eq!(after(failed(503)), before);
            assert_eq!(after(failed(429)), before);
            assert_eq!(after(failed(403)), Some(Found::Unknown), "nobody waits for what nobody may see");
            assert_eq!(after(failed(400)), Some(Found::Unknown), "nor for what cannot be asked");
            assert_eq!(after(Ok(None)), Some(Found::Gone));
        }
    }
}
