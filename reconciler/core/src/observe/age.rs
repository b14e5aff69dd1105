//! Which versions are too young for pools that let them ripen (`spec.versions.minAge`).

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::deadlines::Clock;
use crate::facts::PoolFacts;
use crate::window::Until;

/// Works out for each version whether it is old enough for each pool.
pub(crate) fn apply<'a>(
    pools: &mut [PoolFacts<'a>],
    seen: Option<&'a BTreeMap<String, String>>,
    clock: &mut Clock<'_>,
) {
    for pool in pools {
        let min_age = pool
            .rules
            .map_or(SignedDuration::ZERO, |rules| rules.min_age);
        if min_age.is_zero() {
            continue;
        }
        for (version, seen) in seen.into_iter().flatten() {
            let since = clock.read(["status.seen", version], Some(seen));
            let ripe = since.and_then(|since| since.checked_add(min_age).ok());
            let waits = ripe.filter(|at| *at > clock.now);
            clock.wake_at(waits);
            let until = if ripe.is_none() {
                Some(Until::Unknown)
            } else {
                waits.map(Until::At)
            };
            pool.ripens.insert(version, until);
        }
    }
}
