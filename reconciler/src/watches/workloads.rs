//! Watches of single workloads, whose pods are, or were, evicted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brupop_api::Item;
use brupop_runtime::watch_one;
use futures::StreamExt as _;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{Outage, Signals, Watches};
use brupop_core::workloads::{self, Evicted, FoundWorkload, Scale, Workload};

/// A workload of which nothing is known for so long is not waited for any more: its node would hold up those behind it.
const UNANSWERED: Duration = Duration::from_mins(1);
/// The most workloads that are watched at once. Further ones are not looked at.
pub(crate) const MAX_WORKLOAD_WATCHES: usize = 512;

/// One watch for each workload that matters now.
#[derive(Default)]
pub struct WorkloadWatches {
    watches: BTreeMap<Workload, WatchedWorkload>,
    /// How often something else was found, or another workload was watched.
    revision: Arc<AtomicU64>,
}

struct WatchedWorkload {
    found: watch::Receiver<Option<FoundWorkload>>,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl WorkloadWatches {
    /// Watches these workloads and no others: first those that matter most, which come first, and among these those that are
    /// watched already.
    pub fn want(
        &mut self,
        client: &Client,
        Watches {
            changed, failures, ..
        }: &Watches,
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
                let follow = follow(
                    client.clone(),
                    workload.clone(),
                    sender,
                    Arc::clone(revision),
                    signals,
                );
                let mut task = JoinSet::new();
                task.spawn(follow);
                WatchedWorkload { found, _task: task }
            });
        }
    }

    /// A number that rises with each change of what [`found`](Self::found) says.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// What was found of this owner of pods; `None` until its watch has answered.
    pub fn found(&self, owner: &str) -> Option<FoundWorkload> {
        let Some(workload) = Workload::parse(owner) else {
            return Some(FoundWorkload::Unknown);
        };
        match self.watches.get(&workload) {
            Some(watched) => *watched.found.borrow(),
            None => (self.watches.len() >= MAX_WORKLOAD_WATCHES).then_some(FoundWorkload::Unknown),
        }
    }

    /// The state of these owners of evicted pods.
    pub fn evicted<'o>(&self, owners: &'o BTreeMap<String, u32>) -> Evicted<'o> {
        workloads::evicted(owners, |owner| self.found(owner))
    }
}

/// As many as may be watched: first those of the first set, and of each set those that are watched already.
fn choose(
    wanted: [BTreeSet<Workload>; 2],
    is_watched: impl Fn(&Workload) -> bool,
) -> BTreeSet<Workload> {
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
    sender: watch::Sender<Option<FoundWorkload>>,
    revision: Arc<AtomicU64>,
    (changed, failures): Signals,
) {
    let resource = ApiResource::from_gvk(&workload.kind.full_name());
    let api = Api::<Item<Scale>>::namespaced_with(client, &workload.namespace, &resource);
    let mut events = std::pin::pin!(watch_one(api, &workload.name));
    let mut outage = Outage::new(workload.to_string(), failures);
    let unanswered = Instant::now() + UNANSWERED;
    loop {
        let before = *sender.borrow();
        let found = tokio::select! {
            event = events.next() => {
                let Some(event) = event else { return };
                match &event {
                    Ok(_) => outage.is_over(),
                    Err(error) => outage.goes_on(error),
                }
                after(before, event)
            }
            () = sleep_until(unanswered), if before.is_none() => Some(FoundWorkload::Unknown),
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
fn after(
    before: Option<FoundWorkload>,
    shown: watcher::Result<Option<Item<Scale>>>,
) -> Option<FoundWorkload> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match shown {
        Ok(object) => Some(FoundWorkload::of(object.as_ref())),
        Err(
            InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status)),
        ) if matches!(status.code, 400..=409 | 422) => Some(FoundWorkload::Unknown),
        Err(_) => before,
    }
}

#[cfg(test)]
mod tests;
