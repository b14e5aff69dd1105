//! How old versions are, for pools that let them ripen (`spec.versions.minAge`).
//!
//! A version's age counts from when the fleet first saw it on two nodes at a time, so no single agent makes a version old by
//! naming it early, nor fills the bounded list with versions that it makes up.

use std::collections::BTreeMap;

use brupop_api::crds::SEEN_MAX;
use jiff::Timestamp;

use crate::facts::{FleetFacts, NodeView};
use crate::times;

/// This many nodes must name a version at a time; one, if there is only one.
const WITNESSES: usize = 2;

/// What the ledger should note, where it is something else than it does: the time of a version, or that it is taken out of
/// the list. Without pools nobody asks for ages, so nothing is noted.
pub(crate) fn notes<'a>(
    fleet: &FleetFacts<'a>,
    views: &[NodeView<'a>],
) -> BTreeMap<&'a str, Option<&'a str>> {
    if fleet.pools.is_empty() {
        return BTreeMap::new();
    }
    let mut opted_in = 0;
    let mut named: BTreeMap<&'a str, usize> = BTreeMap::new();
    for view in views
        .iter()
        .filter(|view| view.node.is_some_and(|node| node.labelled))
    {
        opted_in += 1;
        let Some(shadow) = view.shadow else { continue };
        for version in shadow
            .update()
            .into_iter()
            .chain(shadow.status.current_version)
        {
            *named.entry(version).or_default() += 1;
        }
    }
    let seen = named
        .iter()
        .filter(|(_, nodes)| **nodes >= WITNESSES.min(opted_in))
        .map(|(version, _)| *version);
    let mut new: Vec<&str> = seen
        .filter(|version| !fleet.seen.contains_key(*version))
        .collect();
    let unnamed = fleet
        .seen
        .iter()
        .filter(|(version, _)| !named.contains_key(version.as_str()));
    let mut unnamed: Vec<(&str, Option<Timestamp>)> = unnamed
        .map(|(version, at)| (version.as_str(), times::read(Some(at))))
        .collect();
    // The oldest versions that no node names any more make room. Those that find none do not ripen.
    unnamed.sort_by_key(|(_, at)| *at);
    unnamed.truncate((fleet.seen.len() + new.len()).saturating_sub(SEEN_MAX));
    new.truncate((SEEN_MAX + unnamed.len()).saturating_sub(fleet.seen.len()));
    let gone = unnamed.into_iter().map(|(version, _)| (version, None));
    new.into_iter()
        .map(|version| (version, Some(fleet.now)))
        .chain(gone)
        .collect()
}

#[cfg(test)]
mod tests;
