//! The ledger's record of each version and variant: how many nodes reached it, which failed, and whether it is halted.
//!
//! All of it rests on Nodes and our own spec. Nothing that an agent reports can count a failure or resume a version. A person
//! resumes a version by the exact time of its halt. So a halt is later than what the spec names already, whatever the leaders'
//! clocks say, and each further failure makes it later: nobody resumes what they could not have seen.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::crds::{FAILED_NODES_MAX, VERSION_RECORDS_MAX};
use brupop_api::fleet::{DonePool, NodeFailure, Slot, VersionRecord};
use brupop_api::{Field, State, Value, names};
use jiff::SignedDuration;

use super::assess::has_begun_reboot;
use super::rollout::{Survey, reported};
use super::{Abort, Candidate, Freed};
use crate::facts::{FleetFacts, NodeView, is_halted, record_of};
use crate::objects::NodeFacts;
use crate::pool::Release;
use crate::times;

/// The reason of a failure that is counted while the host is still away.
pub(crate) const NOT_RETURNED: &str = "NotReturned";
/// Maximum number of nodes that the sentence of a halt names.
const NODES_NAMED: usize = 3;

/// The records, as they are after this pass.
pub(super) struct VersionRecords<'v, 'a> {
    fleet: FleetFacts<'a>,
    nodes: &'v [Candidate<'v, 'a>],
    records: Cow<'a, [VersionRecord]>,
    /// The halts that a person ends in this pass.
    resumed: Vec<Release<'a>>,
    done_pools: Option<Vec<DonePool>>,
    /// Slots, by name of the shadow, that note something of their nodes from this pass on.
    noted: BTreeMap<&'a str, Slot>,
    pub(super) finished: bool,
}

impl<'v, 'a> VersionRecords<'v, 'a> {
    /// The records as they change in this pass: by what a person resumes, by these updates that are over, by those that keep
    /// their slots and have failed, and by what nodes report.
    pub(super) fn after(
        fleet: &FleetFacts<'a>,
        nodes: &'v [Candidate<'v, 'a>],
        over: &Freed<'a>,
    ) -> Self {
        let mut versions = Self {
            fleet: *fleet,
            nodes,
            records: Cow::Borrowed(fleet.versions),
            resumed: vec![],
            done_pools: None,
            noted: BTreeMap::new(),
            finished: false,
        };
        versions.resume();
        for (name, at) in over {
            versions.count(name, at.map(|at| nodes[at].view));
        }
        let kept = nodes.iter().filter_map(|it| Some((it.view, it.kept()?)));
        // An unreadable shadow says nothing of its host.
        for (view, slot) in kept.filter(|(view, _)| !view.is_unreadable()) {
            versions.note_lost(view, slot);
            versions.count_early(view, slot);
        }
        versions.halt();
        versions
    }

    /// Ends the halts that the spec names by their exact times.
    fn resume(&mut self) {
        for (at, record) in self.fleet.versions.iter().enumerate() {
            let named = self.fleet.named_for(record);
            if record.halted_at.is_some() && record.halted_at.as_deref() == named {
                self.resumed.push((&record.version, &record.variant));
                let record = &mut self.records.to_mut()[at];
                record.halted_at = None;
                record.failures.clear();
            }
        }
    }

    /// The record of this release, to be changed. It is made if there is none; `None` if there is no room for it. The oldest
    /// record makes room that is neither halted, nor in a slot, nor of what a node wants.
    fn record_mut(&mut self, (version, variant): Release<'_>) -> Option<&mut VersionRecord> {
        let known = |record: &VersionRecord| record.is_of(version, variant);
        let at = if let Some(at) = self.records.iter().position(known) {
            at
        } else {
            if self.records.len() >= VERSION_RECORDS_MAX {
                let oldest = self.records.iter().position(|it| !self.is_needed(it))?;
                self.records.to_mut().remove(oldest);
            }
            self.records.to_mut().push(VersionRecord {
                version: version.to_owned(),
                variant: variant.to_owned(),
                ..VersionRecord::default()
            });
            self.records.len() - 1
        };
        self.records.to_mut().get_mut(at)
    }

