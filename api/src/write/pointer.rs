//! Builds a JSON patch that the API server takes, against an object as it was read.

use std::collections::BTreeSet;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::{add, remove, test};

/// Collects the operations; parents that are absent are tested to be so, and made once.
pub(super) struct Builder<'a> {
    observed: &'a Value,
    tests: Vec<PatchOperation>,
    sets: Vec<PatchOperation>,
    made: BTreeSet<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(observed: &'a Value) -> Self {
        Self {
            observed,
            tests: vec![],
            sets: vec![],
            made: BTreeSet::new(),
        }
    }

    /// `test`: null stands for absent, which the server takes as long as the parent is there.
    pub(super) fn test(&mut self, path: &str, value: Value) {
        let path = self
            .absent_ancestor(path)
            .filter(|_| value.is_null())
            .unwrap_or_else(|| path.to_owned());
        let operation = test(&path, value);
        if !self.tests.contains(&operation) {
            self.tests.push(operation);
        }
    }

    /// `test` that what stands there is what was read.
    pub(super) fn test_as_read(&mut self, path: &str) {
        self.test(
            path,
            self.observed.pointer(path).cloned().unwrap_or(Value::Null),
        );
    }

    /// `add` (which replaces a member that exists), or `remove` for null; of what is absent, a test that it still is.
    pub(super) fn set(&mut self, path: &str, value: Value) {
        if value.is_null() {
            if self
                .observed
                .pointer(path)
                .is_some_and(|found| !found.is_null())
            {
                self.sets.push(remove(path));
            } else {
                self.test_absent(path);
            }
            return;
        }
        while let Some(ancestor) = self
            .absent_ancestor(path)
            .filter(|ancestor| ancestor != path)
        {
            self.test_absent(&ancestor);
            self.sets.push(add(&ancestor, json!({})));
            self.made.insert(ancestor);
        }
        self.sets.push(add(path, value));
    }

    pub(super) fn finish(self) -> Patch {
        Patch(self.tests.into_iter().chain(self.sets).collect())
    }

    /// `test` that nothing stands there; but below a parent that this patch makes nothing can, nor be tested.
    fn test_absent(&mut self, path: &str) {
        let below = |made: &String| {
            path.strip_prefix(made.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        if !self.made.iter().any(below) {
            self.test(path, Value::Null);
        }
    }

    /// The topmost pointer on the way to `path` (itself included) that neither was read nor is made by this patch.
    fn absent_ancestor(&self, path: &str) -> Option<String> {
        path.match_indices('/')
            .map(|(at, _)| &path[..at])
            .skip(1)
            .chain([path])
            .find(|prefix| {
                !self.made.contains(*prefix)
                    && self.observed.pointer(prefix).is_none_or(Value::is_null)
            })
            .map(str::to_owned)
    }
}
