//! What the ledger remembers of each version: how many nodes reached it, which failed, and whether it goes on.
//!
//! All of it rests on Nodes and our own spec. Nothing that an agent reports can count a failure or lift a
//! halt. A person lifts halts by an acknowledgement, which names a time: it lifts what was counted up to then, and nothing
//! that comes later, however long it stands in the spec. So what is counted is given a time that is later than what was
//! acknowledged before, whatever the leaders' clocks say, and also within the same second.

use std::collections::BTreeMap;

use brupop_api::crds::VARIANTS_MAX;
use brupop_api::fleet::{Halt, NodeFailure, Slot, VersionRecord};
use brupop_api::{Field, State, Value, names};
use jiff::Timestamp;

use super::Abort;
use super::boot::has_begun_reboot;
use super::order::{self, Survey};
use super::records::{
    Halted, Records, counting, forgotten, halt, is_counted, lifted, moment, note_failure, number,
    of_variant, time,
};
use crate::facts::{FleetFacts, NamedSlot, NodeFacts, NodeView};
use crate::rules::FailureBudget;
use crate::times;

/// The reason of a failure that is counted while the host is still away.
pub(crate) const NOT_RETURNED: &str = "NotReturned";

/// The records that change.
#[derive(Default)]
pub(super) struct VersionRecords<'a> {
    changed: BTreeMap<&'a str, VersionRecord>,
    /// The versions that are halted now.
    pub(super) halted: Vec<Halted<'a>>,
    /// Slots, by name of the shadow, that note something of their nodes from this pass on.
    noted: BTreeMap<&'a str, Slot>,
    /// An update is over.
    pub(super) finished: bool,
}

