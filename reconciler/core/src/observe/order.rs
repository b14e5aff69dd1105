//! What pools wait for (`spec.dependsOn`), as the ledger notes which pools are done with which version.

use std::collections::BTreeMap;

use brupop_api::fleet::{Done, VersionRecord};
use jiff::{SignedDuration, Timestamp};

use crate::deadlines::Clock;
use crate::facts::{FirstPool, FirstPoolStanding, PoolFacts};

/// Works out for each version which pool has to be done with it first.
pub fn apply<'a>(
    pools: &mut [PoolFacts<'a>],
    versions: Option<&'a BTreeMap<String, VersionRecord>>,
    clock: &mut Clock<'_>,
) {
    for pool in pools {
        let Some(rules) = pool.rules.filter(|rules| !rules.depends_on.is_empty()) else {
            continue;
        };
        for (version, record) in versions.into_iter().flatten() {
            let mut first = None;
            for (name, soak) in &rules.depends_on {
                match over([name, version], record.done_pools.get(name), *soak, clock) {
                    Some(at) if at <= clock.now => {}
                    due => {
                        let standing =
                            due.map_or(FirstPoolStanding::NotDone, FirstPoolStanding::Soaking);
                        first = first.or(Some(FirstPool {
                            pool: name,
                            standing,
                        }));
                        clock.wake_at(due);
                    }
                }
            }
            pool.waits_for.insert(version, first);
        }
    }
}

/// Returns when a pool has been done with a version (`of`) for so long; `None` if it is not done.
fn over(
    of: [&str; 2],
    done: Option<&Done>,
    soak: SignedDuration,
    clock: &mut Clock<'_>,
) -> Option<Timestamp> {
    let done = done?;
    // Whatever is noted was done for a moment at least.
    if i64::try_from(done.longest_seconds).ok()? >= soak.as_secs() {
        return Some(Timestamp::MIN);
    }
    clock
        .read(of, done.since.as_deref())?
        .checked_add(soak)
        .ok()
}

#[cfg(test)]
mod tests;
