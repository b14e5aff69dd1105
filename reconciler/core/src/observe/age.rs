//! Which versions are too young for pools that let them ripen (`spec.versions.minAge`).

use brupop_api::fleet::VersionRecord;
use jiff::SignedDuration;

use crate::deadlines::Clock;
use crate::facts::PoolFacts;
use crate::window::Until;

/// Works out for each version and variant whether it is old enough for each pool.
pub(crate) fn apply<'a>(
    pools: &mut [PoolFacts<'a>],
    versions: &'a [VersionRecord],
    clock: &mut Clock<'_>,
) {
    for pool in pools {
        let min_age = pool
            .rules
            .map_or(SignedDuration::ZERO, |rules| rules.min_age);
        if min_age.is_zero() {
            continue;
        }
        for record in versions.iter().filter(|it| it.reported_at.is_some()) {
            let (version, reported) = (record.version.as_str(), record.reported_at.as_deref());
            let since = clock.read(["status.versions", version], reported);
            let ripe = since.and_then(|since| since.checked_add(min_age).ok());
            let waits = ripe.filter(|at| *at > clock.now);
            clock.wake_at(waits);
            let until = if ripe.is_none() {
                Some(Until::Unknown)
            } else {
                waits.map(Until::At)
            };
            pool.ripens
                .insert((version, record.variant.as_str()), until);
        }
    }
}
