//! Which values of labels get series of their own: agents, kubelets and people choose versions, pools and gates, so there
//! may be any number of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::VERSION_MAX;
use brupop_api::names::DEFAULT_POOL;
use brupop_api::printable::printable;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::MAX_POOLS;

/// The value for all that have no series of their own.
const OTHER: &str = "other";

/// The value of a label. A version is no longer than this, nor is a word that says why.
pub(super) fn label(text: &str) -> String {
    printable(text, VERSION_MAX).into_owned()
}

/// The values that are told apart. All others are [`OTHER`].
pub(super) struct Named<'n>(BTreeSet<&'n str>);

impl<'n> Named<'n> {
    /// The `most` frequent of these names, each with its number; among equals those that come first.
    pub(super) fn most_frequent(
        names: impl IntoIterator<Item = (&'n str, i64)>,
        most: usize,
    ) -> Self {
        let mut counts = BTreeMap::<&str, i64>::new();
        for (name, number) in names {
            *counts.entry(name).or_default() += number;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        Self(
            counts
                .into_iter()
                .take(most)
                .map(|(name, _)| name)
                .collect(),
        )
    }

    /// The first `most` of these names, sorted.
    pub(super) fn first(names: impl IntoIterator<Item = &'n str>, most: usize) -> Self {
        let names: BTreeSet<_> = names.into_iter().collect();
        Self(names.into_iter().take(most).collect())
    }

    /// And this one.
    pub(super) fn and(mut self, name: &'n str) -> Self {
        self.0.insert(name);
        self
    }

    /// The label's value for this name.
    pub(super) fn label(&self, name: &str) -> String {
        if self.0.contains(name) {
            label(name)
        } else {
            OTHER.to_owned()
        }
    }
}

/// Counts by name, as the value of a label. The `most` frequent names are told apart.
pub(super) fn tally<'n>(
    names: impl Iterator<Item = &'n str>,
    most: usize,
) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::<&str, i64>::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let told_apart = Named::most_frequent(counts.iter().map(|(name, count)| (*name, *count)), most);
    let mut labels = BTreeMap::new();
    for (name, count) in counts {
        *labels.entry(told_apart.label(name)).or_default() += count;
    }
    labels
}

/// Counts by pool. The first [`MAX_POOLS`] pools that this process sees have series of their own; all others are [`OTHER`]. A
/// series begins with zero, because `increase` does not see a first event, and never ends.
#[derive(Debug)]
pub(super) struct CountsByPool(BTreeMap<String, u64>);

impl Default for CountsByPool {
    fn default() -> Self {
        Self(
            [DEFAULT_POOL, OTHER]
                .map(|pool| (pool.to_owned(), 0))
                .into(),
        )
    }
}

impl CountsByPool {
    /// Begins the series of these pools, as far as there is room.
    pub(super) fn see<'p>(&mut self, pools: impl Iterator<Item = &'p str>) {
        for pool in pools {
            if !self.0.contains_key(pool) && self.0.len() < MAX_POOLS {
                self.0.insert(label(pool), 0);
            }
        }
    }

    /// Counts one of this pool.
    pub(super) fn count(&mut self, pool: &str) {
        let pool = if self.0.contains_key(pool) {
            label(pool)
        } else {
            OTHER.to_owned()
        };
        *self.0.entry(pool).or_default() += 1;
    }

    pub(super) fn series(&self) -> Family<[(&'static str, String); 1], Counter> {
        let family = Family::<[(&'static str, String); 1], Counter>::default();
        for (pool, count) in &self.0 {
            family
                .get_or_create_owned(&[("pool", pool.clone())])
                .inc_by(*count);
        }
        family
    }
}
