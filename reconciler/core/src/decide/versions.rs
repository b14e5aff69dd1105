//! The ledger's record of each version and variant: how many nodes reached it, which failed, and whether it is halted.
//!
//! All of it rests on Nodes, our own spec, and an agent's silence after the reboot. Nothing that an agent reports can count a failure
//! or resume a version. A person resumes a version by the exact time of its halt. So a halt is later than what the spec names
//! already, whatever the leaders' clocks say, and each further failure makes it later: nobody resumes what they could not have
//! seen.
//!
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

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::{DONE_POOLS_MAX, DONE_VERSIONS_MAX, FAILED_NODES_MAX, VERSION_RECORDS_MAX};
use brupop_api::fleet::{DonePool, NodeFailure, Slot, VersionRecord};
use brupop_api::{Field, Problem, State, Value, names};
use jiff::SignedDuration;
use semver::Version;

use super::assess::has_begun_reboot;
use super::{Abort, Candidate, Freed, Reason};
use crate::facts::{FleetFacts, NodeView, is_halted, record_of};
use crate::objects::NodeFacts;
use crate::objects::read_time;
use crate::pool::Release;

/// The reason of a failure that is counted while the host is still away.
pub(crate) const NOT_RETURNED: &str = "NotReturned";
/// Maximum number of nodes that the sentence of a halt names.
const NODES_NAMED: usize = 3;

/// This many nodes must name a version at a time; one, if there is only one.
const WITNESSES: usize = 2;

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
        over: &[Freed<'a>],
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
        for &(name, slot, at) in over {
            versions.count(name, slot, at.map(|at| nodes[at].view));
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
    /// record makes room that is neither in a slot nor of what a node wants, and not halted if there is one.
    fn record_mut(&mut self, (version, variant): Release<'_>) -> Option<&mut VersionRecord> {
        let known = |record: &VersionRecord| record.is_of(version, variant);
        let at = if let Some(at) = self.records.iter().position(known) {
            at
        } else {
            if self.records.len() >= VERSION_RECORDS_MAX {
                let unneeded = |at: &usize| !self.is_needed(&self.records[*at]);
                let unneeded = (0..self.records.len()).filter(unneeded);
                let oldest = unneeded.min_by_key(|at| self.records[*at].halted_at.is_some())?;
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
        self.fleet.slots.values().any(in_slot) || self.nodes.iter().any(|node| wants(node.view))
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
    fn count(&mut self, name: &'a str, slot: &'a Slot, view: Option<&NodeView<'a>>) {
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
        let Some(version) = shadow.and_then(|shadow| shadow.spec.version.as_deref()) else {
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
            && view.node.is_some_and(NodeFacts::is_ready)
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
        let [failed_at, now] = [failed_at, self.fleet.now].map(|text| read_time(Some(text)));
        let record = record_of(self.fleet.versions, release);
        let counted = record.and_then(|it| it.failures.iter().find(|failure| failure.node == node));
        // A count by a clock that was ahead hides nothing.
        counted
            .map(|counted| read_time(Some(&counted.at)))
            .is_some_and(|at| failed_at <= at && at <= now)
    }

    /// Notes whether a Node that is deleted from now on counts as failed: if its host began the reboot, it was not Ready for long,
    /// and no taint had announced its removal before. So replacing a broken host hides no failure, and removing a node makes
    /// none.
    fn note_lost(&mut self, view: &NodeView<'a>, slot: &'a Slot) {
        let (Some(node), Some(shadow)) = (view.node, view.shadow) else {
            return;
        };
        // Another machine may have come under the same name, before its shadow or after.
        if !view.holds(slot) || view.owner_uid.is_some_and(|uid| uid != node.uid.as_str()) {
            return;
        }
        let begun = shadow.is_in_update() && has_begun_reboot(node, &shadow);
        let lost = !node.is_ready() && (slot.lost || begun && !node.leaving && view.time.missing);
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
        let Some(version) = shadow.spec.version.as_deref().filter(|_| !is_counted) else {
            return;
        };
        let overdue = shadow.spec.state == State::RebootedIntoUpdate
            && !node.is_ready()
            && view.time.step_overdue;
        // One that was lost before its removal was announced has failed.
        let stays = slot.lost || !node.leaving;
        let reason = match view.failure_in(slot) {
            Some(failure) if Abort::is_corroborated(&failure.reason) => &failure.reason,
            None if overdue && stays && has_begun_reboot(node, &shadow) => NOT_RETURNED,
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

    /// Whether a halt ends in this pass because a person named it.
    pub(super) fn resumes(&self) -> bool {
        !self.resumed.is_empty()
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
    let last = before.into_iter().filter_map(read_time).max();
    let next = last.and_then(|last| last.checked_add(SignedDuration::from_secs(1)).ok());
    next.max(read_time(Some(fleet.now)))
        .map_or_else(|| fleet.now.to_owned(), |at| at.to_string())
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
                    comes: it.view.held().and_then(|slot| slot.version.as_deref()),
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
        // Whatever a host makes up, what a pool is done with stays.
        let is_known = |record: &&VersionRecord| {
            let release = (record.version.as_str(), record.variant.as_str());
            self.known.contains(&release)
        };
        let known = records.iter().rev().filter(is_known);
        let known = known.map(|record| record.version.as_str());
        let mut versions: Vec<&str> = vec![];
        for version in known.chain(fleet.done_pools.iter().map(|done| done.version.as_str())) {
            if versions.len() < DONE_VERSIONS_MAX && !versions.contains(&version) {
                versions.push(version);
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
        let versions = [shadow.update(), shadow.status.current_version.as_deref()];
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

/// The versions that nodes of one variant run, each with its text and the first node by name.
pub(super) type RunBy<'a> = BTreeMap<Version, (&'a str, &'a str)>;

/// Returns what the opted-in nodes of each variant run.
pub(super) fn run_by<'a>(views: &[NodeView<'a>]) -> BTreeMap<&'a str, RunBy<'a>> {
    let mut first = BTreeMap::new();
    for node in views
        .iter()
        .filter_map(|view| view.node.filter(|it| it.labelled))
    {
        let release = (node.version().unwrap_or_default(), node.variant());
        first.entry(release).or_insert(node.name());
    }
    let mut variants = BTreeMap::<_, RunBy<'_>>::new();
    for ((version, variant), node) in first {
        if let Ok(runs) = Version::parse(version) {
            let of_variant = variants.entry(variant).or_default();
            of_variant.insert(runs, (version, node));
        }
    }
    variants
}

/// Returns that this node, whose host names no update, should have been offered one, and which. Others of its variant run these.
pub(super) fn not_offered<'a>(
    fleet: &FleetFacts<'a>,
    view: &NodeView<'a>,
    run_by: Option<&RunBy<'a>>,
) -> Option<Reason<'a>> {
    let runs = Version::parse(view.node?.version()?).ok()?;
    let rules = fleet.pool_of(view).and_then(|pool| pool.rules);
    let newer = run_by.into_iter().flatten().rev();
    let mut newer = newer.take_while(|(version, _)| **version > runs);
    let newest = newer.find(|(_, (text, _))| {
        rules.is_none_or(|rules| rules.allow(text)) && !fleet.is_halted_for(view, text)
    });
    let newest = newest.map(|(_, (version, node))| Reason::NotOfferedRunBy(version, node));
    newest.or_else(|| {
        rules?
            .asks_for_more_than(&runs)
            .then_some(Reason::NotOffered)
    })
}

#[cfg(test)]
mod tests;
