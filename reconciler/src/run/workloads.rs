//! Reads the workloads whose pods are evicted: before the drain, and once the node is in service again.

use std::collections::BTreeMap;
use std::time::Duration;

use brupop_api::Item;
use brupop_api::marker::EVICTED_OWNERS_MAX;
use brupop_core::facts::NodeView;
use brupop_core::workloads::{self, Evicted, Scale, Scales, Workload};
use brupop_runtime::Listing;
use brupop_runtime::errors::describe;
use futures::future::join_all;
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::run::Reconciler;
use crate::run::Wake;

/// A workload that has fewer pods available than before is read again after the first of these, doubled up to the second.
const READ_AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_mins(5)];

/// The reads for all nodes, by name of the shadow.
#[derive(Debug, Default)]
pub struct WorkloadReads(BTreeMap<String, NodeReads>);

#[derive(Debug, Default)]
struct NodeReads {
    scales: Scales,
    /// The wait between the last read and the next.
    wait: Duration,
    /// When that is over. Instants are durations since any fixed moment of a monotonic clock.
    due: Duration,
    is_under_way: bool,
    /// A decision has asked for them since the last [`WorkloadReads::prune`].
    is_wanted: bool,
}

impl WorkloadReads {
    /// Returns the owners that are still to be read, of these, each of which had so many pods available.
    pub fn unread<'o>(
        &mut self,
        name: &str,
        owners: impl Iterator<Item = (&'o String, u32)>,
    ) -> Vec<(String, Workload)> {
        let reads = self.0.entry(name.to_owned()).or_default();
        reads.is_wanted = true;
        owners
            .filter_map(|(owner, before)| Some((owner, before, Workload::parse(owner)?)))
            .take(EVICTED_OWNERS_MAX)
            .filter(|(owner, before, _)| workloads::is_unread(owner, *before, &reads.scales))
            .map(|(owner, _, workload)| (owner.clone(), workload))
            .collect()
    }

    /// Returns when the next read is due, unless one is under way.
    pub fn due(&self, name: &str) -> Option<Duration> {
        let reads = self.0.get(name).filter(|reads| !reads.is_under_way)?;
        Some(reads.due)
    }

    /// Records that a read begins.
    pub fn begin(&mut self, name: &str) {
        if let Some(reads) = self.0.get_mut(name) {
            reads.is_under_way = true;
        }
    }

    pub fn end(&mut self, name: &str, scales: Scales, now: Duration) {
        if let Some(reads) = self.0.get_mut(name) {
            reads.scales.extend(scales);
            reads.is_under_way = false;
            reads.wait = (reads.wait * 2).clamp(READ_AGAIN[0], READ_AGAIN[1]);
            reads.due = now + reads.wait;
        }
    }

    /// Forgets what no decision has asked for since the last call.
    pub fn prune(&mut self) {
        self.0
            .retain(|_, reads| std::mem::take(&mut reads.is_wanted));
    }

    /// Returns what was read for a node, if a read has ended.
    pub fn scales(&self, name: &str) -> Option<&Scales> {
        let reads = self.0.get(name).filter(|reads| !reads.wait.is_zero())?;
        Some(&reads.scales)
    }
}

/// Reads these workloads. Those that do not answer are left out.
pub async fn read(client: Client, workloads: Vec<(String, Workload)>) -> Scales {
    let reads = workloads
        .iter()
        .map(|(_, workload)| find(&client, workload));
    let answers = join_all(reads).await;
    let answers = workloads.into_iter().zip(answers);
    let scales = answers.filter_map(|((owner, _), answer)| match answer {
        Ok(scale) => Some((owner, scale)),
        Err(error) => {
            let error = describe(&error);
            tracing::warn!(owner, error, "a workload could not be read");
            None
        }
    });
    scales.collect()
}

/// Returns the scale of a workload; `None` without the right to read it, or if the request is refused for another reason that
/// does not go away.
async fn find(client: &Client, workload: &Workload) -> kube::Result<Option<Scale>> {
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

impl Reconciler {
    /// Reads the workloads of a node that are still to be read, if that is due and there is room. When there is room again, a
    /// request has been answered, and that makes a pass.
    pub(crate) fn read_workloads<'o>(
        &mut self,
        name: &str,
        owners: impl Iterator<Item = (&'o String, u32)>,
        wake: &mut Wake,
    ) {
        let (now, has_room) = (self.now(), self.has_room_for_conditions());
        let reads = &mut self.leading.drainer.workloads;
        let unread = reads.unread(name, owners);
        let Some(due) = reads.due(name) else { return };
        if unread.is_empty() && reads.scales(name).is_some() || !has_room {
            return;
        }
        if now < due {
            return wake.by(due);
        }
        reads.begin(name);
        let (name, read) = (name.to_owned(), read(self.api.client.clone(), unread));
        self.start(read, move |this, scales| {
            let now = this.now();
            this.leading.drainer.workloads.end(&name, scales, now);
        });
    }

    /// Reads the workloads whose pods were evicted, once their node has been in service for long enough.
    pub(crate) fn read_evicted(&mut self, view: &NodeView<'_>, wake: &mut Wake) {
        let name = view.shadow_name;
        let reads = &self.leading.drainer.workloads;
        let is_awaited = view.evicted != Evicted::Back || reads.scales(name).is_some();
        let marker = view.node.and_then(|node| node.marker());
        if let Some(marker) = marker.filter(|_| view.time.verified && is_awaited) {
            let owners = marker.evicted_owners.iter();
            let owners = owners.map(|(owner, before)| (owner, *before));
            self.read_workloads(name, owners, wake);
        }
    }
}

#[cfg(test)]
mod tests;
