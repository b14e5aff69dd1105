//! What the ledger remembers of each version: how many nodes reached it, which failed, and whether it goes on.
//!
//! All of it rests on Nodes, workloads and our own spec. Nothing that an agent reports can count a failure or lift a
//! halt. A person lifts halts by an acknowledgement, which names a time: it lifts what was counted up to then, and nothing
//! that comes later, however long it stands in the spec. So what is counted is given a time that is later than what was
//! acknowledged before, whatever the leaders' clocks say, and also within the same second.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::{
    ACKNOWLEDGED_HALTS_MAX, FAILED_NODES_MAX, HALT_REASON_MAX, MESSAGE_MAX, VARIANTS_MAX, VERSION_RECORDS_MAX,
};
use brupop_api::fleet::{AcknowledgedHalt, Halt, NodeFailure, Slot, VersionRecord};
use brupop_api::printable::printable;
use brupop_api::{Field, State, Value, names};
use jiff::{SignedDuration, Timestamp};

use super::order::{self, Survey};
use super::pool_halts::PoolHalts;
use super::{Abort, update};
use crate::facts::{FleetFacts, NamedSlot, NodeFacts, NodeView};
use crate::policy::FailureBudget;
use crate::times;

/// What of the message about halts is for the nodes that failed, at least, in bytes.
const WHY: usize = 160;
/// Times are written in whole seconds.
const NEXT: SignedDuration = SignedDuration::from_secs(1);
/// A halt names at most so many nodes.
const NODES_NAMED: usize = 3;
/// The reason of a failure that is counted while the host is still away.
pub(crate) const NOT_RETURNED: &str = "NotReturned";

/// A version that is halted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted<'a> {
    /// The version.
    pub version: &'a str,
    /// The nodes that failed to reach it, and how.
    pub why: String,
}

/// The records that change.
#[derive(Default)]
pub(super) struct Versions<'a> {
    changed: BTreeMap<&'a str, VersionRecord>,
    /// The versions that are halted now.
    pub(super) halted: Vec<Halted<'a>>,
    /// Slots, by name of the shadow, that note something of their nodes from this pass on.
    noted: BTreeMap<&'a str, Slot>,
    /// The records of single pools.
    pools: PoolHalts<'a>,
    /// An update is over.
    pub(super) finished: bool,
}

impl<'a> Versions<'a> {
    /// The records as they change in this pass: by what a person acknowledges, by these updates that are over, and
    /// by those that keep their slots (`kept`) and have failed.
    pub(super) fn after<'b>(
        fleet: &FleetFacts<'a>,
        over: impl Iterator<Item = (&'a str, Option<&'b NodeView<'a>>)>,
        kept: impl Iterator<Item = (&'b NodeView<'a>, NamedSlot<'a>)>,
    ) -> Self
    where
        'a: 'b,
    {
        let mut versions = Self::default();
        versions.lift(fleet);
        versions.pools.lift(fleet);
        for (name, view) in over {
            versions.count(fleet, name, view);
        }
        // What cannot be read says nothing of its host.
        for (view, slot) in kept.filter(|(view, _)| !view.unreadable) {
            versions.note_lost(view, slot);
            versions.count_early(fleet, view, slot);
        }
        versions.halt(fleet);
        versions
    }

    /// Notes which pools are done with which version, for those that come after them.
    pub(super) fn note_done(&mut self, fleet: &FleetFacts<'a>, views: &[NodeView<'a>], survey: &Survey<'a>) {
        let notes = order::notes(
            fleet,
            views,
            survey,
            |version| self.record(fleet, version),
            |pool, version| self.pools.is_halted(fleet, (pool, version)),
        );
        for (version, done_pools) in notes {
            let known = fleet.versions.get_key_value(&version).map(|(version, _)| version.as_str());
            let wanted = || views.iter().filter_map(|view| view.shadow?.update()).find(|it| **it == *version);
            if let Some(version) = known.or_else(wanted) {
                self.change(fleet, version, |record| record.done_pools = done_pools);
            }
        }
    }

    /// Lifts the halts that a person has acknowledged. One whose time cannot be read is given another, so that somebody can.
    fn lift(&mut self, fleet: &FleetFacts<'a>) {
        for (version, record) in fleet.versions {
            let Some(halt) = &record.halted else { continue };
            if let Some(upto) = lifted(fleet.now, acknowledged_time(fleet, version), halt) {
                self.change(fleet, version, |record| {
                    (record.halted, record.acknowledged_at) = (None, Some(upto.to_string()));
                });
            } else if time(&halt.at).is_none() {
                let at = moment(fleet.now, acknowledged_time(fleet, version), record);
                self.change(fleet, version, |record| record.halted = Some(Halt { at, ..halt.clone() }));
            }
        }
    }

