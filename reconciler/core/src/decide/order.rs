//! Which pools go first with a version (`spec.dependsOn`), and when they are done with it.
//!
//! The ledger notes since when a pool is done: one of its nodes runs the version, and none is left that wants it, or that runs
//! an older one. If one is left again, or none runs it or a later one in service any more, it notes for how long the pool had
//! been done; so what had been done for long enough stays so, whichever node joins later.
//!
//! A halt of the version for all variants clears this. A halt for some variants holds only nodes
//! of these: they keep no pool from being done, and once the halt is lifted, their pools have to be done once more.

mod survey;

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::DONE_POOLS_MAX;
use brupop_api::fleet::{Done, VersionRecord};
use semver::Version;

use crate::facts::{FleetFacts, NodeView};
use crate::times;
pub(crate) use survey::Survey;
use survey::VersionSurvey;

/// What the ledger should note of each version, where it is something else than it does: of the pools that others come after.
/// `record` says what becomes of versions in this pass.
pub(crate) fn notes<'a, 'r>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    survey: &Survey<'a>,
    record: impl Fn(&'a str) -> Option<&'r VersionRecord>,
) -> BTreeMap<String, BTreeMap<String, Done>> {
    let Survey {
        followed,
        standings,
        ..
    } = survey;
    if followed.is_empty()
        && fleet
            .versions
            .values()
            .all(|record| record.done_pools.is_empty())
    {
        return BTreeMap::new();
    }
    let wanted = views
        .iter()
        .filter(|view| waits(fleet, view))
        .filter_map(|view| view.shadow?.update());
    let versions: BTreeSet<&'a str> = fleet
        .versions
        .keys()
        .map(String::as_str)
        .chain(wanted)
        .collect();
    let mut changed = BTreeMap::new();
    for version in versions {
        let (stored, record) = (fleet.versions.get(version), record(version));
        let halt = record.and_then(|record| record.halted.as_ref());
        let halted_for_all = halt.is_some_and(|halt| halt.variants.is_empty());
        // Once a halt is lifted, what it held goes in the order of the pools again.
        let lifted = stored
            .and_then(|stored| stored.halted.as_ref())
            .filter(|_| halt.is_none());
        let begins_again = |pool: &str| lifted.is_some_and(|halt| survey.holds_one_of(pool, halt));
        let wanted: BTreeMap<String, Done> = followed
            .iter()
            .take(DONE_POOLS_MAX)
            .filter(|_| !halted_for_all)
            .filter_map(|pool| {
                let before = stored.and_then(|stored| stored.done_pools.get(*pool));
                let before = before.filter(|_| !begins_again(pool));
                let is_left = survey.wants(pool, version, record)
                    || survey.behind(pool, version, record).is_some();
                let service = service(standings, pool, version);
                let has_been = |since: &str| {
                    let now = times::read(Some(fleet.now))?;
                    let since = fleet.ahead.read([pool, version], Some(since), now)?;
                    u64::try_from(now.duration_since(since).as_secs()).ok()
                };
                Some((
                    (*pool).to_owned(),
                    done(service, is_left, before, fleet.now, has_been)?,
                ))
            })
            .collect();
        if stored.map_or(!wanted.is_empty(), |stored| stored.done_pools != wanted) {
            changed.insert(version.to_owned(), wanted);
        }
    }
    changed
}

/// Does this node wait for pools that go first?
fn waits(fleet: &FleetFacts<'_>, view: &NodeView<'_>) -> bool {
    fleet
        .pool_of(view)
        .and_then(|pool| pool.rules)
        .is_some_and(|rules| !rules.depends_on.is_empty())
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

fn service(
    standings: &BTreeMap<(&str, &str), VersionSurvey<'_>>,
    pool: &str,
    version: &str,
) -> Service {
    if standings
        .get(&(pool, version))
        .is_some_and(|standing| standing.runs)
    {
        return Service::Runs;
    }
    let Ok(than) = Version::parse(version) else {
        return Service::Nowhere;
    };
    let later = |other: &str| Version::parse(other).is_ok_and(|other| other > than);
    let left = standings.iter().any(|((of, other), standing)| {
        *of == pool && (standing.runs || standing.comes) && later(other)
    });
    if left {
        Service::Left
    } else {
        Service::Nowhere
    }
}

/// What is to be noted of one pool and one version, if a node is left that has to get it (`is_left`) or not; `None` = nothing.
/// `has_been` counts the seconds since a time.
fn done(
    service: Service,
    is_left: bool,
    before: Option<&Done>,
    now: &str,
    has_been: impl Fn(&str) -> Option<u64>,
) -> Option<Done> {
    match before {
        None => {
            let begins = service == Service::Runs && !is_left;
            begins.then(|| Done {
                since: Some(now.to_owned()),
                longest_seconds: 0,
            })
        }
        Some(before) if is_left || service == Service::Nowhere => {
            let span = before.since.as_deref().and_then(has_been);
            let longest_seconds = before.longest_seconds.max(span.unwrap_or(0));
            Some(Done {
                since: None,
                longest_seconds,
            })
        }
        Some(before) if before.since.is_none() && service == Service::Runs => Some(Done {
            since: Some(now.to_owned()),
            ..before.clone()
        }),
        Some(before) => Some(before.clone()),
    }
}

#[cfg(test)]
mod tests;