    fn is_needed(&self, record: &VersionRecord) -> bool {
        let in_slot = |slot: &Slot| {
            slot.version.as_ref() == Some(&record.version)
                && slot.variant.as_ref() == Some(&record.variant)
        };
        let wants = |view: &NodeView<'_>| {
            let release = view.release();
            release.is_some_and(|(version, variant)| record.is_of(version, variant))
        };
        record.halted_at.is_some()
            || self.fleet.slots.values().any(in_slot)
            || self.nodes.iter().any(|node| wants(node.view))
    }

    /// Whether an update of this release may begin, as far as its record goes, which is made if there is none.
    pub(super) fn has_room(&mut self, release: Release<'_>) -> bool {
        record_of(&self.records, release).is_some() || self.record_mut(release).is_some()
    }

    /// Whether this version is halted for this node after this pass.
    pub(super) fn halts(&self, view: &NodeView<'a>, version: &str) -> bool {
        view.node
            .is_some_and(|node| is_halted(&self.records, (version, node.variant())))
    }

    /// Counts an update that is over, whose slot has this name.
    fn count(&mut self, name: &'a str, view: Option<&NodeView<'a>>) {
        let Some(slot) = self.fleet.slots.get(name) else {
            return;
        };
        let view = view.copied().unwrap_or_else(|| NodeView::nothing(name));
        let runs = view.node.and_then(|node| node.version());
        let name = names::node_of_shadow(name).unwrap_or(name);
        let shadow = view.shadow.filter(|_| view.holds(slot));
        let variant = variant_of(slot, &view);
        if slot.lost
            && !slot.counted
            && let Some(version) = slot.version.as_deref()
            && (shadow.is_none() || view.node.is_none())
            && runs != Some(version)
        {
            // Whatever deleted its Node, and perhaps its shadow: the host began its reboot, and was not seen again.
            self.failed((version, variant), name, NOT_RETURNED);
        }
        let Some(version) = shadow.and_then(|shadow| shadow.spec.version) else {
            return;
        };
        self.finished = true;
        let release = (version, variant);
        if let Some(failure) = view.failure_in(slot) {
            let counted = slot.counted || self.is_counted(release, name, &failure.at);
            if !counted && Abort::is_corroborated(&failure.reason) {
                // This counts even if the Node is gone: a node that failed and was replaced has failed all the same.
                self.failed(release, name, &failure.reason);
            }
        } else if runs == Some(version)
            && let Some(record) = self.record_mut(release)
        {
            record.succeeded += 1;
            // A node that was counted as failed has come back after all.
            record.failures.retain(|it| it.node != name);
        }
    }

    /// Whether this node's failure of that time was counted before. A request that took long may take the slot of an attempt that is
    /// over once more.
    fn is_counted(&self, release: Release<'_>, node: &str, failed_at: &str) -> bool {
        let [failed_at, now] = [failed_at, self.fleet.now].map(|text| times::read(Some(text)));
        let record = record_of(self.fleet.versions, release);
        let counted = record.and_then(|it| it.failures.iter().find(|failure| failure.node == node));
        // A count by a clock that was ahead hides nothing.
        counted
            .map(|counted| times::read(Some(&counted.at)))
            .is_some_and(|at| failed_at <= at && at <= now)
    }

    /// Notes whether a Node that is deleted from now on counts as failed: if its host claimed the reboot, it was not Ready
    /// for long, and no taint had announced its removal before. So replacing a broken host hides no
    /// failure, and removing a node makes none.
    fn note_lost(&mut self, view: &NodeView<'a>, slot: &'a Slot) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else {
            return;
        };
        // Another machine may have come under the same name, before its shadow or after.
        if !view.holds(slot) || view.owner_uid.is_some_and(|uid| uid != node.uid.as_str()) {
            return;
        }
        let claimed = shadow.spec.reboot_granted_boot_id.is_some()
            && shadow.spec.reboot_granted_boot_id == shadow.status.reboot_claimed_boot_id;
        let lost = !node.is_ready()
            && (slot.lost || claimed && !node.leaving && view.time.not_ready_for_long);
        if lost != slot.lost {
            let noted = self.noted.entry(view.shadow_name);
            noted.or_insert_with(|| slot.clone()).lost = lost;
        }
    }

    /// Counts a failure whose slot is kept: of a host that has been away for longer than a reboot may take, or of one
    /// that is given up but may be away for long. The slot notes that it is counted, so that it is counted once, however
    /// many nodes fail and whatever a person resumes meanwhile.
    fn count_early(&mut self, view: &NodeView<'a>, slot: &'a Slot) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else {
            return;
        };
        let is_counted = slot.counted || !view.holds(slot);
        let Some(version) = shadow.spec.version.filter(|_| !is_counted) else {
            return;
        };
        let overdue = shadow.spec.state == State::RebootedIntoUpdate
            && !node.is_ready()
            && view.time.step_overdue;
        let reason = match view.failure_in(slot) {
            Some(failure) if Abort::is_corroborated(&failure.reason) => &failure.reason,
            None if overdue && has_begun_reboot(node, &shadow) => NOT_RETURNED,
            _ => return,
        };
        self.failed((version, variant_of(slot, view)), node.name(), reason);
        let noted = self.noted.entry(view.shadow_name);
        noted.or_insert_with(|| slot.clone()).counted = true;
    }

    /// Returns how many more nodes of this variant may fail before the version is halted for them; `None` = any number, and so
    /// if one of them has reached it.
    pub(super) fn may_still_fail(&self, release: Release<'_>) -> Option<u64> {
        let threshold = self.fleet.threshold.unproven;
        match record_of(&self.records, release) {
            None => Some(threshold),
            Some(record) if record.succeeded > 0 => None,
            Some(record) => Some(threshold.saturating_sub(failed(record))),
        }
    }

    /// Counts a failure of this node.
    fn failed(&mut self, release: Release<'_>, node: &str, reason: &str) {
        let fleet = self.fleet;
        let Some(record) = self.record_mut(release) else {
            return;
        };
        record.failures.retain(|failure| failure.node != node);
        record.failures.push(NodeFailure {
            node: node.to_owned(),
            at: fleet.now.to_owned(),
            reason: reason.to_owned(),
        });
        let surplus = record.failures.len().saturating_sub(FAILED_NODES_MAX);
        record.failures.drain(..surplus);
        if record.halted_at.is_some() {
            record.halted_at = Some(halt_time(&fleet, record));
        }
    }

    /// Halts the versions that too many nodes failed to reach.
    fn halt(&mut self) {
        let fleet = self.fleet;
        let is_spent = |record: &VersionRecord| {
            let threshold = if record.succeeded > 0 {
                fleet.threshold.proven
            } else {
                fleet.threshold.unproven
            };
            record.halted_at.is_none() && failed(record) >= threshold
        };
        while let Some(at) = self.records.iter().position(is_spent) {
            let record = &mut self.records.to_mut()[at];
            record.halted_at = Some(halt_time(&fleet, record));
        }
    }

    /// The records of the versions that this pass halts.
    pub(super) fn halted(&self) -> Vec<VersionRecord> {
        let is_new = |record: &&VersionRecord| {
            let release = (record.version.as_str(), record.variant.as_str());
            let was_halted = is_halted(self.fleet.versions, release);
            record.halted_at.is_some() && (!was_halted || self.resumed.contains(&release))
        };
        self.records.iter().filter(is_new).cloned().collect()
    }

    /// Notes when versions were first reported, for pools that let them ripen, and which pools are done with which version.
    pub(super) fn note_for_pools(&mut self, survey: &Survey<'a>) {
        for release in reported(&self.fleet, self.nodes.iter().map(|node| node.view)) {
            let now = self.fleet.now.to_owned();
            let mut nodes = self.nodes.iter();
            let mut is_wanted = || nodes.any(|node| node.view.release() == Some(release));
            // Only what a node wants makes others go: what nodes run could take turns for ever.
            let has_room = self.records.len() < VERSION_RECORDS_MAX
                || record_of(&self.records, release).is_some()
                || is_wanted();
            if has_room && let Some(record) = self.record_mut(release) {
                record.reported_at = Some(now);
            }
        }
        let done = survey.done_pools(&self.fleet, &self.records, &self.resumed);
        self.done_pools = Some(done).filter(|done| done != self.fleet.done_pools);
    }

    /// Returns what is to be set in the ledger.
    pub(super) fn sets(self) -> Vec<(Field<'a>, Value<'a>)> {
        let noted = self.noted.into_iter();
        let mut sets: Vec<(Field<'a>, Value<'a>)> = noted
            .map(|(name, slot)| (Field::Slot(name), Value::Slot(slot)))
            .collect();
        if *self.records != *self.fleet.versions {
            sets.push((Field::Versions, Value::Versions(self.records)));
        }
        if let Some(done) = self.done_pools {
            sets.push((Field::DonePools, Value::DonePools(Cow::Owned(done))));
        }
        if self.finished {
            sets.push((Field::LastFinished, Value::text(self.fleet.now)));
        }
        sets
    }
}

