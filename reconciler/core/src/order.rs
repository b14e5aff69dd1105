//! Which pools go first with a version (`spec.after`), and when they are done with it.
//!
//! The ledger notes since when a pool is done. If one of its nodes wants the version again, or none runs it or a later one in
//! service any more, it notes for how long the pool had been done; so what had been done for long enough stays so, whoever
//! joins later. A halt of the version clears all of this.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::DONE_POOLS_MAX;
use brupop_api::fleet::{Done, Slot, VersionRecord};
use jiff::{SignedDuration, Timestamp};
use semver::Version;

use crate::decide::is_halted;
use crate::facts::{FleetFacts, NodeView, PoolFacts, Steering};
use crate::ownership::WatchedPool;

/// Why pools that wait for each other are not understood.
const CIRCLE: &str = "spec.after: these pools wait for each other in a circle, so none of them would ever begin; take one \
                      of them out";

/// Why a pool is not understood that comes after one of too many. The number is [`DONE_POOLS_MAX`].
const TOO_MANY: &str = "spec.after: more than 16 pools go before others, and the ledger has room for the first 16 by name; \
                        let one pool of them go first for several";

/// The pools that cannot be heeded because of what they come after, and why.
pub(crate) fn misplaced(pools: &BTreeMap<String, WatchedPool>) -> BTreeMap<&str, &'static str> {
    let after = |name: &str| {
        let rules = pools.get(name).and_then(|pool| pool.item.ok()?.rules.as_ref().ok());
        rules.map_or(&[][..], |rules| &rules.after).iter().map(|(pool, _)| pool.as_str())
    };
    let known: BTreeSet<&str> = pools.keys().flat_map(|name| after(name)).collect();
    let known: BTreeSet<&str> = known.into_iter().take(DONE_POOLS_MAX).collect();
    let waits_for_itself = |name: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), after(name).collect::<Vec<_>>());
        while let Some(next) = open.pop() {
            if next == name {
                return true;
            }
            if seen.insert(next) {
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
                match over(record.done_pools.get(name), *soak) {
                    Some(at) if at <= now => {}
                    due => {
                        first = first.or(Some(name.as_str()));
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
fn over(done: Option<&Done>, soak: SignedDuration) -> Option<Timestamp> {
    let done = done?;
    // Whatever is noted was done for a moment at least.
    if i64::try_from(done.longest_seconds).ok()? >= soak.as_secs() {
        return Some(Timestamp::MIN);
    }
    let since: Timestamp = done.since.as_deref()?.parse().ok()?;
    since.checked_add(soak).ok()
}

/// What the nodes of a pool say of one version.
#[derive(Default)]
struct Standing {
    /// A node in service runs it.
    runs: bool,
    /// A node wants it, or is on its way to it.
    wants: bool,
    /// A node is on its way to it.
    comes: bool,
}

/// What the ledger should note of each version, where it is something else than it does: of the pools that others come after.
/// `held` are the slots of the views.
pub(crate) fn notes<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
    held: impl Iterator<Item = Option<&'a Slot>>,
) -> BTreeMap<String, BTreeMap<String, Done>> {
    let followed: BTreeSet<&str> = fleet
        .pools
        .iter()
        .filter_map(|pool| pool.rules)
        .flat_map(|rules| &rules.after)
        .map(|(pool, _)| pool.as_str())
        .collect();
    if followed.is_empty() && fleet.versions.values().all(|record| record.done_pools.is_empty()) {
        return BTreeMap::new();
    }
    let standings = standings(fleet, views.iter().zip(held), &followed);
    let wanted = views.iter().filter(|view| waits(fleet, view)).filter_map(|view| view.shadow?.update());
    let versions: BTreeSet<&str> = fleet.versions.keys().map(String::as_str).chain(wanted).collect();
    let mut changed = BTreeMap::new();
    for version in versions {
        let record = fleet.versions.get(version);
        let stored = record.map(|record| &record.done_pools);
        let halted = record.is_some_and(|record| record.halted.is_some());
        let wanted: BTreeMap<String, Done> = followed
            .iter()
            .take(DONE_POOLS_MAX)
            .filter(|pool| !halted && !is_halted(fleet, pool, version))
            .filter_map(|pool| {
                let before = stored.and_then(|stored| stored.get(*pool));
                let wants = standings.get(&(*pool, version)).is_some_and(|standing| standing.wants);
                let service = service(&standings, pool, version);
                Some(((*pool).to_owned(), done(service, wants, before, fleet.now)?))
            })
            .collect();
        if stored.map_or(!wanted.is_empty(), |stored| *stored != wanted) {
            changed.insert(version.to_owned(), wanted);
        }
    }
    changed
}

/// Does this node wait for pools that go first?
fn waits(fleet: &FleetFacts<'_>, view: &NodeView<'_>) -> bool {
    let Steering::Pool(index) = view.steering else { return false };
    fleet.pools.get(index).and_then(|pool| pool.rules).is_some_and(|rules| !rules.after.is_empty())
}

fn standings<'v, 'a: 'v>(
    fleet: &FleetFacts<'a>,
    views: impl Iterator<Item = (&'v NodeView<'a>, Option<&'a Slot>)>,
    followed: &BTreeSet<&str>,
) -> BTreeMap<(&'a str, &'a str), Standing> {
    let mut standings: BTreeMap<(&str, &str), Standing> = BTreeMap::new();
    for (view, slot) in views {
        let (Steering::Pool(index), Some(node)) = (view.steering, view.node) else { continue };
        let Some(pool) = fleet.pools.get(index).filter(|pool| followed.contains(pool.name)) else { continue };
        let shadow = view.shadow.filter(|_| node.labelled);
        let in_service = node.labelled && node.ready && node.marker.is_none();
        if let Some(version) = node.version.filter(|_| in_service) {
            standings.entry((pool.name, version)).or_default().runs = true;
        }
        let on_its_way = slot.and_then(|slot| slot.version.as_deref());
        let wanted =
            shadow.and_then(|shadow| shadow.update()).filter(|version| Some(*version) != node.version);
        for version in wanted.into_iter().chain(on_its_way) {
            let standing = standings.entry((pool.name, version)).or_default();
            standing.wants = true;
            standing.comes |= on_its_way == Some(version);
        }
    }
    standings
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

fn service(standings: &BTreeMap<(&str, &str), Standing>, pool: &str, version: &str) -> Service {
    if standings.get(&(pool, version)).is_some_and(|standing| standing.runs) {
        return Service::Runs;
    }
    let Ok(than) = Version::parse(version) else { return Service::Nowhere };
    let later = |other: &str| Version::parse(other).is_ok_and(|other| other > than);
    let left = standings
        .iter()
        .any(|((of, other), standing)| *of == pool && (standing.runs || standing.comes) && later(other));
    if left { Service::Left } else { Service::Nowhere }
}

/// What is to be noted of one pool and one version; `None` = nothing.
fn done(service: Service, wants: bool, before: Option<&Done>, now: &str) -> Option<Done> {
    match before {
        None => {
            let begins = service == Service::Runs && !wants;
            begins.then(|| Done { since: Some(now.to_owned()), longest_seconds: 0 })
        }
        Some(before) if wants || service == Service::Nowhere => {
            let span = || {
                let since: Timestamp = before.since.as_deref()?.parse().ok()?;
                u64::try_from(now.parse::<Timestamp>().ok()?.duration_since(since).as_secs()).ok()
            };
            let longest_seconds = before.longest_seconds.max(span().unwrap_or(0));
            Some(Done { since: None, longest_seconds })
        }
        Some(before) if before.since.is_none() && service == Service::Runs => {
            Some(Done { since: Some(now.to_owned()), ..before.clone() })
        }
        Some(before) => Some(before.clone()),
    }
}

#[cfg(test)]
mod tests;
