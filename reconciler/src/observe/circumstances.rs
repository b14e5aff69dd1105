//! What facts depend on besides objects: settings, the time, and what only the leader knows.

use jiff::Timestamp;

use crate::facts::{FailureBudget, Gate};
use crate::settings::{Durations, Limit, OnDeadline, Settings};
use crate::snapshot::Snapshot;

/// What facts depend on besides objects.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Deadlines and waits.
    pub durations: Durations,
    /// How many nodes may be updated at once.
    pub limit: Limit,
    /// Were our own admission rules seen to be in force?
    pub enforced: bool,
    /// Was no other operator seen here?
    pub alone: bool,
    /// Are pods deleted that are still there at the drain's deadline?
    pub force: bool,
    /// After how many failed nodes a version is halted.
    pub budget: FailureBudget,
    /// The term in which this process leads.
    pub term: u64,
    /// May new updates start?
    pub gate: Gate,
    /// Name of the node that this process runs on, if it is known.
    pub own_node: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
    /// The same time, as it is written into objects.
    pub now_text: &'a str,
}

/// What the process that leads knows besides objects and settings.
#[derive(Clone, Copy, Debug)]
pub struct Leader<'a> {
    /// The term in which it leads.
    pub term: u64,
    /// Were our own admission rules seen to be in force?
    pub enforced: bool,
    /// Was no other operator seen here?
    pub alone: bool,
    /// Is a maintenance window open?
    pub window_open: bool,
    /// Name of the node that it runs on, if it is known.
    pub own_node: Option<&'a str>,
}

impl Settings {
    /// The circumstances of a pass under these settings. The reconciler and `plan` both take them from here.
    pub fn circumstances<'a>(
        &self,
        snapshot: &Snapshot,
        leader: Leader<'a>,
        now: Timestamp,
        now_text: &'a str,
    ) -> Circumstances<'a> {
        let Leader { term, enforced, alone, window_open, own_node } = leader;
        let paused = snapshot.ledger().is_some_and(|ledger| ledger.fleet.spec.paused);
        Circumstances {
            durations: self.durations(),
            limit: self.max_concurrent_update,
            enforced,
            alone,
            force: self.drain_on_deadline == OnDeadline::Force,
            budget: self.failure_budget(),
            term,
            gate: gate(paused, enforced, window_open),
            own_node,
            now,
            now_text,
        }
    }
}

/// May new updates start? A person's pause comes first. Rules that are not in force come before the schedule, because
/// some nodes are exempt from the schedule.
pub(super) fn gate(paused: bool, admission_enforced: bool, window_open: bool) -> Gate {
    match (paused, admission_enforced, window_open) {
        (true, _, _) => Gate::Paused,
        (_, false, _) => Gate::AdmissionNotEnforced,
        (_, _, false) => Gate::OutsideWindow,
        (false, true, true) => Gate::Open,
    }
}
