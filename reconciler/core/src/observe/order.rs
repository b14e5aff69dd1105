//! What pools wait for (`spec.after`), as the ledger notes which pools are done with which version.

use std::collections::BTreeMap;

use brupop_api::fleet::{Done, VersionRecord};
use jiff::{SignedDuration, Timestamp};

use crate::facts::{FirstPool, FirstPoolStanding, PoolFacts};
use crate::times;

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
