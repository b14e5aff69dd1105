//! Which versions the ledger forgets. It has room for [`VERSION_RECORDS_MAX`] records, and no node may use that up: a
//! kubelet can make its Node look as if it reached, or failed to reach, any number of versions that do not exist.

use std::collections::BTreeMap;

use brupop_api::crds::VERSION_RECORDS_MAX;
use brupop_api::fleet::VersionRecord;
use jiff::Timestamp;

use crate::facts::FleetFacts;

/// The records as they would be after this pass, by version.
pub(super) type Records<'r> = BTreeMap<&'r str, &'r VersionRecord>;

/// The versions to forget. A halt goes only if each node that failed has since had another version halted: so a node
/// that alone made many halts holds one of them. Records without a halt go as far as room is needed, first those without
/// failures, of versions that no Node runs (`runs`), and the oldest of these. If all that remain are halts, those that
/// the ledger does not have yet (`is_new`) find no room; see [`is_full`].
pub(super) fn forgotten<'r>(
    records: &Records<'r>,
    runs: impl Fn(&str) -> bool,
    is_new: impl Fn(&str) -> bool,
) -> Vec<&'r str> {
    let newest = newest_halts(records);
    let replaced = |version: &str, record: &VersionRecord| {
        let by_newer = |node: &str| newest.get(node).is_some_and(|(_, newest)| *newest != version);
        record.halted.is_some()
            && !record.failures.is_empty()
            && record.failures.iter().all(|failure| by_newer(&failure.node))
    };
    let (mut forgotten, kept): (Vec<_>, Vec<_>) =
        records.iter().map(|(version, record)| (*version, *record)).partition(|(v, r)| replaced(v, r));
    let surplus = kept.len().saturating_sub(VERSION_RECORDS_MAX);
    let (halts, mut others): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(_, r)| r.halted.is_some());
    others.sort_by_key(|(version, record)| {
        (!record.failures.is_empty(), runs(version), record.first_seen.as_deref())
    });
    let without_room = surplus.saturating_sub(others.len());
    forgotten.extend(others.into_iter().take(surplus));
    forgotten.extend(halts.into_iter().filter(|(version, _)| is_new(version)).take(without_room));
    forgotten.into_iter().map(|(version, _)| version).collect()
}

/// Is the ledger full of halts? Then a version that it does not know may have failed, too, and no node begins with it.
pub(super) fn is_full(fleet: &FleetFacts<'_>) -> bool {
    fleet.versions.len() >= VERSION_RECORDS_MAX && fleet.versions.values().all(|it| it.halted.is_some())
}

