//! The progress of a version: which pools are done with it (`spec.dependsOn`), how old it is (`spec.versions.minAge`), and which
//! nodes are behind although their hosts name no update.
//!
//! The ledger notes since when a pool is done: one of its nodes runs the version in service, and none is left that wants it, or
//! that runs an older one. It stays done, whichever node joins later, until the version is halted for its nodes.
//!
//! A halt holds only nodes of its variant: they keep no pool from being done, and do not show that the version serves. If no
//! other node shows that, the pool is not done any more; once the version is resumed, it has to be done once more.
//!
//! A version's age counts from when two nodes first reported it at a time, so no single agent makes a version old by naming it
//! early, nor fills the bounded list of records with versions that it makes up.
//!
//! Bottlerocket offers a release in waves, over days. Until its wave has come, a host says the same as one that is up to date. So
//! it is told from what other nodes run, and from what its pool asks for. This changes what is shown, never what begins.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Problem;
use brupop_api::crds::{DONE_POOLS_MAX, DONE_VERSIONS_MAX};
use brupop_api::fleet::{DonePool, VersionRecord};
use semver::Version;

use super::{Candidate, Reason};
use crate::facts::{FleetFacts, NodeView, is_halted, record_of};
use crate::pool::Release;

/// This many nodes must name a version at a time; one, if there is only one.
const WITNESSES: usize = 2;

/// The reports of nodes about pools that go first, and about versions.
#[derive(Default)]
pub(crate) struct Survey<'a> {
    /// The reports of the nodes of each of these pools, each with the first node by name.
    followed: BTreeMap<&'a str, BTreeMap<Member<'a>, &'a str>>,
    /// The versions that a node of each variant runs or wants.
    known: BTreeSet<Release<'a>>,
}

/// The report of a node of a pool.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Member<'a> {
    variant: &'a str,
    runs: Option<&'a str>,
    serves: bool,
    /// It may be updated, and stays.
    counts: bool,
    /// A person keeps its host from choosing an update.
    is_locked: bool,
    wants: Option<&'a str>,
    /// The version that it is on its way to.
    comes: Option<&'a str>,
}

impl<'a> Survey<'a> {
    pub(super) fn of(fleet: &FleetFacts<'a>, nodes: &[Candidate<'_, 'a>]) -> Self {
        let mut survey = Self::default();
        let rules = fleet.pools.iter().filter_map(|pool| pool.rules);
        for (pool, _) in rules.flat_map(|rules| &rules.depends_on) {
            survey.followed.entry(pool).or_default();
        }
        // A pool stays done while no other pool depends on it for a moment.
        for done in fleet.done_pools {
            if survey.followed.len() < DONE_POOLS_MAX && fleet.pool(&done.pool).is_some() {
                survey.followed.entry(&done.pool).or_default();
            }
        }
        if survey.followed.is_empty() {
            return survey;
        }
        for it in nodes {
            let (Some(node), shadow) = (it.view.node, it.view.shadow) else {
                continue;
            };
            let (runs, variant) = (node.version(), node.variant());
            let wants = shadow.and_then(|shadow| shadow.update());
            let wants = wants.filter(|it| Some(*it) != runs);
            let versions = runs.into_iter().chain(wants);
            survey.known.extend(versions.map(|it| (it, variant)));
            let pool = fleet.pool_of(it.view);
            if let Some(members) = pool.and_then(|pool| survey.followed.get_mut(pool.name)) {
                let problem = shadow.and_then(|shadow| shadow.status.problem);
                let member = Member {
                    variant,
                    runs,
                    serves: node.labelled && node.is_ready() && node.is_tidy(),
                    counts: node.labelled && !node.leaving,
                    is_locked: problem == Some(Problem::NoUpdateChosen),
                    wants,
                    comes: it.held().and_then(|slot| slot.version.as_deref()),
                };
                members.entry(member).or_insert(node.name());
            }
        }
        survey
    }

    fn members(&self, pool: &str) -> impl Iterator<Item = (&Member<'a>, &'a str)> {
        let members = self.followed.get(pool).into_iter().flatten();
        members.map(|(member, node)| (member, *node))
    }

