//! Which nodes are behind although their hosts name no update.
//!
//! Bottlerocket offers a release in waves, over days. Until its wave has come, a host says the same as one that is up to date. So
//! it is told from what other nodes run, and from what its pool asks for. This changes what is shown, never what begins.

use std::collections::BTreeMap;

use semver::Version;

use super::Missing;
use crate::facts::{FleetFacts, NodeView};

/// What the opted-in nodes of one variant run and choose.
#[derive(Default)]
struct Variant<'a> {
    /// The versions that they run, each with its text and the first node by name.
    run_by: BTreeMap<Version, (&'a str, &'a str)>,
    /// The versions that their hosts choose; in order.
    chosen: Vec<Version>,
}

/// What the opted-in nodes of each variant run and choose.
pub(super) struct Offers<'a>(BTreeMap<&'a str, Variant<'a>>);

impl<'a> Offers<'a> {
    pub(super) fn of(views: &[NodeView<'a>]) -> Self {
        let mut variants = BTreeMap::<_, Variant<'_>>::new();
        for view in views {
            let Some(node) = view.node.filter(|node| node.labelled) else {
                continue;
            };
            let variant = variants.entry(node.variant()).or_default();
            if let Some((text, runs)) = node
                .version()
                .and_then(|text| Some((text, Version::parse(text).ok()?)))
            {
                variant.run_by.entry(runs).or_insert((text, node.name()));
            }
            let chosen = view.shadow.and_then(|shadow| shadow.update());
            variant
                .chosen
                .extend(chosen.and_then(|chosen| Version::parse(chosen).ok()));
        }
        for variant in variants.values_mut() {
            variant.chosen.sort_unstable();
        }
        Self(variants)
    }

    /// Returns the version that this node, whose host names no update, should have been offered.
    pub(super) fn missing(
        &self,
        fleet: &FleetFacts<'a>,
        view: &NodeView<'a>,
    ) -> Option<Missing<'a>> {
        let node = view.node?;
        let runs = Version::parse(node.version()?).ok()?;
        let variant = self.0.get(&node.variant())?;
        let rules = fleet.pool_of(view).and_then(|pool| pool.rules);
        // A release that was withdrawn: two hosts choose an older one in its place.
        let is_withdrawn =
            |version: &Version| variant.chosen.get(1).is_some_and(|chosen| chosen < version);
        let is_halted = |text: &str| fleet.is_halted_for(view, text);
        let mut newer = variant
            .run_by
            .iter()
            .rev()
            .take_while(|(version, _)| **version > runs);
        let newest = newer.find(|(version, (text, _))| {
            !is_withdrawn(version)
                && !is_halted(text)
                && rules.is_none_or(|rules| rules.allow(text))
        });
        let newest = newest.map(|(_, (version, node))| Missing::RunBy { version, node });
        newest.or_else(|| rules?.asks_for_more_than(&runs).then_some(Missing::AtLeast))
    }
}
