//! Reads several maps in the order of their keys at the same time. For thousands of names this costs less than
//! look-ups.

use std::cmp::Ordering;
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

    /// The value of this name, which must be greater than the one before.
    pub(super) fn at(&mut self, name: &str) -> Option<&'a V> {
        while let Some((key, value)) = self.entries.peek() {
            match key.as_str().cmp(name) {
                Ordering::Less => drop(self.entries.next()),
                Ordering::Equal => return Some(*value),
                Ordering::Greater => return None,
            }
        }
        None
    }
}

/// The names in either map, in order and each once, with both maps' values of that name.
pub(super) fn union<'a, L, R>(
    left: &'a BTreeMap<String, L>,
    right: &'a BTreeMap<String, R>,
) -> impl Iterator<Item = (&'a str, Option<&'a L>, Option<&'a R>)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let left = if order.is_le() { left.next() } else { None };
        let right = if order.is_ge() { right.next() } else { None };
        let name = left.map(|(name, _)| name).or(right.map(|(name, _)| name))?;
        Some((name.as_str(), left.map(|(_, value)| value), right.map(|(_, value)| value)))
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
            let names: Vec<&str> = union(&left, &right).map(|(name, ..)| name).collect();
            let mut expected: Vec<&str> = left.keys().chain(right.keys()).map(String::as_str).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(&names, &expected);
            let (mut in_left, mut in_right) = (SideBySide::of(&left), SideBySide::of(&right));
            for (name, from_left, from_right) in union(&left, &right) {
                let found = (left.get(name), right.get(name));
                prop_assert_eq!((from_left, from_right), found);
                prop_assert_eq!((in_left.at(name), in_right.at(name)), found);
            }
        }
    }
}
