//! Which pools go first with a version (`spec.dependsOn`), and when they are done with it.
//!
//! The ledger notes since when a pool is done: one of its nodes runs the version, and none is left that wants it, or that runs
//! an older one. If one is left again, or none runs it or a later one in service any more, it notes for how long the pool had
//! been done; so what had been done for long enough stays so, whichever node joins later.
//!
//! A halt holds only nodes of its variant: they keep no pool from being done, and do not show that the version serves. If no
//! other node shows that, the halt clears what is noted; once the version is resumed, their pools have to be done once more.

mod survey;

use std::collections::BTreeMap;

use brupop_api::crds::{DONE_POOLS_MAX, DONE_VERSIONS_MAX};
use brupop_api::fleet::{DonePool, VersionRecord};
use semver::Version;

use crate::facts::{FleetFacts, Release, is_halted};
use crate::times;
pub(crate) use survey::Survey;
use survey::VersionSurvey;

/// The pools that others come after, and the versions that they are or were done with, after a pass that leaves these records
/// and ends these halts.
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
        // Once a version is resumed, what its halt held goes in the order of the pools again.
        let begins_again =
            |(of, variant): &Release<'_>| *of == version && survey.has(pool, variant);
        let is_left =
            survey.wants(pool, version, records) || survey.behind(pool, version, records).is_some();
        let service = service(&survey.standings, pool, version, records);
        let is_cleared = service == Service::Nowhere
            && records.iter().any(|record| {
                record.version == version
                    && record.halted_at.is_some()
                    && survey.has(pool, &record.variant)
            });
        let mut before = fleet.done_pools.iter();
        let before = before
            .find(|done| done.pool == pool && done.version == version)
            .filter(|_| !is_cleared && !resumed.iter().any(begins_again));
        let has_been = |since: &str| {
            let now = times::read(Some(fleet.now))?;
            let since = fleet.ahead.read([pool, version], Some(since), now)?;
            u64::try_from(now.duration_since(since).as_secs()).ok()
        };
        let (since, longest_seconds) = done(service, is_left, before, fleet.now, has_been)?;
        Some(DonePool {
            pool: pool.to_owned(),
            version: version.to_owned(),
            since,
            longest_seconds,
        })
    })
    .collect()
}

/// How a version serves in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// A node in service runs it.
    Runs,
    /// None does, but one runs a later version, or is on its way to one.
    Left,
    /// Neither is so.
    Nowhere,
}

/// Nodes for whose variant the version is halted do not show that it serves.
fn service(
    standings: &BTreeMap<(&str, &str), VersionSurvey<'_>>,
    pool: &str,
    version: &str,
    records: &[VersionRecord],
) -> Service {
    let serves = |variant: &&str| !is_halted(records, (version, *variant));
    if standings
        .get(&(pool, version))
        .is_some_and(|standing| standing.run_by.iter().any(serves))
    {
        return Service::Runs;
    }
    let Ok(than) = Version::parse(version) else {
        return Service::Nowhere;
    };
    let later = |other: &str| Version::parse(other).is_ok_and(|other| other > than);
    let left = standings.iter().any(|((of, other), standing)| {
        *of == pool && (!standing.run_by.is_empty() || standing.comes) && later(other)
    });
    if left {
        Service::Left
    } else {
        Service::Nowhere
    }
}

/// Since when a pool is done with a version, and for how long it had been done before, if a node is left that has to get it
/// (`is_left`) or not; `None` = nothing is to be noted. `has_been` counts the seconds since a time.
fn done(
    service: Service,
    is_left: bool,
    before: Option<&DonePool>,
    now: &str,
    has_been: impl Fn(&str) -> Option<u64>,
) -> Option<(Option<String>, u64)> {
    let Some(DonePool {
        since,
        longest_seconds,
        ..
    }) = before
    else {
        let begins = service == Service::Runs && !is_left;
        return begins.then(|| (Some(now.to_owned()), 0));
    };
    Some(if is_left || service == Service::Nowhere {
        let span = since.as_deref().and_then(has_been);
        (None, span.unwrap_or(0).max(*longest_seconds))
    } else if since.is_none() && service == Service::Runs {
        (Some(now.to_owned()), *longest_seconds)
    } else {
        (since.clone(), *longest_seconds)
    })
}

#[cfg(test)]
mod tests;
