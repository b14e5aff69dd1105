//! What nodes say of the pools that go first: who runs a version there, and who has yet to get it.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Problem;
use brupop_api::crds::DONE_POOLS_MAX;
use brupop_api::fleet::{Slot, VersionRecord};
use semver::Version;

use crate::facts::{FleetFacts, NodeView, is_halted};
use crate::objects::NodeFacts;

/// What the nodes say of pools that others come after, and of versions.
#[derive(Default)]
pub(crate) struct Survey<'a> {
    /// These pools.
    pub(super) followed: BTreeSet<&'a str>,
    /// By pool and version.
    standings: BTreeMap<(&'a str, &'a str), VersionSurvey<'a>>,
    /// The nodes of each pool that may be updated: the first by name of those that are alike.
    members: BTreeMap<(&'a str, SurveyedNode<'a>), &'a str>,
    /// The versions that a node of each variant runs or wants.
    known: BTreeSet<(&'a str, &'a str)>,
}

/// What the nodes of a pool say of one version.
#[derive(Default)]
struct VersionSurvey<'a> {
    /// The variants of the nodes in service that run it.
    run_by: BTreeSet<&'a str>,
    /// The variants of the nodes that want it.
    wanted_by: BTreeSet<&'a str>,
    /// A node is on its way to it.
    comes: bool,
}

/// A node of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SurveyedNode<'a> {
    variant: &'a str,
    runs: &'a str,
    /// The version that it wants, or is on its way to.
    wants: Option<&'a str>,
}

impl<'a> Survey<'a> {
    /// Of these views and their slots.
    pub(crate) fn of<'v>(
        fleet: &FleetFacts<'a>,
        views: impl Iterator<Item = (&'v NodeView<'a>, Option<&'a Slot>)>,
    ) -> Self
    where
        'a: 'v,
    {
        let rules = fleet.pools.iter().filter_map(|pool| pool.rules);
        let mut followed: BTreeSet<&str> = rules
            .flat_map(|rules| &rules.depends_on)
            .map(|(pool, _)| pool.as_str())
            .collect();
        // A pool stays done while no other pool depends on it for a moment.
        for done in fleet.done_pools {
            if followed.len() < DONE_POOLS_MAX && fleet.pool(&done.pool).is_some() {
                followed.insert(&done.pool);
            }
        }
        let mut survey = Self {
            followed,
            ..Self::default()
        };
        if survey.followed.is_empty() {
            return survey;
        }
        for (view, slot) in views {
            let Some(node) = view.node else { continue };
            let wants = view
                .shadow
                .and_then(|shadow| shadow.update())
                .filter(|it| Some(*it) != node.version());
            let versions = node.version().into_iter().chain(wants);
            survey
                .known
                .extend(versions.map(|version| (node.variant(), version)));
            if let Some(pool) = fleet
                .pool_of(view)
                .filter(|pool| survey.followed.contains(pool.name))
            {
                let comes = slot.and_then(|slot| slot.version.as_deref());
                survey.note(pool.name, view, node, wants, comes);
            }
        }
        survey
    }

    /// Notes a node of this pool, the version that it wants, and the one that it is on its way to.
    fn note(
        &mut self,
        pool: &'a str,
        view: &NodeView<'a>,
        node: &'a NodeFacts,
        wants: Option<&'a str>,
        comes: Option<&'a str>,
    ) {
        if let Some(version) = node
            .version()
            .filter(|_| node.labelled && node.is_ready() && node.is_tidy())
        {
            self.standing(pool, version).run_by.insert(node.variant());
        }
        if let Some(version) = comes {
            self.standing(pool, version).comes = true;
        }
        if !node.labelled || node.leaving {
            return;
        }
        if let Some(version) = wants {
            self.standing(pool, version)
                .wanted_by
                .insert(node.variant());
        }
        let problem = view.shadow.and_then(|shadow| shadow.status.problem);
        if let Some(runs) = node
            .version()
            .filter(|_| problem != Some(Problem::NoUpdateChosen))
        {
            let member = SurveyedNode {
                variant: node.variant(),
                runs,
                wants: comes.or(wants),
            };
            self.members.entry((pool, member)).or_insert(node.name());
        }
    }

    fn standing(&mut self, pool: &'a str, version: &'a str) -> &mut VersionSurvey<'a> {
        self.standings.entry((pool, version)).or_default()
    }

    /// Whether a node of this pool runs the version in service. One for whose variant it is halted does not show that it serves.
    pub(super) fn runs(&self, pool: &str, version: &str, records: &[VersionRecord]) -> bool {
        let serves = |variant: &&str| !is_halted(records, (version, *variant));
        self.standings
            .get(&(pool, version))
            .is_some_and(|standing| standing.run_by.iter().any(serves))
    }

    /// Whether a node of this pool wants the version, or one is on its way to it. A node that a halt among these records holds does
    /// not count: it would keep all variants waiting for what is halted in one.
    pub(super) fn wants(&self, pool: &str, version: &str, records: &[VersionRecord]) -> bool {
        let wants = |standing: &VersionSurvey<'_>| {
            standing.comes
                || standing
                    .wanted_by
                    .iter()
                    .any(|variant| !is_halted(records, (version, variant)))
        };
        self.standings.get(&(pool, version)).is_some_and(wants)
    }

    /// The first node of this pool that keeps it from being done with this version although it does not ask for it: it runs an
    /// older one, and the version is meant for its variant. Perhaps it cannot look for updates.
    pub(crate) fn behind(
        &self,
        pool: &str,
        version: &str,
        records: &[VersionRecord],
    ) -> Option<&'a str> {
        let than = Version::parse(version).ok()?;
        let is_behind = |member: &SurveyedNode<'a>| {
            member.wants != Some(version)
                && self.known.contains(&(member.variant, version))
                && !is_halted(records, (version, member.variant))
                && Version::parse(member.runs).is_ok_and(|runs| runs < than)
        };
        let members = self
            .members
            .iter()
            .filter(|((of, member), _)| *of == pool && is_behind(member));
        members.map(|(_, node)| *node).min()
    }

    /// Whether this pool has a node of this variant.
    pub(super) fn has(&self, pool: &str, variant: &str) -> bool {
        self.members
            .keys()
            .any(|(of, member)| *of == pool && member.variant == variant)
    }
}