/// The variant for which the outcome of this slot counts.
fn variant_of<'a>(slot: &'a Slot, view: &NodeView<'a>) -> &'a str {
    let variant = slot.variant.as_deref();
    let variant = variant.or_else(|| view.node.map(NodeFacts::variant));
    variant.unwrap_or(names::UNKNOWN_VARIANT)
}

fn failed(record: &VersionRecord) -> u64 {
    u64::try_from(record.failures.len()).unwrap_or(u64::MAX)
}

/// The time of a halt with this record: now, or a second after its last one or after the one that the spec names.
fn halt_time(fleet: &FleetFacts<'_>, record: &VersionRecord) -> String {
    let before = [fleet.named_for(record), record.halted_at.as_deref()];
    let last = before.into_iter().filter_map(times::read).max();
    let next = last
        .and_then(|last| last.checked_add(SignedDuration::from_secs(1)).ok())
        .filter(|next| Some(*next) > times::read(Some(fleet.now)));
    next.map_or_else(|| fleet.now.to_owned(), |next| next.to_string())
}

/// Says which nodes failed to reach the version with this record, the last ones first.
pub fn why_halted(record: &VersionRecord) -> String {
    let failures = &record.failures;
    let named = failures.iter().rev().take(NODES_NAMED).map(|failure| {
        // A node's name may be as long as the whole phrase.
        let node: String = failure.node.chars().take(48).collect();
        format!("{node} ({})", failure.reason)
    });
    let more = failures.len().saturating_sub(NODES_NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let nodes = named.chain(more).collect::<Vec<_>>().join(", ");
    match &*nodes {
        "" => "it failed on nodes that have reached it since".to_owned(),
        nodes => format!("it failed on {nodes}"),
    }
}