    /// Do the changes of this pass halt this version for this node?
    pub(super) fn halts(&self, fleet: &FleetFacts<'a>, view: &NodeView<'a>, version: &str) -> bool {
        let variant = view.node.and_then(|node| node.variant);
        let halted = |record: &VersionRecord| record.is_halted_for(variant);
        self.changed.get(version).is_some_and(halted) || self.pools.halts(fleet, view, version)
    }

    /// The record of this version, as it will be.
    fn record(&self, fleet: &FleetFacts<'a>, version: &str) -> Option<&VersionRecord> {
        self.changed.get(version).or_else(|| fleet.versions.get(version))
    }

    fn change(&mut self, fleet: &FleetFacts<'a>, version: &'a str, change: impl FnOnce(&mut VersionRecord)) {
        let record = self.changed.entry(version).or_insert_with(|| {
            let new = || VersionRecord { first_seen: Some(fleet.now.to_owned()), ..VersionRecord::default() };
            fleet.versions.get(version).cloned().unwrap_or_else(new)
        });
        change(record);
    }

    /// Counts an update that is over, whose slot has this name.
    fn count(&mut self, fleet: &FleetFacts<'a>, name: &'a str, view: Option<&NodeView<'a>>) {
        let Some(slot) = fleet.slots.get(name) else { return };
        let node = view.and_then(|view| view.node);
        let name = names::node_of_shadow(name).unwrap_or(name);
        let shadow = view.and_then(|view| view.shadow).filter(|shadow| shadow.uid == slot.uid);
        if slot.lost
            && !slot.counted
            && let Some(version) = slot.version.as_deref()
            && (shadow.is_none() || node.is_none())
            && node.is_none_or(|node| node.version != Some(version))
        {
            // Whatever deleted its Node, and perhaps its shadow: the host began its reboot, and was not seen again.
            self.failed(fleet, slot, version, (name, None), NOT_RETURNED);
        }
        let Some(shadow) = shadow else { return };
        let Some(version) = shadow.spec.version else { return };
        self.finished = true;
        let failure = shadow.spec.failures.filter(|failures| failures.attempt == slot.attempt);
        if let Some(failure) = failure {
            let in_pool = self.pools.record(fleet, slot, version, &failure.reason);
            let mut records = in_pool.into_iter().chain(fleet.versions.get(version));
            let known = records.any(|it| is_counted(fleet, it, name, &failure.at));
            if !slot.counted && !known && Abort::is_corroborated(&failure.reason) {
                // This counts even if the Node is gone: a node that failed and was replaced has failed all the same.
                self.failed(fleet, slot, version, (name, node), &failure.reason);
            }
            return;
        }
        if let Some(node) = node.filter(|node| node.version == Some(version)) {
            self.change(fleet, version, |record| {
                record.succeeded += 1;
                if let Some(variant) = node.variant.filter(|variant| !record.is_proven_for(Some(variant)))
                    && record.proven_variants.len() < VARIANTS_MAX
                {
                    record.proven_variants.push(variant.to_owned());
                }
                // A node that was counted as failed has come back after all.
                record.failures.retain(|failure| failure.node != node.name);
            });
            self.pools.succeeded(fleet, slot, version, node.name);
        }
    }

