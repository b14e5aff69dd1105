//! Several maps read in the order of their keys at the same time: a look-up for each of thousands of names costs more.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

/// A map that is asked for names in ascending order.
pub(super) struct SideBySide<'a, V> {
    entries: Peekable<btree_map::Iter<'a, String, V>>,
}

impl<'a, V> SideBySide<'a, V> {
    pub(super) fn of(map: &'a BTreeMap<String, V>) -> Self {
        Self { entries: map.iter().peekable() }
    }

    /// The value of this name, which must not be less than the one before.
    pub(super) fn at(&mut self, name: &str) -> Option<&'a V> {
        while self.entries.next_if(|(key, _)| key.as_str() < name).is_some() {}
        self.entries.peek().filter(|(key, _)| key.as_str() == name).map(|(_, value)| *value)
    }
}

/// The names of both, in order, each once.
pub(super) fn union<'a>(
    left: impl Iterator<Item = &'a str>,
    right: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(a), Some(b)) if a == b => {
            right.next();
            left.next()
        }
        (Some(a), Some(b)) if a > b => right.next(),
        (Some(_), _) => left.next(),
        (None, _) => right.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(keys: &[String]) -> BTreeMap<String, usize> {
        keys.iter().cloned().zip(0..).collect()
    }

    proptest! {
        #[test]
        fn it_finds_what_look_ups_find(
            left in prop::collection::vec("[ab]{0,3}", 0..12),
            right in prop::collection::vec("[ab]{0,3}", 0..12),
        ) {
            let (left, right) = (map(&left), map(&right));
            let names: Vec<&str> =
                union(left.keys().map(String::as_str), right.keys().map(String::as_str)).collect();
            let mut expected: Vec<&str> = left.keys().chain(right.keys()).map(String::as_str).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(&names, &expected);
            let (mut in_left, mut in_right) = (SideBySide::of(&left), SideBySide::of(&right));
            for name in names {
                prop_assert_eq!((in_left.at(name), in_right.at(name)), (left.get(name), right.get(name)));
            }
        }
    }
}
