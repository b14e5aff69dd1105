//! The budgets of all namespaces.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::Item;
use brupop_api::item::Unreadable;

use super::{weight, weight_of_identity};
use crate::drain;
use crate::objects::Budget;

/// Most bytes of the budgets of one namespace, as they are in memory: some 1,000 of usual size.
const OF_NAMESPACE_MAX: usize = 1 << 20;
/// Most bytes of the budgets of all namespaces.
const OF_ALL_MAX: usize = 16 << 20;
/// What a text of a selector takes in memory beside its bytes, and beside that what its requirement takes.
const REQUIREMENT: usize = 96;

/// All budgets, by namespace.
#[derive(Debug, Default)]
pub struct KeptBudgets {
    now: Namespaces,
    /// Budgets of a list that is not complete yet.
    listed: Namespaces,
    revision: u64,
}

#[derive(Debug, Default)]
struct Namespaces {
    all: BTreeMap<String, OfNamespace>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct OfNamespace {
    budgets: BTreeMap<String, Arc<Item<Budget>>>,
    bytes: usize,
    /// There are too many: one that cannot be read stands for all.
    too_many: bool,
}

impl KeptBudgets {
    /// They are being listed.
    pub fn list_begins(&mut self) {
        self.listed = Namespaces::default();
    }

    /// The list has this budget.
    pub fn listed(&mut self, budget: Item<Budget>) {
        self.listed.put(budget);
    }

    /// The list is complete.
    pub fn list_ends(&mut self) {
        self.now = std::mem::take(&mut self.listed);
        self.revision += 1;
    }

    /// This budget is there now, perhaps in place of an earlier version. Returns whether that matters to a drain.
    pub fn put(&mut self, budget: Item<Budget>) -> bool {
        self.revision += 1;
        let before = self.now.get(budget.namespace(), budget.name());
        let matters = before.is_none_or(|before| drain::matters(before, &budget));
        self.now.put(budget);
        matters
    }

    /// This budget is gone.
    pub fn remove(&mut self, budget: &Item<Budget>) {
        self.revision += 1;
        self.now.remove(budget.namespace(), budget.name());
    }

    /// A number that rises when they change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All of them. One that cannot be read stands for those of a namespace with too many.
    pub fn all(&self) -> Vec<Arc<Item<Budget>>> {
        self.now
            .all
            .values()
            .flat_map(|of| of.budgets.values())
            .cloned()
            .collect()
    }

    /// Whether a namespace has too many. What becomes of them is learnt from a new list only.
    pub fn has_too_many(&self) -> bool {
        self.now.all.values().any(|of| of.too_many)
    }
}

impl Namespaces {
    fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Item<Budget>>> {
        self.all.get(namespace)?.budgets.get(name)
    }

    fn put(&mut self, budget: Item<Budget>) {
        let namespace = budget.namespace().to_owned();
        let of = self.all.entry(namespace.clone()).or_default();
        if of.too_many {
            return;
        }
        self.bytes -= of.remove(budget.name());
        self.bytes += of.insert(budget);
        if of.bytes > OF_NAMESPACE_MAX {
            self.give_up(&namespace);
        }
        while self.bytes > OF_ALL_MAX {
            let readable = self.all.iter().filter(|(_, of)| !of.too_many);
            let most = readable
                .max_by_key(|(name, of)| (of.bytes, Reverse(*name)))
                .map(|(name, _)| name.clone());
            match most {
                Some(most) => self.give_up(&most),
                // Then not even that is kept of this one. The answer to an eviction says what its budgets allow.
                None => return self.forget(&namespace),
            }
        }
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(of) = self.all.get_mut(namespace).filter(|of| !of.too_many) {
            self.bytes -= of.remove(name);
            if of.budgets.is_empty() {
                self.forget(namespace);
            }
        }
    }

    fn forget(&mut self, namespace: &str) {
        self.bytes -= self.all.remove(namespace).map_or(0, |of| of.bytes);
    }

    /// Keeps nothing of this namespace but that it has too many.
    fn give_up(&mut self, namespace: &str) {
        if let Some(of) = self.all.get_mut(namespace)
            && let Some((_, first)) = of.budgets.pop_first()
        {
            self.bytes -= of.bytes;
            let metadata = first.metadata.clone();
            *of = OfNamespace {
                too_many: true,
                ..OfNamespace::default()
            };
            self.bytes += of.insert(Item {
                metadata,
                body: Err(Unreadable::TooMany),
            });
        }
    }
}

impl OfNamespace {
    /// Returns how much it takes.
    fn insert(&mut self, mut budget: Item<Budget>) -> usize {
        budget.metadata.resource_version = None;
        let bytes = bytes(&budget);
        self.bytes += bytes;
        self.budgets
            .insert(budget.name().to_owned(), Arc::new(budget));
        bytes
    }

    /// Returns how much it took.
    fn remove(&mut self, name: &str) -> usize {
        let bytes = self.budgets.remove(name).map_or(0, |budget| bytes(&budget));
        self.bytes -= bytes;
        bytes
    }
}

/// What a budget takes in memory, with its key.
fn bytes(budget: &Item<Budget>) -> usize {
    let identity = weight_of_identity(budget) + weight([budget.namespace(), budget.name()]);
    let Some((of, selector)) = budget.ok().and_then(|of| Some((of, of.selector.as_ref()?))) else {
        return identity;
    };
    identity + of.requirements * REQUIREMENT + selector.to_string().len()
}

#[cfg(test)]
mod tests;