    /// Notes whether a Node that is deleted from now on counts as failed: if its host claimed the reboot, it was not Ready
    /// for long, and no autoscaler had said before that it removes it. So whoever repairs a host by replacing it hides no
    /// failure, and whoever removes a node makes none.
    fn note_lost(&mut self, view: &NodeView<'a>, (name, slot): NamedSlot<'a>) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else { return };
        // Another machine may have come under the same name, before its shadow or after.
        if shadow.uid != slot.uid || view.owner_uid.is_some_and(|uid| uid != node.uid) {
            return;
        }
        let claimed = shadow.spec.reboot_from_boot_id.is_some()
            && shadow.spec.reboot_from_boot_id == shadow.status.reboot_requested;
        let lost = !node.ready && (slot.lost || claimed && !node.leaving && view.time.not_ready_for_long);
        if lost != slot.lost {
            self.noted.insert(name, Slot { lost, ..slot.clone() });
        }
    }

    /// Counts a failure whose slot is kept: of a host that has been away for longer than a reboot may take, or of one
    /// that is given up but may be away for long. The slot notes that it is counted, so that it is counted once, however
    /// many nodes fail and whatever a person acknowledges meanwhile.
    fn count_early(&mut self, fleet: &FleetFacts<'a>, view: &NodeView<'a>, (name, slot): NamedSlot<'a>) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else { return };
        let Some(version) = shadow.spec.version.filter(|_| slot.uid == shadow.uid && !slot.counted) else {
            return;
        };
        let overdue = shadow.spec.state == State::RebootedIntoUpdate && !node.ready && view.time.step_overdue;
        let failure = shadow.spec.failures.filter(|failures| failures.attempt == slot.attempt);
        match failure {
            Some(failure) if Abort::is_corroborated(&failure.reason) => {
                self.failed(fleet, slot, version, (node.name, Some(node)), &failure.reason);
            }
            None if overdue && update::has_begun_reboot(&node, &shadow) => {
                self.failed(fleet, slot, version, (node.name, Some(node)), NOT_RETURNED);
            }
            _ => return,
        }
        self.noted.entry(name).or_insert_with(|| slot.clone()).counted = true;
    }

    /// How many more nodes of this variant may fail before the version is halted for them; `None` = any number, and so if one
    /// of them has reached it.
    pub(super) fn may_still_fail(
        &self,
        fleet: &FleetFacts<'a>,
        (version, variant): (&str, Option<&str>),
    ) -> Option<u64> {
        let budget = fleet.budget.unproven?;
        let Some(record) = self.record(fleet, version) else { return Some(budget) };
        let failed = || number(&of_variant(&counting(record), variant));
        (!record.is_proven_for(variant)).then(|| budget.saturating_sub(failed()))
    }

    /// Counts a failure, in the pool in which the slot was taken or in the whole fleet. What is known of the node, if it is
    /// still there, says in which variant.
    fn failed(
        &mut self,
        fleet: &FleetFacts<'a>,
        slot: &'a Slot,
        version: &'a str,
        (name, node): (&str, Option<NodeFacts<'a>>),
        reason: &str,
    ) {
        if self.pools.failed(fleet, slot, version, name, reason) {
            return;
        }
        let named = acknowledged_time(fleet, version);
        let variant = node.and_then(|node| node.variant).map(str::to_owned);
        self.change(fleet, version, |record| {
            let at = moment(fleet.now, named, record);
            note_failure(record, NodeFailure { node: name.into(), at, reason: reason.into(), variant });
        });
    }

    /// Halts the versions that too many nodes failed to reach.
    fn halt(&mut self, fleet: &FleetFacts<'a>) {
        for (version, record) in &mut self.changed {
            let FailureBudget { proven, unproven } = fleet.budget;
            let budget = |record: &VersionRecord, variant: Option<&str>| {
                if record.is_proven_for(variant) { proven } else { unproven }
            };
            self.halted.extend(halt(fleet.now, version, record, budget));
        }
        let Self { changed, pools, halted, .. } = self;
        let is_proven = |version: &str| {
            let record = changed.get(version).or_else(|| fleet.versions.get(version));
            record.is_some_and(|record| record.succeeded > 0)
        };
        halted.extend(pools.halt(fleet, is_proven));
    }

    /// What is to be set in the ledger.
    pub(super) fn sets(
        mut self,
        fleet: &FleetFacts<'a>,
        views: &[NodeView<'a>],
    ) -> Vec<(Field<'a>, Value<'a>)> {
        let noted = std::mem::take(&mut self.noted).into_iter();
        let mut sets: Vec<(Field<'a>, Value<'a>)> =
            noted.map(|(name, slot)| (Field::Slot(name), Value::Slot(slot))).collect();
        for version in self.forgotten(fleet, views) {
            self.changed.remove(version.as_str());
            if let Some((stored, _)) = fleet.versions.get_key_value(&version) {
                sets.push((Field::VersionRecord(stored), Value::Absent));
            }
        }
        sets.extend(
            self.changed
                .into_iter()
                .map(|(version, record)| (Field::VersionRecord(version), Value::VersionRecord(record))),
        );
        sets.extend(self.pools.sets(fleet));
        if self.finished {
            sets.push((Field::LastFinished, Value::text(fleet.now)));
        }
        sets
    }
}

impl Versions<'_> {
    /// The versions that the ledger forgets, once this pass changes it.
    fn forgotten(&self, fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> Vec<String> {
        if self.changed.is_empty() {
            return vec![];
        }
        let stored = fleet.versions.iter().map(|(version, record)| (version.as_str(), record));
        let changed = self.changed.iter().map(|(version, record)| (*version, record));
        let records: Records<'_> = stored.chain(changed).collect();
        let runs = |version: &str| {
            views.iter().filter_map(|view| view.node).any(|node| node.version == Some(version))
        };
        let is_new = |version: &str| !fleet.versions.contains_key(version);
        forgotten(&records, runs, is_new).into_iter().map(str::to_owned).collect()
    }
}

fn number(failures: &[&NodeFailure]) -> u64 {
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

/// Halts the version with this record for each variant of which too many nodes failed to reach it, by the budget of each;
/// tells if it was not halted there before. A further failure makes a halt a later one, which nobody has acknowledged yet.
///
/// The record has room for [`FAILED_NODES_MAX`] failures. Before it loses one that may still halt the version somewhere, the
/// version is halted for each variant with a budget: otherwise those that fail in turn would push each other's failures out.
pub(super) fn halt<'a>(
    now: &str,
    version: &'a str,
    record: &mut VersionRecord,
    budget: impl Fn(&VersionRecord, Option<&str>) -> Option<u64>,
) -> Option<Halted<'a>> {
    let mut halted = halt_where(now, version, record, |record, variant, failed| {
        budget(record, variant).is_some_and(|budget| failed >= budget)
    });
    let mut needed = needed(record, &budget);
    if needed.iter().filter(|needed| **needed).count() > FAILED_NODES_MAX {
        let full = halt_where(now, version, record, |record, variant, _| budget(record, variant).is_some());
        halted = full.or(halted);
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

/// Which failures of this record may still halt the version somewhere: those that count for a variant with a budget, and for
/// which it is not halted.
fn needed(record: &VersionRecord, budget: impl Fn(&VersionRecord, Option<&str>) -> Option<u64>) -> Vec<bool> {
    let is_halted = |variant: Option<&str>| {
        let halted = |halt: &Halt| halt.variants.is_empty() || variant.is_some() && halt.covers(variant);
        record.halted.as_ref().is_some_and(halted)
    };
    let needed = |failure: &NodeFailure| {
        let variant = failure.variant.as_deref();
        counts(record, failure) && budget(record, variant).is_some() && !is_halted(variant)
    };
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
    let variants: BTreeSet<Option<&str>> =
        counting.iter().map(|failure| failure.variant.as_deref()).collect();
    let is_spent = |variant: Option<&str>| {
        let failed = number(&of_variant(&counting, variant));
        is_spent(record, variant, failed)
    };
    let spent: BTreeSet<Option<&str>> = variants.into_iter().filter(|variant| is_spent(*variant)).collect();
    if before.is_none() && spent.is_empty() {
        return None;
    }
    let variants = halted_variants(before.as_ref(), &spent);
    let covered = Halt { variants, ..Halt::default() };
    let failed: Vec<_> =
        counting.into_iter().filter(|failure| covered.covers(failure.variant.as_deref())).collect();
    let since = before.as_ref().map_or(now, |halt| &halt.at);
    let at = failed.iter().fold(since, |at, failure| later(at, &failure.at)).to_owned();
    if before.as_ref().is_some_and(|halt| halt.at == at && halt.variants == covered.variants) {
        return None;
    }
    let nodes = failed_nodes(&failed);
    let Halt { variants, .. } = covered;
    let of = if variants.is_empty() { String::new() } else { format!("nodes of {}: ", variants.join(", ")) };
    let why = format!("it failed on {of}{nodes}");
    let is_new = before.is_none_or(|before| before.variants != variants);
    record.halted = Some(Halt { at, reason: printable(&why, HALT_REASON_MAX).into_owned(), variants });
    is_new.then_some(Halted { version, why })
}

/// The variants in which a version is halted, if it was like that before and these have spent their budgets; none = all.
fn halted_variants(before: Option<&Halt>, spent: &BTreeSet<Option<&str>>) -> Vec<String> {
    if spent.contains(&None) || before.is_some_and(|halt| halt.variants.is_empty()) {
        return vec![];
    }
    let before = before.into_iter().flat_map(|halt| &halt.variants).map(String::as_str);
    let all: BTreeSet<&str> = before.chain(spent.iter().copied().flatten()).collect();
    if all.len() > VARIANTS_MAX { vec![] } else { all.into_iter().map(str::to_owned).collect() }
}

/// The failures that count in this variant. Where it is not known, all of them do, and a failure of an unknown one
/// counts everywhere.
fn of_variant<'f>(failures: &[&'f NodeFailure], variant: Option<&str>) -> Vec<&'f NodeFailure> {
    let counts = |failure: &&&NodeFailure| {
        failure.variant.as_deref().zip(variant).is_none_or(|(one, other)| one == other)
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
    let next = last.and_then(|last| last.checked_add(NEXT).ok()).filter(|next| Some(*next) > now);
    next.map_or_else(|| text.to_owned(), |next| next.to_string())
}

