//! How old versions are, for pools that let them ripen (`spec.versions.minAge`).
//!
//! A version's age counts from when two nodes first reported it at a time, so no single agent makes a version old by naming it
//! early, nor fills the bounded list of records with versions that it makes up.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{FleetFacts, NodeView, Release, record_of};

/// This many nodes must name a version at a time; one, if there is only one.
const WITNESSES: usize = 2;

/// The versions that enough nodes name, of each the variants of these nodes, if the ledger does not say since when. Without
/// pools nobody asks for ages.
pub(crate) fn reported<'a>(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Vec<Release<'a>> {
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
        for version in shadow
            .update()
            .into_iter()
            .chain(shadow.status.current_version)
        {
            let (nodes, variants) = named.entry(version).or_default();
            *nodes += 1;
            variants.insert(node.variant());
        }
    }
    named.retain(|_, (nodes, _)| *nodes >= WITNESSES.min(opted_in));
    let releases = named.into_iter().flat_map(|(version, (_, variants))| {
        variants.into_iter().map(move |variant| (version, variant))
    });
    let is_new = |release: &Release<'a>| {
        let record = record_of(fleet.versions, *release);
        record.is_none_or(|record| record.reported_at.is_none())
    };
    releases.filter(is_new).collect()
}

#[cfg(test)]
mod tests;
