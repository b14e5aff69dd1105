//! The machines of nodes that an autoscaler launches: each Node that it makes gets a simulated host, and loses it when the
//! Node is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context as _, Result};
use brupop_testbed::host::{Durations, Host, lock};
use brupop_testbed::{Fleet, NewNode};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};

/// Karpenter's taint of a node that it removes.
const DISRUPTED: &str = "karpenter.sh/disrupted";

/// The state of the launched nodes.
#[derive(Default)]
pub struct Launched(Mutex<Seen>);

/// The observations so far.
#[derive(Default)]
pub struct Seen {
    hosts: BTreeMap<String, Host>,
    offered: Option<String>,
    /// Nodes that the autoscaler removes now.
    theirs: BTreeSet<String>,
    pub launched: usize,
    pub removed: usize,
    /// Of these, those that ran the version that is offered.
    pub removed_updated: usize,
    /// The most nodes that the autoscaler was removing at once.
    pub most_theirs: usize,
}

impl Launched {
    /// Returns what was seen so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.0)
    }

    /// Every host's repository has a new image, now and in future; new nodes start with the old version all the same.
    pub fn offer(&self, version: &str) -> Result<()> {
        let mut seen = self.seen();
        seen.offered = Some(version.to_owned());
        seen.hosts
            .values()
            .try_for_each(|host| host.publish(version))
    }

    /// Follows the Nodes, as long as it is polled.
    pub async fn follow(&self, fleet: &Fleet) -> Result<()> {
        let nodes = Api::<Node>::all(fleet.client());
        let mut events = watcher::watcher(nodes, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            match event? {
                Event::InitApply(node) | Event::Apply(node) => self.apply(fleet, &node).await?,
                Event::Delete(node) => self.delete(&node),
                Event::Init | Event::InitDone => {}
            }
        }
        Ok(())
    }

    async fn apply(&self, fleet: &Fleet, node: &Node) -> Result<()> {
        let provider = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.as_deref());
        if !provider.is_some_and(|id| id.starts_with("kwok://")) {
            return Ok(());
        }
        let name = node.name_any();
        if !self.seen().hosts.contains_key(&name) {
            let host = boot(fleet, &name).await?;
            let mut seen = self.seen();
            if let Some(version) = &seen.offered {
                host.publish(version)?;
            }
            seen.launched += 1;
            seen.hosts.insert(name.clone(), host);
        }
        self.seen().note(&name, node);
        Ok(())
    }

    fn delete(&self, node: &Node) {
        let mut seen = self.seen();
        let name = node.name_any();
        if let Some(host) = seen.hosts.remove(&name) {
            seen.removed += 1;
            seen.removed_updated += usize::from(seen.offered.as_ref() == Some(&host.version()));
        }
        seen.theirs.remove(&name);
    }
}

impl Seen {
    /// Returns how many of the nodes that are there run the version that is offered; and how many there are.
    pub fn updated(&self) -> (usize, usize) {
        let updated = self
            .hosts
            .values()
            .filter(|host| self.offered.as_ref() == Some(&host.version()));
        (updated.count(), self.hosts.len())
    }

    /// The counts, in a line for people; launches are those after the first `before` nodes.
    pub fn line(&self, before: usize) -> String {
        let (updated, all) = self.updated();
        let (launched, removed) = (self.launched - before, self.removed);
        format!("{updated} of {all} up to date, {launched} launches, {removed} removed")
    }

    fn note(&mut self, name: &str, node: &Node) {
        let spec = node.spec.as_ref();
        let taints = spec
            .and_then(|spec| spec.taints.as_ref())
            .into_iter()
            .flatten();
        let leaves = node.metadata.deletion_timestamp.is_some()
            || taints.into_iter().any(|taint| taint.key == DISRUPTED);
        if leaves {
            self.theirs.insert(name.to_owned());
        } else {
            self.theirs.remove(name);
        }
        self.most_theirs = self.most_theirs.max(self.theirs.len());
    }
}

/// A host of the old version, whose kubelet tells what a Node shows.
async fn boot(fleet: &Fleet, node: &str) -> Result<Host> {
    let durations = Durations {
        reboot: std::time::Duration::from_secs(2),
        ..Durations::default()
    };
    let host = fleet
        .boot(node, 0, durations)
        .with_context(|| format!("the host of {node}"))?;
    let mut told = NewNode::numbered(0);
    node.clone_into(&mut told.name);
    told.on(&host).tell(&fleet.client()).await?;
    fleet.kubelets.attach(node, host.power());
    Ok(host)
}
