//! What pools wait for (`spec.dependsOn`), as the ledger notes which pools are done with which version.

use brupop_api::fleet::BottlerocketFleetStatus;

use crate::deadlines::Clock;
use crate::facts::{FirstPool, FirstPoolStanding, PoolFacts};

/// Works out for each version which pool has to be done with it first.
pub fn apply<'a>(
    pools: &mut [PoolFacts<'a>],
    ledger: &'a BottlerocketFleetStatus,
    clock: &mut Clock<'_>,
) {
    for pool in pools {
        let Some(rules) = pool.rules.filter(|rules| !rules.depends_on.is_empty()) else {
            continue;
        };
        for done in &ledger.done_pools {
            let version = done.version.as_str();
            if pool.waits_for.contains_key(version) {
                continue;
            }
            let mut first = None;
            for (name, soak) in &rules.depends_on {
                let mut all = ledger.done_pools.iter();
                let done = all.find(|done| done.pool == *name && done.version == version);
                let since = done.and_then(|done| clock.read([name, version], Some(&done.since)));
                match since.and_then(|since| since.checked_add(*soak).ok()) {
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

#[cfg(test)]
mod tests;
