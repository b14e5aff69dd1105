//! Pods and budgets of other people as they are kept, within bounds, one by one and in sum: anybody with a namespace can make any
//! number of them, and put a pod on any node. Pure.
//!
//! The bounds of the sum are so wide that each node, or namespace, has its share of them, and those that have most give way
//! first. So nobody's objects count against a node, or a namespace, in which he has none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brupop_api::Item;
use brupop_api::item::Unreadable;

use crate::objects::{Budget, Pod};

/// The key of the object that cannot be read and stands for all of a group with too many. No object has it.
const TOO_MANY: &str = "";
/// Memory of a text beside its bytes.
const TEXT: usize = 32;
/// Memory of a text of a selector beside its bytes, with its share of the requirement.
const REQUIREMENT: usize = 96;

pub trait Foreign: Default {
    /// Most bytes of one group, as they are in memory.
    const OF_GROUP_MAX: usize;
    /// Most bytes of all groups.
    const OF_ALL_MAX: usize;

    /// Returns what it takes in memory beside its identity.
    fn weight(&self) -> usize;
}

/// Pods are grouped by the nodes that are watched.
impl Foreign for Pod {
    /// Some 2,000 of usual size. Kubelets run 110 unless they are told otherwise.
    const OF_GROUP_MAX: usize = 2 << 20;
    /// If as many nodes are watched as may be, each has its share for 110 pods with five long labels.
    const OF_ALL_MAX: usize = 80 << 20;

    fn weight(&self) -> usize {
        let labels = self.labels.iter().flat_map(|(key, value)| [key, value]);
        let controller = self.controller.iter();
        let controller = controller.flat_map(|it| [&it.api_version, &it.kind, &it.name]);
        weight(labels) + weight(controller) + weight(&self.node)
    }
}

/// Budgets are grouped by namespace.
impl Foreign for Budget {
    /// Some 1,000 of usual size.
    const OF_GROUP_MAX: usize = 1 << 20;
    const OF_ALL_MAX: usize = 16 << 20;

    fn weight(&self) -> usize {
        let selector = self.selector.as_ref();
        selector.map_or(0, |it| {
            self.requirements * REQUIREMENT + it.to_string().len()
        })
    }
}

#[derive(Debug, Default)]
pub struct Kept<T> {
    groups: BTreeMap<String, Group<T>>,
    bytes: usize,
    revision: u64,
}

#[derive(Debug, Default)]
struct Group<T> {
    /// The objects, by namespace and by name.
    items: BTreeMap<String, Arc<Item<T>>>,
    /// Objects that an incomplete list has not named yet.
    unlisted: BTreeSet<String>,
    bytes: usize,
    /// There are too many: nothing more is kept before they are listed again.
    is_given_up: bool,
    revision: u64,
}

