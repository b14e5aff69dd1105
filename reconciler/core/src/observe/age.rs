//! Which versions are too young for pools that let them ripen (`spec.versions.minAge`).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::facts::PoolFacts;
use crate::times;
use crate::window::Until;

/// Works out for each version whether it is old enough for each pool. Returns when the clock alone changes that.
pub(crate) fn apply<'a>(
    pools: &mut [PoolFacts<'a>],
    seen: Option<&'a BTreeMap<String, String>>,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut next: Option<Timestamp> = None;
    for pool in pools {
        let min_age = pool.rules.map_or(SignedDuration::ZERO, |rules| rules.min_age);
        if min_age.is_zero() {
            continue;
        }
        for (version, seen) in seen.into_iter().flatten() {
            let ripe =
                times::read(Some(seen)).and_then(|since| times::past(since, now).checked_add(min_age).ok());
            let waits = ripe.filter(|at| *at > now);
            next = [next, waits].into_iter().flatten().min();
            let until = if ripe.is_none() { Some(Until::Unknown) } else { waits.map(Until::At) };
            pool.ripens.insert(version, until);
        }
    }
    next
}