/// The newest halt of each node that failed, and its time.
fn newest_halts<'r>(records: &Records<'r>) -> BTreeMap<&'r str, (Option<Timestamp>, &'r str)> {
    let mut newest = BTreeMap::new();
    for (version, record) in records {
        let Some(halt) = &record.halted else { continue };
        let of_this = (halt.at.parse::<Timestamp>().ok(), *version);
        for failure in &record.failures {
            let known = newest.entry(failure.node.as_str()).or_insert(of_this);
            *known = (*known).max(of_this);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::fleet::{Halt, NodeFailure};
    use proptest::prelude::*;
    use std::cmp::Reverse;

    fn at(second: usize) -> String {
        Timestamp::from_second(i64::try_from(second).unwrap()).unwrap().to_string()
    }

    /// A record that was first seen, and halted if it is, at this time.
    fn record(seen: usize, nodes: &[&str], halted: bool) -> VersionRecord {
        let failure =
            |node: &&str| NodeFailure { node: (*node).into(), at: at(seen), reason: "FellBack".into() };
        VersionRecord {
            first_seen: Some(at(seen)),
            failures: nodes.iter().map(failure).collect(),
            halted: halted.then(|| Halt { at: at(seen), reason: String::new() }),
            ..VersionRecord::default()
        }
    }

    fn forgotten_of(all: &[(&str, VersionRecord)], running: &[&str]) -> Vec<String> {
        let records: Records<'_> = all.iter().map(|(version, record)| (*version, record)).collect();
        let found = forgotten(&records, |version| running.contains(&version), |_| false);
        found.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_node_alone_holds_one_halt() {
        let halt = |seen, nodes: &[&str]| record(seen, nodes, true);
        let all = [("1.0.1", halt(1, &["a"])), ("1.0.2", halt(2, &["a"])), ("1.0.3", halt(3, &["b"]))];
        assert_eq!(forgotten_of(&all, &[]), ["1.0.1"]);
        let both = [("1.0.1", halt(1, &["a", "b"])), ("1.0.2", halt(2, &["a"]))];
        assert_eq!(forgotten_of(&both, &[]), [""; 0], "b has failed nothing else");
        let three = [("1.0.1", halt(1, &["a", "b"])), ("1.0.2", halt(2, &["a"])), ("1.0.3", halt(3, &["b"]))];
        assert_eq!(forgotten_of(&three, &[]), ["1.0.1"]);
        let unknown = [("1.0.1", halt(1, &[])), ("1.0.2", halt(2, &["a"]))];
        assert_eq!(forgotten_of(&unknown, &[]), [""; 0], "nobody knows whose it is");
        let without = [("1.0.1", halt(1, &["a"])), ("1.0.2", record(2, &["a"], false))];
        assert_eq!(forgotten_of(&without, &[]), [""; 0], "only a halt replaces a halt");
    }

    #[test]
    fn what_matters_least_goes_first() {
        let fill = |count| {
            (0..count).map(|nth| (format!("2.0.{nth}"), record(100 + nth, &[], true))).collect::<Vec<_>>()
        };
        let others = [
            ("1.0.1", record(1, &["a"], false)),
            ("1.0.2", record(2, &[], false)),
            ("1.0.3", record(3, &[], false)),
            ("1.0.4", record(4, &[], false)),
        ];
        for (room, expected) in [
            (4, &[][..]),
            (3, &["1.0.3"]),
            (2, &["1.0.3", "1.0.4"]),
            (1, &["1.0.3", "1.0.4", "1.0.2"]),
            (0, &["1.0.3", "1.0.4", "1.0.2", "1.0.1"]),
        ] {
            let filled = fill(VERSION_RECORDS_MAX - room);
            let mut all: Vec<_> = filled.iter().map(|(version, it)| (version.as_str(), it.clone())).collect();
            all.extend(others.clone());
            assert_eq!(forgotten_of(&all, &["1.0.2"]), expected, "room for {room}");
        }
    }

    proptest! {
        /// Whatever happened: the ledger is never too full, and no halt is forgotten unless all its nodes hold newer ones.
        #[test]
        fn a_halt_is_never_forgotten_for_room(
            made in prop::collection::vec((0_usize..100, prop::collection::vec(0_usize..90, 0..3), any::<bool>()), 0..150),
            stored in 0_usize..=VERSION_RECORDS_MAX,
        ) {
            let names: Vec<String> = (0..90).map(|number| format!("n{number}")).collect();
            let all: Vec<(String, VersionRecord)> = made
                .iter()
                .enumerate()
                .map(|(nth, (seen, nodes, halted))| {
                    let nodes: Vec<&str> = nodes.iter().map(|node| names[*node].as_str()).collect();
                    (format!("1.0.{nth}"), record(*seen, &nodes, *halted))
                })
                .collect();
            let records: Records<'_> = all.iter().map(|(version, record)| (version.as_str(), record)).collect();
            let old: Vec<&str> = records.keys().copied().take(stored).collect();
            let gone = forgotten(&records, |_| false, |version| !old.contains(&version));
            let kept: Vec<_> = records.iter().filter(|(version, _)| !gone.contains(version)).collect();
            prop_assert!(kept.len() <= VERSION_RECORDS_MAX);
            let all_halts = kept.iter().all(|(_, record)| record.halted.is_some());
            for version in gone.iter().filter(|version| records[*version].halted.is_some()) {
                let mine = Reverse((records[version].halted.as_ref().unwrap().at.clone(), *version));
                let replaced = !records[version].failures.is_empty()
                    && records[version].failures.iter().all(|failure| {
                        records.iter().any(|(other, it)| {
                            it.failures.iter().any(|it| it.node == failure.node)
                                && it.halted.as_ref().is_some_and(|it| Reverse((it.at.clone(), *other)) < mine)
                        })
                    });
                prop_assert!(replaced || (!old.contains(version) && all_halts), "{version}");
            }
        }
    }
}
