//! What pools wait for (`spec.after`), as the ledger notes which pools are done with which version.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::DONE_POOLS_MAX;
use brupop_api::fleet::{Done, VersionRecord};
use jiff::{SignedDuration, Timestamp};

use crate::cluster::WatchedPool;
use crate::facts::{FirstPool, FirstPoolStanding, PoolFacts};
use crate::times;

/// Why pools that wait for each other are not understood.
const CIRCLE: &str = "spec.after: these pools wait for each other in a circle, so none of them would ever begin; take one \
                      of them out";

/// Why a pool is not understood that comes after one of too many. The number is [`DONE_POOLS_MAX`].
const TOO_MANY: &str = "spec.after: more than 16 pools go before others, and the ledger has room for the first 16 by name; \
                        let one pool of them go first for several";

/// The pools whose `spec.after` is invalid, and why.
pub(crate) fn misplaced(pools: &BTreeMap<String, WatchedPool>) -> BTreeMap<&str, &'static str> {
    let after = |name: &str| {
        let rules = pools.get(name).and_then(|pool| pool.item.ok()?.rules.as_ref().ok());
        rules.map_or(&[][..], |rules| &rules.after).iter().map(|(pool, _)| pool.as_str())
    };
    let known: BTreeSet<&str> = pools.keys().flat_map(|name| after(name)).collect();
    let known: BTreeSet<&str> = known.into_iter().take(DONE_POOLS_MAX).collect();
    // Who waits for itself goes before another one. Those that are too many are said to be so.
    let waits_for_itself = |name: &str| {
        let mut open: Vec<_> = if known.contains(name) { after(name).collect() } else { vec![] };
        let mut seen = BTreeSet::new();
        while let Some(next) = open.pop() {
            if next == name {
                return true;
            }
            if known.contains(next) && seen.insert(next) {
                open.extend(after(next));
            }
        }
        false
    };
    let why = |name: &str| {
        let too_many = after(name).any(|pool| !known.contains(pool)).then_some(TOO_MANY);
        if waits_for_itself(name) { Some(CIRCLE) } else { too_many }
    };
    pools.keys().filter_map(|name| Some((name.as_str(), why(name)?))).collect()
}

/// Works out for each version which pool has to be done with it first. Returns when the clock alone changes that.
pub fn apply<'a>(
    pools: &mut [PoolFacts<'a>],
    versions: Option<&'a BTreeMap<String, VersionRecord>>,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut next: Option<Timestamp> = None;
    for pool in pools {
        let Some(rules) = pool.rules.filter(|rules| !rules.after.is_empty()) else { continue };
        for (version, record) in versions.into_iter().flatten() {
            let mut first = None;
            for (name, soak) in &rules.after {
                match over(record.done_pools.get(name), *soak, now) {
                    Some(at) if at <= now => {}
                    due => {
                        let standing = due.map_or(FirstPoolStanding::NotDone, FirstPoolStanding::Soaking);
                        first = first.or(Some(FirstPool { pool: name, standing }));
                        next = [next, due].into_iter().flatten().min();
                    }
                }
            }
            pool.waits_for.insert(version, first);
        }
    }
    next
}

/// When a pool has been done for so long; `None` if it is not done.
fn over(done: Option<&Done>, soak: SignedDuration, now: Timestamp) -> Option<Timestamp> {
    let done = done?;
    // Whatever is noted was done for a moment at least.
    if i64::try_from(done.longest_seconds).ok()? >= soak.as_secs() {
        return Some(Timestamp::MIN);
    }
    times::past(times::read(done.since.as_deref())?, now).checked_add(soak).ok()
}

#[cfg(test)]
mod tests;
