//! The arithmetic of the records of versions: what counts, what halts a version and where, and which records are forgotten.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::{FAILED_NODES_MAX, HALT_REASON_MAX, VARIANTS_MAX, VERSION_RECORDS_MAX};
use brupop_api::fleet::{Halt, NodeFailure, VersionRecord};
use brupop_api::printable::printable;
use jiff::{SignedDuration, Timestamp};

use crate::facts::FleetFacts;
use crate::times;

/// Times are written in whole seconds.
const NEXT: SignedDuration = SignedDuration::from_secs(1);
/// Maximum number of nodes that the sentence of a halt names.
const NODES_NAMED: usize = 3;

/// A version that is halted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted<'a> {
    /// The version.
    pub version: &'a str,
    /// The nodes that failed to reach it, and how.
    pub why: String,
}

pub(super) fn number(failures: &[&NodeFailure]) -> u64 {
    u64::try_from(failures.len()).unwrap_or(u64::MAX)
}

/// The failed nodes as a phrase of bounded length, the latest first.
fn failed_nodes(failures: &[&NodeFailure]) -> String {
    let named = failures.iter().rev().take(NODES_NAMED).map(|failure| {
        // A node's name may be as long as the whole phrase.
        let node: String = failure.node.chars().take(48).collect();
        format!("{node} ({})", failure.reason)
    });
    let more = failures.len().saturating_sub(NODES_NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    named.chain(more).collect::<Vec<_>>().join(", ")
}

/// Adds a failure to a record, in which each node has one. [`halt`] sees to it that they do not become too many.
pub(super) fn note_failure(record: &mut VersionRecord, new: NodeFailure) {
    record.failures.retain(|failure| failure.node != new.node);
    record.failures.push(new);
}

/// Halts the version with this record for each variant of which too many nodes failed to reach it, by the threshold of each;
/// tells if it was not halted there before. A further failure makes a halt a later one, which nobody has acknowledged yet.
///
/// The record has room for [`FAILED_NODES_MAX`] failures. Before it loses one that may still halt the version somewhere, the
/// version is halted for each variant: otherwise those that fail in turn would push each other's failures out.
pub(super) fn halt<'a>(
    now: &str,
    version: &'a str,
    record: &mut VersionRecord,
    threshold: impl Fn(&VersionRecord, Option<&str>) -> u64,
) -> Option<Halted<'a>> {
    let mut halted = halt_where(now, version, record, |record, variant, failed| {
        failed >= threshold(record, variant)
    });
    let mut needed = needed(record);
    if needed.iter().filter(|needed| **needed).count() > FAILED_NODES_MAX {
        halted = halt_where(now, version, record, |_, _, _| true).or(halted);
        needed.fill(false);
    }
    let mut surplus = record.failures.len().saturating_sub(FAILED_NODES_MAX);
    let mut needed = needed.into_iter();
    record.failures.retain(|_| {
        let goes = needed.next() == Some(false) && surplus > 0;
        surplus -= usize::from(goes);
        !goes
    });
    halted
}

/// Which failures of this record may still halt the version somewhere: those that count for a variant for which it
/// is not halted.
fn needed(record: &VersionRecord) -> Vec<bool> {
    let is_halted = |variant: Option<&str>| {
        let halted =
            |halt: &Halt| halt.variants.is_empty() || variant.is_some() && halt.covers(variant);
        record.halted.as_ref().is_some_and(halted)
    };
    let needed =
        |failure: &NodeFailure| counts(record, failure) && !is_halted(failure.variant.as_deref());
    record.failures.iter().map(needed).collect()
}

/// Halts the version for each variant of failures that count, where `is_spent` says so of their number.
fn halt_where<'a>(
    now: &str,
    version: &'a str,
    record: &mut VersionRecord,
    is_spent: impl Fn(&VersionRecord, Option<&str>, u64) -> bool,
) -> Option<Halted<'a>> {
    let counting = counting(record);
    let before = record.halted.clone();
    let variants: BTreeSet<Option<&str>> = counting
        .iter()
        .map(|failure| failure.variant.as_deref())
        .collect();
    let is_spent = |variant: Option<&str>| {
        let failed = number(&of_variant(&counting, variant));
        is_spent(record, variant, failed)
    };
    let spent: BTreeSet<Option<&str>> = variants
        .into_iter()
        .filter(|variant| is_spent(*variant))
        .collect();
    if before.is_none() && spent.is_empty() {
        return None;
    }
    let variants = halted_variants(before.as_ref(), &spent);
    let covered = Halt {
        variants,
        ..Halt::default()
    };
    let failed: Vec<_> = counting
        .into_iter()
        .filter(|failure| covered.covers(failure.variant.as_deref()))
        .collect();
    let since = before.as_ref().map_or(now, |halt| &halt.at);
    let at = failed
        .iter()
        .fold(since, |at, failure| later(at, &failure.at))
        .to_owned();
    if before
        .as_ref()
        .is_some_and(|halt| halt.at == at && halt.variants == covered.variants)
    {
        return None;
    }
    let nodes = failed_nodes(&failed);
    let Halt { variants, .. } = covered;
    let of = if variants.is_empty() {
        String::new()
    } else {
        format!("nodes of {}: ", variants.join(", "))
    };
    let why = format!("it failed on {of}{nodes}");
    let is_new = before.is_none_or(|before| before.variants != variants);
    record.halted = Some(Halt {
        at,
        reason: printable(&why, HALT_REASON_MAX).into_owned(),
        variants,
    });
    is_new.then_some(Halted { version, why })
}

