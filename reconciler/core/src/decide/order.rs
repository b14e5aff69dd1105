//! Which pools go first with a version (`spec.dependsOn`), and when they are done with it.
//!
//! The ledger notes since when a pool is done: one of its nodes runs the version in service, and none is left that wants it, or
//! that runs an older one. It stays done, whichever node joins later, until the version is halted for its nodes.
//!
//! A halt holds only nodes of its variant: they keep no pool from being done, and do not show that the version serves. If no
//! other node shows that, the pool is not done any more; once the version is resumed, it has to be done once more.

mod survey;

use brupop_api::crds::{DONE_POOLS_MAX, DONE_VERSIONS_MAX};
use brupop_api::fleet::{DonePool, VersionRecord};

use crate::facts::{FleetFacts, Release};
pub(crate) use survey::Survey;

/// The pools that others come after, and the versions that they are done with, after a pass that leaves these records and ends
/// these halts.
pub(crate) fn done_pools<'a>(
    fleet: &FleetFacts<'a>,
    survey: &Survey<'a>,
    records: &[VersionRecord],
    resumed: &[Release<'_>],
) -> Vec<DonePool> {
    let mut versions: Vec<&str> = vec![];
    for record in records.iter().rev() {
        if versions.len() < DONE_VERSIONS_MAX && !versions.contains(&record.version.as_str()) {
            versions.push(&record.version);
        }
    }
    let pools = survey.followed.iter().take(DONE_POOLS_MAX);
    let both = pools.flat_map(|pool| versions.iter().map(move |version| (*pool, *version)));
    both.filter_map(|(pool, version)| {
        let runs = survey.runs(pool, version, records);
        let is_halted = records.iter().any(|record| {
            record.version == version
                && record.halted_at.is_some()
                && survey.has(pool, &record.variant)
        });
        let is_resumed = resumed
            .iter()
            .any(|(of, variant)| *of == version && survey.has(pool, variant));
        let stays = !is_resumed && (runs || !is_halted);
        let mut before = fleet.done_pools.iter().filter(|_| stays);
        let is_left = || {
            survey.wants(pool, version, records) || survey.behind(pool, version, records).is_some()
        };
        before
            .find(|done| done.pool == pool && done.version == version)
            .cloned()
            .or_else(|| {
                (runs && !is_left()).then(|| DonePool {
                    pool: pool.to_owned(),
                    version: version.to_owned(),
                    since: fleet.now.to_owned(),
                })
            })
    })
    .collect()
}