impl<'a> VersionRecords<'a> {
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
    pub(super) fn note_done(
        &mut self,
        fleet: &FleetFacts<'a>,
        views: &[NodeView<'a>],
        survey: &Survey<'a>,
    ) {
        let notes = order::notes(fleet, views, survey, |version| self.record(fleet, version));
        for (version, done_pools) in notes {
            let known = fleet
                .versions
                .get_key_value(&version)
                .map(|(version, _)| version.as_str());
            let wanted = || {
                views
                    .iter()
                    .filter_map(|view| view.shadow?.update())
                    .find(|it| **it == *version)
            };
            if let Some(version) = known.or_else(wanted) {
                self.change(fleet, version, |record| record.done_pools = done_pools);
            }
        }
    }

    /// Lifts the halts that a person has acknowledged. One whose time cannot be read is given another, so that somebody can.
    fn lift(&mut self, fleet: &FleetFacts<'a>) {
        for (version, record) in fleet.versions {
            let Some(halt) = &record.halted else { continue };
            let acknowledged = acknowledged(fleet, version);
            if let Some(upto) = lifted(fleet.now, acknowledged, halt) {
                self.change(fleet, version, |record| {
                    (record.halted, record.acknowledged_at) = (None, Some(upto.to_string()));
                });
            } else if time(&halt.at).is_none() {
                let at = moment(fleet.now, acknowledged, record);
                self.change(fleet, version, |record| {
                    record.halted = Some(Halt { at, ..halt.clone() });
                });
            }
        }
    }

    /// The record of this version, as it will be.
    fn record(&self, fleet: &FleetFacts<'a>, version: &str) -> Option<&VersionRecord> {
        self.changed
            .get(version)
            .or_else(|| fleet.versions.get(version))
    }

    fn change(
        &mut self,
        fleet: &FleetFacts<'a>,
        version: &'a str,
        change: impl FnOnce(&mut VersionRecord),
    ) {
        change(self.changed.entry(version).or_insert_with(|| {
            let new = || VersionRecord {
                first_seen: Some(fleet.now.to_owned()),
                ..VersionRecord::default()
            };
            fleet.versions.get(version).cloned().unwrap_or_else(new)
        }));
    }

    /// Do the changes of this pass halt this version for this node?
    pub(super) fn halts(&self, view: &NodeView<'a>, version: &str) -> bool {
        let variant = view.node.and_then(|node| node.variant);
        self.changed
            .get(version)
            .is_some_and(|record| record.is_halted_for(variant))
    }

    /// Counts an update that is over, whose slot has this name.
    fn count(&mut self, fleet: &FleetFacts<'a>, name: &'a str, view: Option<&NodeView<'a>>) {
        let Some(slot) = fleet.slots.get(name) else {
            return;
        };
        let node = view.and_then(|view| view.node);
        let name = names::node_of_shadow(name).unwrap_or(name);
        let shadow = view
            .and_then(|view| view.shadow)
            .filter(|shadow| shadow.uid == slot.uid);
        if slot.lost
            && !slot.counted
            && let Some(version) = slot.version.as_deref()
            && (shadow.is_none() || node.is_none())
            && node.is_none_or(|node| node.version != Some(version))
        {
            // Whatever deleted its Node, and perhaps its shadow: the host began its reboot, and was not seen again.
            self.failed(fleet, version, (name, None), NOT_RETURNED);
        }
        let Some(shadow) = shadow else { return };
        let Some(version) = shadow.spec.version else {
            return;
        };
        self.finished = true;
        let failure = shadow
            .spec
            .last_failure
            .filter(|failures| failures.attempt == slot.attempt);
        if let Some(failure) = failure {
            let record = fleet.versions.get(version);
            let known = record.is_some_and(|it| is_counted(fleet, it, name, &failure.at));
            if !slot.counted && !known && Abort::is_corroborated(&failure.reason) {
                // This counts even if the Node is gone: a node that failed and was replaced has failed all the same.
                self.failed(fleet, version, (name, node), &failure.reason);
            }
            return;
        }
        if let Some(node) = node.filter(|node| node.version == Some(version)) {
            self.change(fleet, version, |record| {
                record.succeeded += 1;
                if let Some(variant) = node
                    .variant
                    .filter(|variant| !record.is_proven_for(Some(variant)))
                    && record.proven_variants.len() < VARIANTS_MAX
                {
                    record.proven_variants.push(variant.to_owned());
                }
                // A node that was counted as failed has come back after all.
                record.failures.retain(|it| it.node != node.name);
            });
        }
    }

    /// Notes whether a Node that is deleted from now on counts as failed: if its host claimed the reboot, it was not Ready
    /// for long, and no taint had announced its removal before. So replacing a broken host hides no
    /// failure, and removing a node makes none.
    fn note_lost(&mut self, view: &NodeView<'a>, (name, slot): NamedSlot<'a>) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else {
            return;
        };
        // Another machine may have come under the same name, before its shadow or after.
        if shadow.uid != slot.uid || view.owner_uid.is_some_and(|uid| uid != node.uid) {
            return;
        }
        let claimed = shadow.spec.reboot_granted_boot_id.is_some()
            && shadow.spec.reboot_granted_boot_id == shadow.status.reboot_claimed_boot_id;
        let lost =
            !node.ready && (slot.lost || claimed && !node.leaving && view.time.not_ready_for_long);
        if lost != slot.lost {
            self.noted.insert(
                name,
                Slot {
                    lost,
                    ..slot.clone()
                },
            );
        }
    }