/// The variants in which a version is halted, if it was like that before and these have reached their thresholds; none = all.
fn halted_variants(before: Option<&Halt>, spent: &BTreeSet<Option<&str>>) -> Vec<String> {
    if spent.contains(&None) || before.is_some_and(|halt| halt.variants.is_empty()) {
        return vec![];
    }
    let before = before
        .into_iter()
        .flat_map(|halt| &halt.variants)
        .map(String::as_str);
    let all: BTreeSet<&str> = before.chain(spent.iter().copied().flatten()).collect();
    if all.len() > VARIANTS_MAX {
        vec![]
    } else {
        all.into_iter().map(str::to_owned).collect()
    }
}

/// The failures that count in this variant. Where it is not known, all of them do, and a failure of an unknown one
/// counts everywhere.
pub(super) fn of_variant<'f>(
    failures: &[&'f NodeFailure],
    variant: Option<&str>,
) -> Vec<&'f NodeFailure> {
    let counts = |failure: &&&NodeFailure| {
        failure
            .variant
            .as_deref()
            .zip(variant)
            .is_none_or(|(one, other)| one == other)
    };
    failures.iter().filter(counts).copied().collect()
}

/// The time up to which a person who has acknowledged halts up to `named` lifts this one; `None` if nobody does.
pub(super) fn lifted(now: &str, named: Option<Timestamp>, halt: &Halt) -> Option<Timestamp> {
    let at = time(&halt.at)?;
    // The clock of an earlier leader may have been ahead, so a halt may be of a time that has not come.
    named.filter(|named| *named >= at && Some(*named) <= time(now).max(Some(at)))
}

/// The time of what is counted now against the version with this record, if a person has acknowledged halts up to `named`.
pub(super) fn moment(now: &str, named: Option<Timestamp>, record: &VersionRecord) -> String {
    let text = now;
    let now = time(text);
    let halted = record.halted.as_ref().and_then(|halt| time(&halt.at));
    let acknowledged = record.acknowledged_at.as_deref().and_then(time);
    // The record may have been forgotten since. A time that lies ahead must not lift, once it has come, what nobody saw.
    let last = [halted, acknowledged, named].into_iter().flatten().max();
    let next = last
        .and_then(|last| last.checked_add(NEXT).ok())
        .filter(|next| Some(*next) > now);
    next.map_or_else(|| text.to_owned(), |next| next.to_string())
}

/// The failures that no person has acknowledged.
pub(super) fn counting(record: &VersionRecord) -> Vec<&NodeFailure> {
    record
        .failures
        .iter()
        .filter(|failure| counts(record, failure))
        .collect()
}

/// Has no person acknowledged this failure of the record? One whose time cannot be read counts.
fn counts(record: &VersionRecord, failure: &NodeFailure) -> bool {
    let acknowledged = record.acknowledged_at.as_deref().and_then(time);
    acknowledged
        .zip(time(&failure.at))
        .is_none_or(|(acknowledged, failed)| failed > acknowledged)
}

/// The later of these times, as it is written there.
fn later<'t>(one: &'t str, other: &'t str) -> &'t str {
    if time(other) > time(one) { other } else { one }
}

pub(super) fn time(text: &str) -> Option<Timestamp> {
    times::read(Some(text))
}

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
        let by_newer = |node: &str| {
            newest
                .get(node)
                .is_some_and(|(_, newest)| *newest != version)
        };
        record.halted.is_some()
            && !record.failures.is_empty()
            && record
                .failures
                .iter()
                .all(|failure| by_newer(&failure.node))
    };
    let (mut forgotten, kept): (Vec<_>, Vec<_>) = records
        .iter()
        .map(|(version, record)| (*version, *record))
        .partition(|(v, r)| replaced(v, r));
    let surplus = kept.len().saturating_sub(VERSION_RECORDS_MAX);
    let (halts, mut others): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|(_, r)| r.halted.is_some());
    others.sort_by_key(|(version, record)| {
        (
            !record.failures.is_empty(),
            runs(version),
            record.first_seen.as_deref(),
        )
    });
    let without_room = surplus.saturating_sub(others.len());
    forgotten.extend(others.into_iter().take(surplus));
    forgotten.extend(
        halts
            .into_iter()
            .filter(|(version, _)| is_new(version))
            .take(without_room),
    );
    forgotten.into_iter().map(|(version, _)| version).collect()
}

/// Is the ledger full of halts? Then a version that it does not know may have failed, too, and no node begins with it.
pub(super) fn is_full(fleet: &FleetFacts<'_>) -> bool {
    fleet.versions.len() >= VERSION_RECORDS_MAX
        && fleet.versions.values().all(|it| it.halted.is_some())
}

/// The newest halt of each node that failed, and its time.
fn newest_halts<'r>(records: &Records<'r>) -> BTreeMap<&'r str, (Option<Timestamp>, &'r str)> {
    let mut newest = BTreeMap::new();
    for (version, record) in records {
        let Some(halt) = &record.halted else { continue };
        let of_this = (time(&halt.at), *version);
        for failure in &record.failures {
            let known = newest.entry(failure.node.as_str()).or_insert(of_this);
            *known = (*known).max(of_this);
        }
    }
    newest
}

/// Was this node's failure of that time counted before? A request that took long may take the slot of an attempt that is
/// over once more.
pub(super) fn is_counted(
    fleet: &FleetFacts<'_>,
    record: &VersionRecord,
    node: &str,
    failed_at: &str,
) -> bool {
    let counted = record.failures.iter().find(|failure| failure.node == node);
    // What a clock that was ahead has counted hides nothing.
    counted.is_some_and(|it| time(failed_at) <= time(&it.at) && time(&it.at) <= time(fleet.now))
}
