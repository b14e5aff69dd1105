//! The pods of the nodes whose pods are watched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{weight, weight_of_identity};
use crate::objects::PodItem;

/// Most bytes of the pods of one node, as they are in memory: some 2,000 of usual size. Kubelets run 110 unless they are told
/// otherwise.
const OF_NODE_MAX: usize = 2 << 20;
/// Most bytes of the pods of all nodes: if as many are watched as may be, each has its share for some 200 pods with some ten labels.
const OF_ALL_MAX: usize = 64 << 20;

/// The pods of the nodes that are watched, by name of the shadow.
#[derive(Debug, Default)]
pub struct KeptPods {
    nodes: BTreeMap<String, OfNode>,
    dropped: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct OfNode {
    now: Pods,
    /// Pods of a list that is not complete yet.
    listed: Pods,
    /// How many changes there were.
    revision: u64,
}

/// By namespace and name.
#[derive(Debug, Default)]
struct Pods {
    all: BTreeMap<String, Arc<PodItem>>,
    bytes: usize,
}

impl KeptPods {
    /// Keeps the pods of these nodes, and of no others.
    pub fn want<'n>(&mut self, nodes: impl IntoIterator<Item = &'n str>) {
        let mut before = std::mem::take(&mut self.nodes);
        let kept = nodes.into_iter().map(|node| {
            let of_node = before.remove(node).unwrap_or_default();
            (node.to_owned(), of_node)
        });
        self.nodes = kept.collect();
    }

    /// The nodes whose pods were dropped since the last call, because there are too many. Nothing that is said of these is
    /// heard before they are wanted again.
    pub fn take_dropped(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dropped)
    }

    /// Whether pods of a node were dropped since then.
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// The pods of this node are being listed.
    pub fn list_begins(&mut self, node: &str) {
        if let Some(of_node) = self.nodes.get_mut(node) {
            of_node.listed = Pods::default();
        }
    }

    /// The list has this pod.
    pub fn listed(&mut self, node: &str, pod: PodItem) {
        self.insert(node, pod, |of_node| &mut of_node.listed);
    }

    /// The list is complete.
    pub fn list_ends(&mut self, node: &str) {
        if let Some(of_node) = self.nodes.get_mut(node) {
            of_node.now = std::mem::take(&mut of_node.listed);
            of_node.revision += 1;
        }
    }

    /// This pod is there now, perhaps in place of an earlier version.
    pub fn put(&mut self, node: &str, pod: PodItem) {
        self.insert(node, pod, |of_node| {
            of_node.revision += 1;
            &mut of_node.now
        });
    }

    /// This pod is gone.
    pub fn remove(&mut self, node: &str, pod: &PodItem) {
        if let Some(of_node) = self.nodes.get_mut(node) {
            of_node.now.remove(&key(pod));
            of_node.revision += 1;
        }
    }

    /// A number that rises when the pods of this node change.
    pub fn revision(&self, node: &str) -> Option<u64> {
        self.nodes.get(node).map(|of_node| of_node.revision)
    }

    /// The pods of this node.
    pub fn of(&self, node: &str) -> Vec<Arc<PodItem>> {
        self.nodes.get(node).map_or_else(Vec::new, |of_node| {
            of_node.now.all.values().cloned().collect()
        })
    }

    fn insert(&mut self, node: &str, mut pod: PodItem, among: fn(&mut OfNode) -> &mut Pods) {
        let Some(of_node) = self.nodes.get_mut(node) else {
            return;
        };
        pod.metadata.resource_version = None;
        let pods = among(of_node);
        pods.remove(&key(&pod));
        pods.insert(pod);
        if pods.bytes > OF_NODE_MAX {
            self.drop_node(node);
        }
        while self.bytes() > OF_ALL_MAX {
            let most = self
                .nodes
                .iter()
                .max_by_key(|(name, it)| (it.bytes(), Reverse(*name)));
            let Some((name, _)) = most else { return };
            self.drop_node(&name.clone());
        }
    }

    fn bytes(&self) -> usize {
        self.nodes.values().map(OfNode::bytes).sum()
    }

    fn drop_node(&mut self, node: &str) {
        let dropped = self.nodes.remove_entry(node);
        self.dropped.extend(dropped.map(|(name, _)| name));
    }
}

impl OfNode {
    fn bytes(&self) -> usize {
        self.now.bytes + self.listed.bytes
    }
}

impl Pods {
    fn insert(&mut self, pod: PodItem) {
        self.bytes += bytes(&pod);
        self.all.insert(key(&pod), Arc::new(pod));
    }

    fn remove(&mut self, key: &str) {
        self.bytes -= self.all.remove(key).map_or(0, |pod| bytes(&pod));
    }
}

fn key(pod: &PodItem) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

/// What a pod takes in memory, with its key, and with what is worked out from it.
fn bytes(item: &PodItem) -> usize {
    let identity = weight_of_identity(item) + weight([item.namespace(), item.name()]);
    let Some(pod) = item.ok() else {
        return identity;
    };
    let labels = pod
        .labels
        .iter()
        .flat_map(|(key, value)| [key.as_str(), value]);
    let controller = pod
        .controller
        .iter()
        .flat_map(|it| [it.api_version.as_str(), &it.kind, &it.name]);
    identity + weight(labels) + weight(controller) + weight(pod.node.as_deref())
}

#[cfg(test)]
mod tests;