impl<T: Foreign> Kept<T> {
    /// Keeps these groups, and no others.
    pub fn retain<'g>(&mut self, groups: impl IntoIterator<Item = &'g str>) {
        let mut before = std::mem::take(&mut self.groups);
        for name in groups {
            let group = before.remove(name).unwrap_or_default();
            self.groups.insert(name.to_owned(), group);
        }
        self.bytes = self.groups.values().map(|group| group.bytes).sum();
    }

    /// A list of this group begins; `None` stands for all. What was there stays until the list ends.
    pub fn begin_list(&mut self, group: Option<&str>) {
        let groups = self.groups.iter_mut();
        for (_, it) in groups.filter(|(name, _)| group.is_none_or(|group| *name == group)) {
            it.unlisted = it.items.keys().cloned().collect();
            it.is_given_up = false;
        }
    }

    /// The list is complete: what it has not named is gone.
    pub fn end_list(&mut self, group: Option<&str>) {
        self.revision += 1;
        for (name, it) in &mut self.groups {
            if group.is_none_or(|group| name == group) {
                for key in std::mem::take(&mut it.unlisted) {
                    self.bytes -= it.remove(&key);
                }
                it.revision = self.revision;
            }
        }
    }

    /// This object is there now, perhaps in place of an earlier version.
    pub fn put(&mut self, group: &str, mut item: Item<T>) {
        item.metadata.resource_version = None;
        let it = self.changed(group);
        let key = key(&item);
        it.unlisted.remove(&key);
        if it.is_given_up {
            return;
        }
        let (added, removed) = (bytes(&item), it.remove(&key));
        it.items.insert(key, Arc::new(item));
        it.bytes += added;
        let is_over = it.bytes > T::OF_GROUP_MAX;
        self.bytes = self.bytes + added - removed;
        if is_over {
            self.give_up(group);
        }
        while self.bytes > T::OF_ALL_MAX {
            let readable = self
                .groups
                .iter()
                .filter(|(_, it)| !it.is_given_up && it.bytes > 0);
            let most = readable.max_by_key(|(name, it)| (it.bytes, Reverse(*name)));
            if let Some(most) = most.map(|(name, _)| name.clone()) {
                self.give_up(&most);
            } else {
                // This one is not even kept as a stand-in. The answer to an eviction says what its budgets allow.
                self.bytes -= self.groups.remove(group).map_or(0, |it| it.bytes);
                return;
            }
        }
    }

    pub fn remove(&mut self, group: &str, item: &Item<T>) {
        let it = self.changed(group);
        if !it.is_given_up {
            let removed = it.remove(&key(item));
            self.bytes -= removed;
        }
    }

    /// Whether this group is kept.
    pub fn has(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Returns the object as it was before.
    pub fn get(&self, group: &str, item: &Item<T>) -> Option<&Item<T>> {
        self.groups
            .get(group)?
            .items
            .get(&key(item))
            .map(|item| &**item)
    }

    /// The objects of this group.
    pub fn of(&self, group: &str) -> Vec<Arc<Item<T>>> {
        let group = self.groups.get(group);
        group.map_or_else(Vec::new, |it| it.items.values().cloned().collect())
    }

    pub fn all(&self) -> Vec<Arc<Item<T>>> {
        let items = self.groups.values().flat_map(|it| it.items.values());
        items.cloned().collect()
    }

    /// Bumped when any object changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Bumped when an object of this group changes; `None` if there are too many in it.
    pub fn revision_of(&self, group: &str) -> Option<u64> {
        let group = self.groups.get(group)?;
        (!group.has_too_many()).then_some(group.revision)
    }

    /// The groups with too many objects. What becomes of them is learnt from a new list only.
    pub fn too_many(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.iter().filter(|(_, it)| it.has_too_many());
        groups.map(|(name, _)| name.as_str())
    }

    fn changed(&mut self, group: &str) -> &mut Group<T> {
        self.revision += 1;
        let it = self.groups.entry(group.to_owned()).or_default();
        it.revision = self.revision;
        it
    }

    /// Keeps nothing of this group but that it has too many.
    fn give_up(&mut self, group: &str) {
        if let Some(it) = self.groups.get_mut(group)
            && let Some((_, first)) = it.items.pop_first()
        {
            let stands_for_all = Item {
                metadata: first.metadata.clone(),
                body: Err(Unreadable::TooMany),
            };
            let bytes = bytes(&stands_for_all);
            self.bytes = self.bytes + bytes - it.bytes;
            *it = Group {
                items: BTreeMap::from([(TOO_MANY.to_owned(), Arc::new(stands_for_all))]),
                bytes,
                is_given_up: true,
                revision: it.revision,
                ..Group::default()
            };
        }
    }
}

impl<T: Foreign> Group<T> {
    /// Whether there are too many, or were in the last list that is complete.
    fn has_too_many(&self) -> bool {
        self.items.contains_key(TOO_MANY)
    }

    /// Returns how many bytes it took.
    fn remove(&mut self, key: &str) -> usize {
        let bytes = self.items.remove(key).map_or(0, |item| bytes(&item));
        self.bytes -= bytes;
        bytes
    }
}

fn key<T>(item: &Item<T>) -> String {
    format!("{}/{}", item.namespace(), item.name())
}

/// Returns what an object takes in memory, with its key, and with what is worked out from it.
fn bytes<T: Foreign>(item: &Item<T>) -> usize {
    let identity = [item.namespace(), item.name(), item.uid()];
    let (identity, key) = (weight(identity), weight([item.namespace(), item.name()]));
    size_of::<Item<T>>() + identity + key + item.ok().map_or(0, T::weight)
}

/// Returns what these texts take in memory.
fn weight<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> usize {
    let texts = texts.into_iter();
    texts.map(|text| TEXT + text.as_ref().len()).sum()
}

#[cfg(test)]
mod tests;
