//! Builds a JSON patch that the API server takes, against an object as it was read.

use std::collections::BTreeSet;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::{add, remove, test};
use crate::names;

/// Collects the operations; parents that are absent are tested to be so, and made once.
pub(super) struct Builder<'a> {
    observed: &'a Value,
    tests: Vec<PatchOperation>,
    sets: Vec<PatchOperation>,
    tested: BTreeSet<String>,
    made: BTreeSet<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(observed: &'a Value) -> Self {
        Self { observed, tests: vec![], sets: vec![], tested: BTreeSet::new(), made: BTreeSet::new() }
    }

    /// `test`: null stands for absent, which the server takes as long as the parent is there.
    pub(super) fn test(&mut self, path: &str, value: Value) {
        let (path, value) = match self.absent_ancestor(path) {
            Some(ancestor) if value.is_null() => (ancestor, Value::Null),
            _ => (path.to_owned(), value),
        };
        if self.tested.insert(path.clone()) {
            self.tests.push(test(&path, value));
        }
    }

    /// `test` that what stands there is what was read.
    pub(super) fn test_as_read(&mut self, path: &str) {
        self.test(path, self.observed.pointer(path).cloned().unwrap_or(Value::Null));
    }

    /// `add` (which replaces a member that exists), or `remove` for null.
    pub(super) fn set(&mut self, path: &str, value: Value) {
        if value.is_null() {
            if self.observed.pointer(path).is_some_and(|found| !found.is_null()) {
                self.sets.push(remove(path));
            }
            return;
        }
        while let Some(ancestor) = self.absent_ancestor(path).filter(|ancestor| ancestor != path) {
            if self.tested.insert(ancestor.clone()) {
                self.tests.push(test(&ancestor, Value::Null));
            }
            self.sets.push(add(&ancestor, json!({})));
            self.made.insert(ancestor);
        }
        self.sets.push(add(path, value));
    }

    pub(super) fn finish(self) -> Patch {
        Patch(self.tests.into_iter().chain(self.sets).collect())
    }

    /// The topmost pointer on the way to `path` (itself included) that neither was read nor is made by this patch.
    fn absent_ancestor(&self, path: &str) -> Option<String> {
        path.match_indices('/')
            .map(|(at, _)| &path[..at])
            .skip(1)
            .chain([path])
            .find(|prefix| {
                !self.made.contains(*prefix) && self.observed.pointer(prefix).is_none_or(Value::is_null)
            })
            .map(str::to_owned)
    }
}

/// The node's taints as read, with or without ours; null when none is left.
pub(super) fn taints(observed: &Value, ours: bool) -> Value {
    let mut taints: Vec<Value> =
        observed.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    taints.retain(|taint| taint["key"] != names::UPDATING_TAINT);
    if ours {
        taints.push(json!({"key": names::UPDATING_TAINT, "effect": "NoSchedule"}));
    }
    if taints.is_empty() { Value::Null } else { Value::Array(taints) }
}
