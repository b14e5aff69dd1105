//! Which labels and annotations are kept of an object, and how much of them.

use std::collections::BTreeMap;
use std::fmt;

use brupop_api::item::Unreadable;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// Labels or annotations that were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    entries: Option<BTreeMap<String, String>>,
    is_complete: bool,
    /// The number of all entries, also of those that were not kept.
    pub(super) count: usize,
}

/// What is kept.
#[derive(Clone, Copy)]
pub(super) struct Keep {
    /// The keys; `None` = all.
    pub(super) keys: Option<&'static [&'static str]>,
    /// The most bytes of keys and values.
    pub(super) most_bytes: usize,
}

impl Kept {
    /// The entries; `None` if the object has no such map.
    ///
    /// # Errors
    /// There were more than were to be kept. `what` says what they are, in the plural.
    pub(super) fn complete(
        self,
        what: &'static str,
    ) -> Result<Option<BTreeMap<String, String>>, Unreadable> {
        if self.entries.is_none() || self.is_complete {
            Ok(self.entries)
        } else {
            Err(Unreadable::TooLong(what))
        }
    }
}

impl Keep {
    /// Reads a map; null counts as none.
    pub(super) fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Kept, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Keep {
    type Value = Kept;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_none<E>(self) -> Result<Kept, E> {
        Ok(Kept::default())
    }

    fn visit_unit<E>(self) -> Result<Kept, E> {
        Ok(Kept::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kept, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kept, A::Error> {
        let (mut entries, mut count, mut bytes) = (BTreeMap::new(), 0, 0);
        while let Some(key) = map.next_key::<String>()? {
            count += 1;
            if self.keys.is_some_and(|keys| !keys.contains(&key.as_str())) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<String>()?;
            bytes += key.len() + value.len();
            if bytes <= self.most_bytes {
                entries.insert(key, value);
            }
        }
        Ok(Kept {
            entries: Some(entries),
            is_complete: bytes <= self.most_bytes,
            count,
        })
    }
}