/// Was this node's failure of that time counted before? A request that took long may take the slot of an attempt that is
/// over once more.
fn is_counted(fleet: &FleetFacts<'_>, record: &VersionRecord, node: &str, failed_at: &str) -> bool {
    let counted = record.failures.iter().find(|failure| failure.node == node);
    // What a clock that was ahead has counted hides nothing.
    counted.is_some_and(|it| time(failed_at) <= time(&it.at) && time(&it.at) <= time(fleet.now))
}

/// The failures that no person has acknowledged.
fn counting(record: &VersionRecord) -> Vec<&NodeFailure> {
    record.failures.iter().filter(|failure| counts(record, failure)).collect()
}

/// Has no person acknowledged this failure of the record? One whose time cannot be read counts.
fn counts(record: &VersionRecord, failure: &NodeFailure) -> bool {
    let acknowledged = record.acknowledged_at.as_deref().and_then(time);
    acknowledged.zip(time(&failure.at)).is_none_or(|(acknowledged, failed)| failed > acknowledged)
}

/// The later of these times, as it is written there.
fn later<'t>(one: &'t str, other: &'t str) -> &'t str {
    if time(other) > time(one) { other } else { one }
}

/// The time that a person names in the acknowledgement of this version.
fn acknowledged_time(fleet: &FleetFacts<'_>, version: &str) -> Option<Timestamp> {
    let of_version = fleet.acknowledged.iter().find(|acknowledged| acknowledged.version == version);
    of_version.and_then(|acknowledged| time(&acknowledged.halted_at))
}

