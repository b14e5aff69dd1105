//! Pools that have no place among the others, by `spec.dependsOn`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_api::crds::DONE_POOLS_MAX;

use crate::cluster::WatchedPool;

/// Why pools that wait for each other are not understood; their names follow.
const CIRCLE: &str = "spec.dependsOn: these pools wait for each other, so none of them would ever begin; take one of them out: ";

/// Why a pool is not understood that comes after one of too many. The number is [`DONE_POOLS_MAX`].
const TOO_MANY: &str = "spec.dependsOn: more than 16 pools go before others, and the ledger has room for the first 16 by name; \
                        let one pool of them go first for several";

/// The pools whose `spec.dependsOn` is invalid, and why.
pub(super) fn misplaced(pools: &BTreeMap<String, WatchedPool>) -> BTreeMap<&str, String> {
    let after = |name: &str| {
        let rules = pools.get(name).and_then(WatchedPool::rules);
        rules
            .map_or(&[][..], |rules| &rules.depends_on)
            .iter()
            .map(|(pool, _)| pool.as_str())
    };
    let known: BTreeSet<&str> = pools.keys().flat_map(|name| after(name)).collect();
    let known: BTreeSet<&str> = known.into_iter().take(DONE_POOLS_MAX).collect();
    // The shortest way from a pool back to it. Those that are too many are said to be so.
    let circle = |name: &str| {
        let mut ways = VecDeque::from_iter(known.get(name).map(|name| vec![*name]));
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for next in way.last().into_iter().flat_map(|last| after(last)) {
                let way = [&way[..], &[next]].concat();
                if next == name {
                    return Some(way);
                }
                if known.contains(next) && seen.insert(next) {
                    ways.push_back(way);
                }
            }
        }
        None
    };
    let why = |name: &str| {
        let too_many = || {
            after(name)
                .any(|pool| !known.contains(pool))
                .then(|| TOO_MANY.to_owned())
        };
        circle(name)
            .map(|way| format!("{CIRCLE}{}", way.join(" after ")))
            .or_else(too_many)
    };
    pools
        .keys()
        .filter_map(|name| Some((name.as_str(), why(name)?)))
        .collect()
}

#[cfg(test)]
mod tests;
