//! Which waits and deadlines of a node are over, and when to look again.

mod back_off;
mod clock;
pub mod sentences;
mod slot;

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::Slot;
use brupop_api::{Marker, Problem, State};
use jiff::{SignedDuration, Timestamp};

use crate::cluster::NodeRecord;
use crate::facts::{PoolFacts, TimeFacts};
use crate::objects::Readiness;
use crate::policy::Durations;
use crate::rules::StepDurations;
use crate::times::Ahead;

pub use back_off::back_off;
pub use clock::Clock;

/// A node that has not been Ready for this long since its host began its reboot may be lost. A repair by
/// replacement waits for this long at least.
const LOST: SignedDuration = SignedDuration::from_mins(10);
/// An updated, emptied node keeps the annotations that keep autoscalers from removing it for this long at most.
const KEPT: SignedDuration = SignedDuration::from_hours(4);
/// A Node that is deleted within this time after its update is reported.
const REMOVED_SOON: SignedDuration = SignedDuration::from_hours(4);
/// An empty node waits for its volumes until none of them has been detached for this long.
const DETACHED: SignedDuration = SignedDuration::from_mins(1);
/// The part of a drain's time that belongs to pods which a budget blocks.
const FIRST_PART: i32 = 3;
/// Wait after an attempt that ended neither with success nor with a failure: the host wanted another version.
const OTHER_TARGET_BACK_OFF: SignedDuration = SignedDuration::from_secs(60);

/// The field of a shadow's spec that says since when it wants its state, as [`Ahead`] names it.
pub const TRANSITION: &str = "state_transition_timestamp";
/// The field of a marker that says since when its Node is excluded from load balancers, as [`Ahead`] names it.
pub const EXCLUDED: &str = "excluded_at";
const FAILED: &str = "last_failure.at";
const DRAIN_STARTED: &str = "drain_started_at";

/// A node that is monitored may be Ready, or not, for this many spells in a row, each as long as one may last.
const SPELLS: i32 = 4;

/// The times of one node, and the durations that they are compared with.
#[derive(Clone, Copy)]
pub(crate) struct Times<'t> {
    durations: &'t Durations,
    steps: &'t StepDurations,
    shadow: Option<&'t ShadowFacts<'t>>,
    /// When the spec's state was set.
    transition: Option<Timestamp>,
    marker: Option<&'t Marker>,
    slot: Option<&'t Slot>,
    /// The Node's UID; none if there is no Node.
    node_uid: &'t str,
    /// There is no Node.
    is_gone: bool,
    created: Option<Timestamp>,
    /// The attempt after which a person lets the node back off no longer.
    retry: Option<u64>,
    /// Since when the node has been seen cordoned by somebody else, if it stays.
    cordoned: Option<Timestamp>,
    /// Since when the node has been seen empty, and its volumes have not become fewer, if it is.
    empty: Option<Timestamp>,
    /// Whether this process has seen the pods of the node.
    pods_known: bool,
    /// Since when the node has been Ready without interruption, if it is.
    ready: Option<Timestamp>,
    /// Since when node and agent both have been, if they are.
    all_ready: Option<Timestamp>,
    /// Since when the node, or else its agent, has not been Ready, if that is so and known.
    not_ready: Option<Timestamp>,
    /// What the gates of its pool do to it.
    gated: Gated,
}

/// What the gates of a pool do to the times of its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gated {
    /// There are none.
    #[default]
    No,
    /// All are open.
    Open,
    /// One is not.
    Closed,
}

impl Gated {
    /// By the pool that steers the node.
    pub(crate) fn of(pool: Option<&PoolFacts<'_>>) -> Self {
        match pool {
            Some(PoolFacts { gate: Some(_), .. }) => Self::Closed,
            Some(PoolFacts {
                has_gates: true, ..
            }) => Self::Open,
            _ => Self::No,
        }
    }
}