fn time(text: &str) -> Option<Timestamp> {
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
        let of_this = (time(&halt.at), *version);
        for failure in &record.failures {
            let known = newest.entry(failure.node.as_str()).or_insert(of_this);
            *known = (*known).max(of_this);
        }
    }
    newest
}

/// What a person types to lift the halts, as the end of a sentence; empty if no halt can be lifted. A merge patch
/// replaces the whole list, so the command names all halts, and keeps what stands there for other versions that the
/// ledger knows, as far as there is room: it has been acknowledged.
pub fn how_to_lift(
    object: HaltedIn<'_>,
    records: &[(&str, &VersionRecord)],
    acknowledged: &[AcknowledgedHalt],
) -> String {
    let halts: Vec<(&str, &str)> = records
        .iter()
        .filter_map(|(version, record)| Some((*version, record.halted.as_ref()?.at.as_str())))
        .collect();
    let is_halted: BTreeSet<&str> = halts.iter().map(|(version, _)| *version).collect();
    let is_known = |version: &str| records.iter().any(|(known, _)| *known == version);
    let kept = acknowledged
        .iter()
        .map(|it| (it.version.as_str(), it.halted_at.as_str()))
        .filter(|(version, _)| is_known(version) && !is_halted.contains(version));
    let (mut items, mut lifted) = (String::new(), 0);
    let mut room = MESSAGE_MAX - WHY - object.command("").len();
    for (nth, (version, at)) in halts.iter().copied().chain(kept).filter(is_plain).enumerate() {
        let comma = if items.is_empty() { "" } else { "," };
        let item = format!(r#"{comma}{{"version":"{version}","haltedAt":"{at}"}}"#);
        let Some(left) = room.checked_sub(item.len()).filter(|_| nth < ACKNOWLEDGED_HALTS_MAX) else { break };
        (room, items) = (left, items + &item);
        lifted += usize::from(is_halted.contains(version));
    }
    if lifted == 0 {
        return String::new();
    }
    let some =
        if lifted < halts.len() { format!(" with {lifted} of {}", halts.len()) } else { String::new() };
    format!("; to go on{some}: {}", object.command(&items))
}

/// Where versions are halted.
#[derive(Clone, Copy, Debug)]
pub struct HaltedIn<'a> {
    /// The operator's namespace.
    pub namespace: &'a str,
    /// The pool; `None` = the whole fleet.
    pub pool: Option<&'a str>,
}

impl HaltedIn<'_> {
    fn command(self, items: &str) -> String {
        let Self { namespace, pool } = self;
        let (kind, name) = pool.map_or(("brf", names::FLEET), |pool| ("brp", pool));
        format!(
            r#"kubectl -n {namespace} patch {kind} {name} --type=merge -p '{{"spec":{{"acknowledgedHalts":[{items}]}}}}'"#
        )
    }
}

/// Is there nothing in this version and time that a shell or JSON would not take for a letter? The API server lets
/// nothing else stand there; but people paste this.
pub(super) fn is_plain((version, at): &(&str, &str)) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:+-".contains(&byte);
    [version, at].iter().all(|text| !text.is_empty() && text.bytes().all(plain))
}
