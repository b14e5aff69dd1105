//! Reads the workloads whose pods are evicted: before the drain, and once the node is in service again.

use std::collections::BTreeMap;
use std::time::Duration;

use brupop_api::Item;
use brupop_api::marker::EVICTED_OWNERS_MAX;
use brupop_core::workloads::{self, Evicted, Scale, Scales, Workload};
use brupop_runtime::Listing;
use brupop_runtime::errors::describe;
use futures::future::join_all;
use kube::api::{Api, ListParams};
use kube::{Client, Error};
use tokio::time::sleep;

/// A workload that has fewer pods available than before is read again after the first of these, doubled up to the second.
const READ_AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_mins(5)];

/// What the workloads of a node are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadFor {
    /// The cordon, which notes how many pods are available.
    Cordon,
    /// The end of the update, which waits until as many are available again.
    Finish,
}

/// A node, by name of its shadow, and what its workloads are read for.
pub type ReadKey = (ReadFor, String);

/// The reads for all nodes.
#[derive(Debug, Default)]
pub struct WorkloadReads(BTreeMap<ReadKey, NodeReads>);

#[derive(Debug, Default)]
struct NodeReads {
    scales: Scales,
    /// The wait before the next read.
    wait: Duration,
    is_under_way: bool,
    /// A decision has asked for them since the last [`WorkloadReads::prune`].
    is_wanted: bool,
}

impl WorkloadReads {
    /// Returns the owners that are still to be read, of these, each of which had so many pods available.
    pub fn unread<'o>(
        &mut self,
        key: &ReadKey,
        owners: impl Iterator<Item = (&'o String, u32)>,
    ) -> Vec<(String, Workload)> {
        let reads = self.0.entry(key.clone()).or_default();
        reads.is_wanted = true;
        owners
            .filter_map(|(owner, before)| Some((owner, before, Workload::parse(owner)?)))
            .take(EVICTED_OWNERS_MAX)
            .filter(|(owner, before, _)| workloads::is_unread(owner, *before, &reads.scales))
            .map(|(owner, _, workload)| (owner.clone(), workload))
            .collect()
    }

    /// Begins the next read, unless one is under way. Returns after which wait.
    pub fn begin(&mut self, key: &ReadKey) -> Option<Duration> {
        let reads = self.0.get_mut(key)?;
        (!std::mem::replace(&mut reads.is_under_way, true)).then_some(reads.wait)
    }

    /// Records what was read.
    pub fn end(&mut self, key: &ReadKey, scales: Scales) {
        if let Some(reads) = self.0.get_mut(key) {
            reads.scales.extend(scales);
            reads.is_under_way = false;
            if key.0 == ReadFor::Finish {
                reads.wait = (reads.wait * 2).clamp(READ_AGAIN[0], READ_AGAIN[1]);
            }
        }
    }

    /// Whether anything was read, or is to be, for this.
    pub fn contains(&self, key: &ReadKey) -> bool {
        self.0.contains_key(key)
    }

    /// Forgets what no decision has asked for since the last call.
    pub fn prune(&mut self) {
        self.0
            .retain(|_, reads| std::mem::take(&mut reads.is_wanted));
    }

    /// Returns how many pods the workloads have available that were read for a cordon, by name of the shadow and by owner.
    pub fn available(&self) -> BTreeMap<String, BTreeMap<String, u32>> {
        let cordons = self
            .0
            .iter()
            .filter(|((why, _), _)| *why == ReadFor::Cordon);
        let available = cordons.map(|((_, name), reads)| {
            let scales = reads.scales.iter();
            let scales = scales.filter_map(|(owner, scale)| Some((owner, scale.as_ref()?)));
            let available = scales.map(|(owner, scale)| (owner.clone(), scale.available));
            (name.clone(), available.collect())
        });
        available.collect()
    }

    /// Returns the state of these owners of pods that were evicted from a node.
    pub fn evicted<'o>(&self, name: &str, owners: &'o BTreeMap<String, u32>) -> Evicted<'o> {
        match self.0.get(&(ReadFor::Finish, name.to_owned())) {
            Some(reads) => workloads::evicted(owners, &reads.scales),
            None => workloads::evicted(owners, &Scales::new()),
        }
    }
}

/// Reads these workloads. One that does not answer is read again, but for a cordon, which does not wait for it.
pub async fn read(
    client: Client,
    why: ReadFor,
    wait: Duration,
    workloads: Vec<(String, Workload)>,
) -> Scales {
    sleep(wait).await;
    let reads = workloads
        .iter()
        .map(|(_, workload)| find(&client, workload));
    let answers = join_all(reads).await;
    let mut scales = Scales::new();
    for ((owner, _), answer) in workloads.into_iter().zip(answers) {
        if let Err(error) = &answer {
            let error = describe(error);
            tracing::warn!(owner, error, "a workload could not be read");
        }
        if answer.is_ok() || why == ReadFor::Cordon {
            scales.insert(owner, answer.ok().flatten());
        }
    }
    scales
}

/// Returns the scale of a workload; `None` without the right to read it, or if the request is refused for another reason that
/// does not go away.
pub async fn find(client: &Client, workload: &Workload) -> kube::Result<Option<Scale>> {
    let (namespace, resource) = (&workload.namespace, &workload.resource);
    let api = Api::<Item<Scale>>::namespaced_with(client.clone(), namespace, resource);
    // A list of one takes its turn with other large answers.
    let named = ListParams::default().fields(&format!("metadata.name={}", workload.name));
    let found = async { Listing::begin(&api, &named).await?.next().await };
    match found.await {
        Ok(object) => Ok(Scale::of(object.as_ref())),
        Err(Error::Api(status)) if matches!(status.code, 400..=409 | 422) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