    /// Counts a failure whose slot is kept: of a host that has been away for longer than a reboot may take, or of one
    /// that is given up but may be away for long. The slot notes that it is counted, so that it is counted once, however
    /// many nodes fail and whatever a person acknowledges meanwhile.
    fn count_early(
        &mut self,
        fleet: &FleetFacts<'a>,
        view: &NodeView<'a>,
        (name, slot): NamedSlot<'a>,
    ) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else {
            return;
        };
        let Some(version) = shadow
            .spec
            .version
            .filter(|_| slot.uid == shadow.uid && !slot.counted)
        else {
            return;
        };
        let overdue =
            shadow.spec.state == State::RebootedIntoUpdate && !node.ready && view.time.step_overdue;
        let failure = shadow
            .spec
            .last_failure
            .filter(|failures| failures.attempt == slot.attempt);
        match failure {
            Some(failure) if Abort::is_corroborated(&failure.reason) => {
                self.failed(fleet, version, (node.name, Some(node)), &failure.reason);
            }
            None if overdue && has_begun_reboot(&node, &shadow) => {
                self.failed(fleet, version, (node.name, Some(node)), NOT_RETURNED);
            }
            _ => return,
        }
        self.noted
            .entry(name)
            .or_insert_with(|| slot.clone())
            .counted = true;
    }

    /// How many more nodes of this variant may fail before the version is halted for them; `None` = any number, and so if one
    /// of them has reached it.
    pub(super) fn may_still_fail(
        &self,
        fleet: &FleetFacts<'a>,
        (version, variant): (&str, Option<&str>),
    ) -> Option<u64> {
        let budget = fleet.budget.unproven?;
        let Some(record) = self.record(fleet, version) else {
            return Some(budget);
        };
        let failed = || number(&of_variant(&counting(record), variant));
        (!record.is_proven_for(variant)).then(|| budget.saturating_sub(failed()))
    }

    /// Counts a failure. What is known of the node, if it is still there, says in which variant.
    fn failed(
        &mut self,
        fleet: &FleetFacts<'a>,
        version: &'a str,
        (name, node): (&str, Option<NodeFacts<'a>>),
        reason: &str,
    ) {
        let named = acknowledged(fleet, version);
        let variant = node.and_then(|node| node.variant).map(str::to_owned);
        self.change(fleet, version, |record| {
            let at = moment(fleet.now, named, record);
            note_failure(
                record,
                NodeFailure {
                    node: name.into(),
                    at,
                    reason: reason.into(),
                    variant,
                },
            );
        });
    }

    /// Halts the versions that too many nodes failed to reach.
    fn halt(&mut self, fleet: &FleetFacts<'a>) {
        let FailureBudget { proven, unproven } = fleet.budget;
        let budget = |record: &VersionRecord, variant: Option<&str>| {
            if record.is_proven_for(variant) {
                proven
            } else {
                unproven
            }
        };
        for (version, record) in &mut self.changed {
            self.halted.extend(halt(fleet.now, version, record, budget));
        }
    }

    /// What is to be set in the ledger.
    pub(super) fn sets(
        mut self,
        fleet: &FleetFacts<'a>,
        views: &[NodeView<'a>],
    ) -> Vec<(Field<'a>, Value<'a>)> {
        let noted = std::mem::take(&mut self.noted).into_iter();
        let mut sets: Vec<(Field<'a>, Value<'a>)> = noted
            .map(|(name, slot)| (Field::Slot(name), Value::Slot(slot)))
            .collect();
        let forgotten = self.forgotten(fleet, views);
        self.changed
            .retain(|version, _| forgotten.iter().all(|it| it != version));
        let stored = forgotten
            .iter()
            .filter_map(|version| fleet.versions.get_key_value(version));
        sets.extend(stored.map(|(version, _)| (Field::VersionRecord(version), Value::Absent)));
        let changed = self.changed.into_iter();
        sets.extend(changed.map(|(version, record)| {
            (Field::VersionRecord(version), Value::VersionRecord(record))
        }));
        if self.finished {
            sets.push((Field::LastFinished, Value::text(fleet.now)));
        }
        sets
    }

    /// The versions that the ledger forgets, once this pass changes it.
    fn forgotten(&self, fleet: &FleetFacts<'_>, views: &[NodeView<'_>]) -> Vec<String> {
        if self.changed.is_empty() {
            return vec![];
        }
        let stored = fleet
            .versions
            .iter()
            .map(|(version, record)| (version.as_str(), record));
        let changed = self
            .changed
            .iter()
            .map(|(version, record)| (*version, record));
        let records: Records<'_> = stored.chain(changed).collect();
        let runs = |version: &str| {
            views
                .iter()
                .filter_map(|view| view.node)
                .any(|node| node.version == Some(version))
        };
        let is_new = |version: &str| !fleet.versions.contains_key(version);
        forgotten(&records, runs, is_new)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }
}

/// Returns the time up to which a person has acknowledged the halts of this version.
fn acknowledged(fleet: &FleetFacts<'_>, version: &str) -> Option<Timestamp> {
    let halt = fleet
        .acknowledged
        .iter()
        .find(|halt| halt.version == version)?;
    times::read(Some(&halt.halted_at))
}