impl<'t> Times<'t> {
    /// Of this record. Marker, shadow and slot count as far as they can be read.
    pub(crate) fn of(
        clock: &mut Clock<'_>,
        record: &'t NodeRecord,
        marker: Option<&'t Marker>,
        shadow: Option<&'t ShadowFacts<'t>>,
        slot: Option<&'t Slot>,
        (durations, steps): (&'t Durations, &'t StepDurations),
    ) -> Self {
        let node = record.node.as_deref();
        let node_uid = node.map_or("", |node| node.uid.as_str());
        let mut read = |readiness: Option<Readiness>, field| {
            let mut readiness = readiness?;
            readiness.since = readiness
                .since
                .map(|time| clock.since([node_uid, field], time));
            Some(readiness)
        };
        let node_readiness = read(node.and_then(|node| node.readiness), "Ready");
        let readiness = read(
            record.agent().and_then(|agent| agent.readiness),
            "agent's Ready",
        );
        let ready = node_readiness.and_then(Readiness::ready_since);
        let counts = if ready.is_some() {
            readiness
        } else {
            node_readiness
        };
        let spec = shadow.and(record.shadow()).map(|shadow| &shadow.spec);
        Self {
            durations,
            steps,
            shadow,
            transition: spec.zip(shadow).and_then(|(spec, shadow)| {
                clock.read(
                    [shadow.uid, TRANSITION],
                    spec.state_transition_timestamp.as_deref(),
                )
            }),
            marker,
            slot,
            node_uid,
            is_gone: node.is_none(),
            created: node
                .and_then(|node| node.created)
                .map(|time| clock.since([node_uid, "created"], time)),
            retry: node.and_then(|node| node.retry),
            cordoned: record.led.cordoned.filter(|_| {
                let ours = marker.is_some_and(|marker| marker.cordoned_at.is_some());
                // What is about to go gets its successor first.
                !ours && node.is_some_and(|node| node.unschedulable && !node.leaving)
            }),
            empty: record
                .led
                .drain
                .as_ref()
                .and_then(|drain| drain.empty)
                .map(|empty| empty.since),
            pods_known: record.led.drain.is_some(),
            ready,
            all_ready: ready
                .zip(readiness.and_then(Readiness::ready_since))
                .map(|(node, agent)| node.max(agent)),
            not_ready: counts.and_then(Readiness::not_ready_since),
            gated: Gated::No,
        }
    }

    /// These times, for a node of a pool with gates.
    pub(crate) fn gated(self, gated: Gated) -> Self {
        Self { gated, ..self }
    }
}

