//! Times that stand in objects. All are read here.
//!
//! A kubelet, a person or an earlier leader may have written a time that has not come yet. It counts as the moment at which this
//! leader first saw it. Otherwise its deadline would come as much later, or never if it counted as now in each pass.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The times that had not come when this leader first saw them, and when that was, by object and field.
#[derive(Clone, Debug, Default)]
pub struct Ahead(BTreeMap<Timestamp, BTreeMap<[String; 2], Timestamp>>);

impl Ahead {
    /// The set without any time that is ahead.
    pub const NONE: &Self = &Self(BTreeMap::new());

    /// Returns since when a time counts that stands in a field of an object; `of` is the object's UID, and the field.
    pub fn since(&self, of: [&str; 2], time: Timestamp, now: Timestamp) -> Timestamp {
        let seen = self
            .0
            .get(&time)
            .and_then(|seen| seen.get(&of.map(str::to_owned)));
        seen.copied().unwrap_or(time.min(now))
    }

    /// Returns since when the time in this text counts, if it can be read.
    pub fn read(&self, of: [&str; 2], text: Option<&str>, now: Timestamp) -> Option<Timestamp> {
        Some(self.since(of, read(text)?, now))
    }

    /// Notes that this time was first seen then.
    pub(crate) fn note(&mut self, of: [&str; 2], time: Timestamp, seen: Timestamp) {
        self.0
            .entry(time)
            .or_default()
            .insert(of.map(str::to_owned), seen);
    }
}

/// Returns the time in this text, if it can be read.
pub(crate) fn read(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}