    /// The pools that others come after, and the versions that they are done with, after a pass that leaves these records and ends
    /// these halts.
    pub(super) fn done_pools(
        &self,
        fleet: &FleetFacts<'a>,
        records: &[VersionRecord],
        resumed: &[Release<'_>],
    ) -> Vec<DonePool> {
        let mut versions: Vec<&str> = vec![];
        for record in records.iter().rev() {
            if versions.len() < DONE_VERSIONS_MAX && !versions.contains(&record.version.as_str()) {
                versions.push(&record.version);
            }
        }
        let pools = self.followed.keys().take(DONE_POOLS_MAX);
        let both = pools.flat_map(|pool| versions.iter().map(move |version| (*pool, *version)));
        let done = both.filter_map(|(pool, version)| {
            let of_pool = |variant: &str| {
                let mut members = self.members(pool).map(|(member, _)| member);
                members.any(|it| it.may_be_behind() && it.variant == variant)
            };
            let halts = |variant: &str| is_halted(records, (version, variant));
            // A node for whose variant the version is halted does not show that it serves, and holds nobody up.
            let runs = self.members(pool).any(|(member, _)| {
                member.serves && member.runs == Some(version) && !halts(member.variant)
            });
            let is_wanted = || {
                self.members(pool).any(|(member, _)| {
                    let wants = member.counts && member.wants == Some(version);
                    member.comes == Some(version) || wants && !halts(member.variant)
                })
            };
            let mut halted = records.iter().filter(|it| it.halted_at.is_some());
            let is_halted = halted.any(|it| it.version == version && of_pool(&it.variant));
            let mut resumed = resumed.iter();
            let is_resumed = resumed.any(|(of, variant)| *of == version && of_pool(variant));
            let mut before = fleet.done_pools.iter();
            let before = before.find(|done| done.pool == pool && done.version == version);
            if let Some(before) = before.filter(|_| !is_resumed && (runs || !is_halted)) {
                return Some(before.clone());
            }
            let is_done = runs && !is_wanted() && self.behind(pool, version, records).is_none();
            is_done.then(|| DonePool {
                pool: pool.to_owned(),
                version: version.to_owned(),
                since: fleet.now.to_owned(),
            })
        });
        done.collect()
    }

    /// The first node of this pool that keeps it from being done with this version although it does not ask for it: it runs an
    /// older one, and the version is meant for its variant. Perhaps it cannot look for updates.
    pub(super) fn behind(
        &self,
        pool: &str,
        version: &str,
        records: &[VersionRecord],
    ) -> Option<&'a str> {
        let than = Version::parse(version).ok()?;
        let is_behind = |member: &Member<'a>| {
            member.may_be_behind()
                && member.comes.or(member.wants) != Some(version)
                && self.known.contains(&(version, member.variant))
                && !is_halted(records, (version, member.variant))
                && (member.runs).is_some_and(|it| Version::parse(it).is_ok_and(|runs| runs < than))
        };
        let members = self.members(pool).filter(|(member, _)| is_behind(member));
        members.map(|(_, node)| node).min()
    }
}

impl Member<'_> {
    fn may_be_behind(&self) -> bool {
        self.counts && !self.is_locked && self.runs.is_some()
    }
}

/// The versions that enough nodes name, of each the variants of these nodes, if the ledger does not say since when. Without
/// pools nobody asks for ages.
pub(super) fn reported<'v, 'a: 'v>(
    fleet: &FleetFacts<'a>,
    views: impl Iterator<Item = &'v NodeView<'a>>,
) -> Vec<Release<'a>> {
    if fleet.pools.is_empty() {
        return vec![];
    }
    let mut opted_in = 0;
    let mut named: BTreeMap<&'a str, (usize, BTreeSet<&'a str>)> = BTreeMap::new();
    for view in views {
        let Some(node) = view.node.filter(|node| node.labelled) else {
            continue;
        };
        opted_in += 1;
        let Some(shadow) = view.shadow else { continue };
        let versions = [shadow.update(), shadow.status.current_version];
        for version in versions.into_iter().flatten() {
            let (nodes, variants) = named.entry(version).or_default();
            *nodes += 1;
            variants.insert(node.variant());
        }
    }
    named.retain(|_, (nodes, _)| *nodes >= WITNESSES.min(opted_in));
    let releases = named.into_iter().flat_map(|(version, (_, variants))| {
        variants.into_iter().map(move |variant| (version, variant))
    });
    let is_dated = |release: &Release<'a>| {
        record_of(fleet.versions, *release).is_some_and(|record| record.reported_at.is_some())
    };
    releases.filter(|release| !is_dated(release)).collect()
}

/// The versions that the opted-in nodes of one variant run and choose.
#[derive(Default)]
pub(super) struct Offers<'a> {
    /// The versions that they run, each with its text and the first node by name.
    run_by: BTreeMap<Version, (&'a str, &'a str)>,
    /// The versions that their hosts choose; in order.
    chosen: Vec<Version>,
}

/// Returns what the opted-in nodes of each variant run and choose.
pub(super) fn offers<'a>(views: &[NodeView<'a>]) -> BTreeMap<&'a str, Offers<'a>> {
    let mut variants = BTreeMap::<_, Offers<'_>>::new();
    let parsed = |text: &'a str| Some((Version::parse(text).ok()?, text));
    for view in views {
        let Some(node) = view.node.filter(|node| node.labelled) else {
            continue;
        };
        let offers = variants.entry(node.variant()).or_default();
        if let Some((runs, text)) = node.version().and_then(parsed) {
            offers.run_by.entry(runs).or_insert((text, node.name()));
        }
        let chosen = view.shadow.and_then(|shadow| parsed(shadow.update()?));
        offers.chosen.extend(chosen.map(|(chosen, _)| chosen));
    }
    for offers in variants.values_mut() {
        offers.chosen.sort_unstable();
    }
    variants
}

impl<'a> Offers<'a> {
    /// Returns that this node, whose host names no update, should have been offered one, and which.
    pub(super) fn missing(
        &self,
        fleet: &FleetFacts<'a>,
        view: &NodeView<'a>,
    ) -> Option<Reason<'a>> {
        let runs = Version::parse(view.node?.version()?).ok()?;
        let rules = fleet.pool_of(view).and_then(|pool| pool.rules);
        // A release that was withdrawn: two hosts choose an older one in its place.
        let is_withdrawn =
            |version: &Version| self.chosen.get(1).is_some_and(|chosen| chosen < version);
        let newer = self.run_by.iter().rev();
        let mut newer = newer.take_while(|(version, _)| **version > runs);
        let newest = newer.find(|(version, (text, _))| {
            let is_allowed = rules.is_none_or(|rules| rules.allow(text));
            is_allowed && !is_withdrawn(version) && !fleet.is_halted_for(view, text)
        });
        let newest = newest.map(|(_, (version, node))| Reason::NotOfferedRunBy(version, node));
        newest.or_else(|| {
            rules?
                .asks_for_more_than(&runs)
                .then_some(Reason::NotOffered)
        })
    }
}

#[cfg(test)]
mod tests;