impl Clock<'_> {
    /// The facts of one node.
    pub(crate) fn facts(&mut self, times: &Times<'_>) -> TimeFacts {
        let durations = times.durations;
        let exclude = times.steps.exclusion.is_positive();
        let mut facts = TimeFacts {
            exclude,
            exclusion_over: true,
            ..TimeFacts::default()
        };
        self.marked(times, &mut facts);
        if let Some(shadow) = times.shadow {
            self.step(shadow, times, &mut facts);
        }
        let since = times.cordoned;
        facts.cordoned_lately =
            since.is_some_and(|since| !self.is_older(since, durations.others_cordon));
        facts.removed_soon = times.is_gone
            && times
                .transition
                .is_some_and(|since| !self.is_older(since, REMOVED_SOON));
        facts.young = times
            .created
            .is_some_and(|created| !self.is_older(created, durations.min_node_age));
        if let Some(slot) = times.slot {
            facts.slot_seconds = self
                .held_since(slot)
                .and_then(|since| self.seconds_since(since));
            facts.slot_overdue = self.slot_overdue(slot, times);
        }
        facts.trial_overdue =
            facts.step_overdue || times.slot.is_some_and(|slot| self.stages_late(slot, times));
        facts
    }

    /// What the current step has to wait for, and how long it may take.
    fn step(&mut self, shadow: &ShadowFacts<'_>, times: &Times<'_>, facts: &mut TimeFacts) {
        let Times {
            transition,
            durations,
            ..
        } = *times;
        match shadow.spec.state {
            State::Idle | State::ErrorReset => {
                facts.backing_off = self.backing_off(shadow, times);
                facts.step_overdue =
                    !shadow.reports(State::Idle) && self.passed(transition, durations.settle);
            }
            State::StagedAndPerformedUpdate => {
                facts.step_overdue = self.staging_overdue(shadow, times);
                facts.host_silent = self.host_silent(shadow, durations);
            }
            State::RebootedIntoUpdate => {
                facts.host_silent = !shadow.is_claimed() && self.host_silent(shadow, durations);
                facts.step_overdue = self.reboot_overdue(shadow, times);
                facts.not_ready_for_long = times.ready.is_none()
                    && times
                        .not_ready
                        .is_some_and(|since| self.is_older(since, LOST))
                    && self.passed(transition, LOST);
            }
            State::MonitoringUpdate => self.monitoring(times, facts),
        }
    }

    /// What the marker's times say.
    fn marked(&mut self, times: &Times<'_>, facts: &mut TimeFacts) {
        let Some(marker) = times.marker else { return };
        let Times {
            durations, steps, ..
        } = *times;
        if marker.is_kept() {
            let lost = |since| self.is_older(since, LOST);
            facts.kept_is_lost = times.ready.is_none() && times.not_ready.is_some_and(lost);
            let since = self.read([times.node_uid, "kept_since"], marker.kept_since.as_deref());
            facts.kept_for_long = self.passed_or_unknown(since, KEPT);
        }
        if marker.drain_started_at.is_none() && marker.excluded_at.is_some() {
            let excluded = self.read([times.node_uid, EXCLUDED], marker.excluded_at.as_deref());
            facts.exclusion_over = self.passed_or_unknown(excluded, steps.exclusion);
        }
        // From an empty node to the grant takes only moments. So does a new leader's first look at the pods, before which nobody
        // knows what the drain fails on, or whether only volumes are waited for. If they are not known by then, the leader
        // gives the update up.
        let more = marker.drained_at.is_some() || times.empty.is_some() || !times.pods_known;
        let settle = if more {
            durations.settle
        } else {
            SignedDuration::ZERO
        };
        let detached = times.empty.map_or(SignedDuration::ZERO, |_| DETACHED);
        let started = self.read(
            [times.node_uid, DRAIN_STARTED],
            marker.drain_started_at.as_deref(),
        );
        facts.volumes_overdue = times.empty.is_some_and(|since| {
            self.is_older(since, DETACHED) || self.passed(started, steps.drain + DETACHED)
        });
        facts.first_over = self.passed(started, steps.drain / FIRST_PART);
        facts.drain_overdue = self.passed(started, steps.drain + detached + settle);
    }

    fn staging_overdue(&mut self, shadow: &ShadowFacts<'_>, times: &Times<'_>) -> bool {
        let Times {
            durations,
            steps,
            transition,
            not_ready,
            marker,
            ..
        } = *times;
        let drains = marker.and_then(|marker| marker.drain_started_at.as_deref());
        let drains = self.read([times.node_uid, DRAIN_STARTED], drains);
        let (since, wait) = if shadow.reached() {
            // What follows staging has deadlines of its own; this one is for a node that stands still in between.
            (
                drains.or(transition),
                durations.stage + steps.exclusion + steps.drain * 2,
            )
        } else if shadow.status.attempt == shadow.spec.attempt {
            (transition, durations.stage)
        } else {
            // An agent takes up an attempt at once, and a dead agent should not hold a slot for long.
            (transition, durations.settle.min(durations.stage))
        };
        let unreachable = not_ready.is_some_and(|since| self.is_older(since, durations.settle))
            && self.passed(transition, durations.settle);
        unreachable || self.passed(since, wait)
    }

    /// Agents end such an attempt themselves, unless they, too, come and go with the host's API.
    fn host_silent(&mut self, shadow: &ShadowFacts<'_>, durations: &Durations) -> bool {
        let since = self.read([shadow.uid, "problem_since"], shadow.status.problem_since);
        shadow.status.problem == Some(Problem::HostUnreachable)
            && self.passed(since, durations.settle)
    }

    fn reboot_overdue(&mut self, shadow: &ShadowFacts<'_>, times: &Times<'_>) -> bool {
        let Times {
            durations,
            steps,
            transition,
            ready,
            ..
        } = *times;
        let granted = shadow.spec.reboot_granted_boot_id.is_some();
        let emptying = if granted {
            SignedDuration::ZERO
        } else {
            steps.exclusion + steps.drain
        };
        // A host that comes back late has time to report: its update is not given up the moment it is there.
        let had_time = ready.is_none_or(|since| self.is_older(since, durations.settle));
        let wait = durations.reboot + emptying;
        // A node that comes and goes is never Ready for long enough.
        (self.passed(transition, wait) && had_time) || self.passed(transition, wait * SPELLS)
    }

    fn monitoring(&mut self, times: &Times<'_>, facts: &mut TimeFacts) {
        let Times {
            durations,
            steps,
            transition,
            marker,
            all_ready,
            not_ready,
            gated,
            ..
        } = *times;
        let watched = self.passed_or_unknown(transition, steps.verify);
        let ready = all_ready.is_some_and(|since| self.is_older(since, steps.verify));
        facts.verified = watched && ready;
        let owners = marker.is_some_and(|marker| !marker.evicted_owners.is_empty());
        let workloads = if owners {
            steps.workloads
        } else {
            SignedDuration::ZERO
        };
        let wait = steps.verify + durations.settle + workloads;
        let spell_overdue = if let Some(since) = not_ready {
            self.is_older(since, durations.settle) && self.passed(transition, durations.settle)
        } else {
            // A node that has just become Ready again gets the full time, too.
            let had_time = all_ready.is_none_or(|since| self.is_older(since, wait));
            self.passed(transition, wait) && had_time
        };
        // A node that keeps coming and going is never Ready, or not Ready, for long enough. With gates nobody knows how long
        // it was watched because of them: that is no failure of the node.
        let too_many_spells = gated == Gated::No && self.passed(transition, wait * SPELLS);
        facts.step_overdue = spell_overdue || too_many_spells;
        facts.workloads_overdue =
            facts.verified && self.passed_or_unknown(transition, steps.verify + workloads);
    }

    /// Whether the node waits because its last attempt failed, or ended without success not long ago.
    fn backing_off(&mut self, shadow: &ShadowFacts<'_>, times: &Times<'_>) -> bool {
        if let Some(failures) = shadow.spec.last_failure
            && !shadow.spec.is_retried(times.retry)
        {
            let wait = back_off(times.durations.back_off_base, failures, shadow.uid);
            let since = self.read([shadow.uid, FAILED], Some(&failures.at));
            if !self.passed_or_unknown(since, wait) {
                return true;
            }
        }
        let failed = shadow
            .spec
            .last_failure
            .is_some_and(|failures| Some(failures.attempt) == shadow.spec.attempt);
        let succeeded = shadow.spec.version == shadow.status.current_version;
        shadow.spec.attempt.is_some()
            && shadow.spec.version.is_some()
            && times.retry != shadow.spec.attempt
            && !failed
            && !succeeded
            && !self.passed_or_unknown(times.transition, OTHER_TARGET_BACK_OFF)
    }
}

/// The parts of a drain's time that are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTime {
    /// The part that belongs to pods which a budget blocks.
    pub first_over: bool,
    /// All of it.
    pub is_over: bool,
    /// When the next part is over.
    pub next: Option<Timestamp>,
}

impl DrainTime {
    /// Of the drain that the marker of this Node records, whatever came of it.
    pub fn of(
        ahead: &Ahead,
        (node_uid, marker): (&str, Option<&Marker>),
        drain: SignedDuration,
        now: Timestamp,
    ) -> Self {
        let started = marker.and_then(|marker| marker.drain_started_at.as_deref());
        let started = ahead.read([node_uid, DRAIN_STARTED], started, now);
        let mut clock = Clock::new(now, ahead);
        let first_over = clock.passed(started, drain / FIRST_PART);
        Self {
            first_over,
            is_over: clock.passed(started, drain),
            next: clock.next,
        }
    }
}
