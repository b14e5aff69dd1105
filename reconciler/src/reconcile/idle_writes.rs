//! Writes that were made and changed nothing: the same write is not made again until its object changes. Pure.
//!
//! It may be that somebody else holds a field that our write should remove, or that a webhook puts back what we changed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::requests::Key;

/// The last write of each key that changed nothing: the object's `resourceVersion`, and the patch.
#[derive(Debug, Default)]
pub(super) struct IdleWrites(BTreeMap<Key, (u64, Value)>);

impl IdleWrites {
    /// A patch was made of an object that was in version `seen`, and is in version `written` now. Returns whether that
    /// changed nothing.
    pub(super) fn written(
        &mut self,
        key: &Key,
        seen: Option<u64>,
        written: Option<u64>,
        patch: impl FnOnce() -> Option<Value>,
    ) -> bool {
        if let Some(version) = seen.filter(|_| seen == written)
            && let Some(patch) = patch()
        {
            self.0.insert(key.clone(), (version, patch));
            return true;
        }
        self.0.remove(key);
        false
    }

    /// Would this patch of an object in this version change nothing once more?
    pub(super) fn would_repeat(
        &self,
        key: &Key,
        seen: Option<u64>,
        patch: impl FnOnce() -> Option<Value>,
    ) -> bool {
        self.0
            .get(key)
            .is_some_and(|(version, last)| seen == Some(*version) && patch().as_ref() == Some(last))
    }

    /// Forgets keys that are not known any more.
    pub(super) fn forget_unless(&mut self, mut known: impl FnMut(&Key) -> bool) {
        self.0.retain(|key, _| known(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_changed_nothing_waits_for_a_change() {
        let key = Key::FleetStatus;
        let (one, other) = (|| Some(json!({"limit": 1})), || Some(json!({"limit": 2})));
        let mut idle = IdleWrites::default();
        assert!(!idle.written(&key, Some(5), Some(6), one));
        assert!(!idle.would_repeat(&key, Some(6), one));
        assert!(idle.written(&key, Some(6), Some(6), one));
        assert!(idle.would_repeat(&key, Some(6), one));
        assert!(!idle.would_repeat(&key, Some(7), one), "the object has changed");
        assert!(!idle.would_repeat(&key, Some(6), other), "something else is wanted");
        assert!(!idle.would_repeat(&Key::Ledger, Some(6), one));
        assert!(!idle.written(&key, Some(6), Some(7), one));
        assert!(!idle.would_repeat(&key, Some(6), one));
    }

    #[test]
    fn what_has_no_version_or_no_patch_is_no_repetition() {
        let key = Key::Ledger;
        let (some, none) = (|| Some(json!([])), || None);
        let mut idle = IdleWrites::default();
        for (seen, written) in [(None, None), (Some(1), None)] {
            assert!(!idle.written(&key, seen, written, some));
            assert!(!idle.would_repeat(&key, seen, some));
        }
        assert!(!idle.written(&key, Some(1), Some(1), none));
        assert!(!idle.would_repeat(&key, Some(1), none));
    }
}
