//! The result of an update, and the durations of its phases. All of it is computed from what stands in the cluster at the
//! moment of the write that ends the phase, so it does not matter which process led meanwhile.

use brupop_api::conditions::{ConditionStatus, UPDATE_AVAILABLE};
use brupop_api::fleet::Slot;
use brupop_api::{BottlerocketShadow, State};
use jiff::{SignedDuration, Timestamp};

use crate::cluster::{Cluster, NodeRecord};
use crate::decide::{Abort, Decisions, NOT_RETURNED, Step};
use crate::facts::{FleetFacts, NodeView};
use crate::objects::read_time;
use crate::status::shadow_conditions;

brupop_api::words! {
    /// A part of an update. They follow one another without a gap; what an update that is given up was at is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Phase {
        /// From when the update was known, or the last attempt ended, until the node got its slot.
        Waiting => "waiting",
        /// From the slot until the first change of the Node: the host downloads and activates, then budgets are waited for.
        Staging => "staging",
        /// From that change until the reboot is granted: load balancers forget the node, and its pods go.
        Draining => "draining",
        /// From the grant until the node is back in service.
        Rebooting => "rebooting",
        /// From then until the update counts as done.
        Soaking => "soaking",
    }
}

/// An outcome that is known once a write is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A phase is over, and took so long.
    Phase(Phase, SignedDuration),
    /// A Node was deleted soon after its update.
    Removed,
    /// An update of this pool has ended although a workload has not come back.
    WithoutWorkloads(String),
    Update {
        /// Its result, one of the words of [`results`].
        result: &'static str,
        /// From its slot on; `None` if it did not reach its version, or nobody knows since when it has had its slot.
        took: Option<SignedDuration>,
    },
}

/// The node runs the wanted version, and is in service.
const UPDATED: &str = "Updated";
/// The update was given up for what is no failure of the node, such as a person's pause.
const GIVEN_UP: &str = "GivenUp";
/// The slot was taken, but not wanted any more.
const NOT_BEGUN: &str = "NotBegun";
/// The Node or its shadow was deleted meanwhile.
const NODE_GONE: &str = "NodeGone";
/// It failed in a way that only another release of the operator knows.
const OTHER: &str = "Other";

/// Each word that says what became of an update: our own, and those of failures.
pub fn results() -> impl Iterator<Item = &'static str> {
    let failures = Abort::WORDS.iter().copied();
    let failures = failures.filter(|word| Abort::of_word(word).is_some_and(Abort::is_failure));
    [UPDATED, GIVEN_UP, NOT_BEGUN, NODE_GONE, NOT_RETURNED, OTHER]
        .into_iter()
        .chain(failures)
}

/// Returns what is over once this step is taken; updates are over with their slots.
pub fn ended_by(
    cluster: &Cluster,
    fleet: &FleetFacts<'_>,
    view: &NodeView<'_>,
    step: Step<'_>,
) -> Vec<Ended> {
    let phase = phase_ended_by(cluster, fleet, view, step);
    let other = match step {
        Step::DeleteShadow { just_updated: true } => Some(Ended::Removed),
        Step::Finish {
            workloads_back: false,
        } => {
            let pool = fleet.pool_of(view).map_or("", |pool| pool.name);
            Some(Ended::WithoutWorkloads(pool.to_owned()))
        }
        _ => None,
    };
    phase.into_iter().chain(other).collect()
}

fn phase_ended_by(
    cluster: &Cluster,
    fleet: &FleetFacts<'_>,
    view: &NodeView<'_>,
    step: Step<'_>,
) -> Option<Ended> {
    let now = read_time(Some(fleet.now))?;
    let record = cluster.records.get(view.shadow_name)?;
    let (shadow, spec) = (record.shadow()?, &record.shadow()?.spec);
    let transition = || read_time(spec.state_transition_timestamp.as_deref());
    let slot_since = || read_time(view.slot(fleet)?.since.as_deref());
    let (phase, since, until) = match step {
        Step::Stage(_) => {
            let known = read_time(update_known_since(shadow))?;
            let ended = transition().unwrap_or(known);
            (Phase::Waiting, known.max(ended), slot_since()?)
        }
        Step::Exclude | Step::Cordon if node_changed_since(record).is_none() => {
            (Phase::Staging, slot_since()?, now)
        }
        // A grant that was taken back and is given once more ends no drain that was not counted.
        Step::Grant if spec.state == State::StagedAndPerformedUpdate => {
            (Phase::Draining, node_changed_since(record)?, now)
        }
        // A host that rebooted by itself needed no grant, and nobody saw when it began.
        Step::Monitor if spec.reboot_granted_boot_id.is_some() => {
            (Phase::Rebooting, transition()?, now)
        }
        Step::Finish { .. } => (Phase::Soaking, transition()?, now),
        _ => return None,
    };
    Some(Ended::Phase(phase, lasted(since, until)))
}

/// The updates that are over once these slots are given back.
pub fn updates_of(
    fleet: &FleetFacts<'_>,
    views: &[NodeView<'_>],
    decisions: &Decisions<'_>,
) -> Vec<Ended> {
    let now = read_time(Some(fleet.now));
    let over = decisions.freed.iter().filter_map(|&(name, index)| {
        let slot = fleet.slots.get(name)?;
        let result = result(slot, index.and_then(|index| views.get(index)));
        let since = read_time(slot.since.as_deref()).filter(|_| result == UPDATED);
        Some(Ended::Update {
            result,
            took: since.zip(now).map(|(since, now)| lasted(since, now)),
        })
    });
    over.collect()
}

/// Returns what became of the update that had this slot.
fn result(slot: &Slot, view: Option<&NodeView<'_>>) -> &'static str {
    let view = view.filter(|view| view.holds(slot) && view.node.is_some());
    let Some(view) = view else {
        return if slot.lost { NOT_RETURNED } else { NODE_GONE };
    };
    if let Some(failure) = view.failure_in(slot) {
        return Abort::of_word(&failure.reason).map_or(OTHER, |abort| abort.as_str());
    }
    // An attempt that is skipped has no version.
    let Some(version) = view.shadow.and_then(|shadow| shadow.spec.version) else {
        return NOT_BEGUN;
    };
    let runs = view.node.and_then(|node| node.version());
    if runs == Some(version) {
        UPDATED
    } else {
        GIVEN_UP
    }
}

/// Returns since when the host of this shadow has known of an update that it does not run yet, as its condition says.
pub fn update_known_since(shadow: &BottlerocketShadow) -> Option<&str> {
    let mut known = shadow_conditions(shadow).iter();
    let known = known.find(|it| it.type_ == UPDATE_AVAILABLE)?;
    (known.status == ConditionStatus::True).then_some(known.last_transition_time.as_str())
}

/// Returns since when the Node carries a change for its update.
fn node_changed_since(record: &NodeRecord) -> Option<Timestamp> {
    let marker = record.marker()?;
    let since = marker
        .excluded_at
        .as_ref()
        .or(marker.drain_started_at.as_ref());
    read_time(since.map(String::as_str))
}

/// The clocks of two leaders may differ, so an end may lie before its beginning.
fn lasted(since: Timestamp, until: Timestamp) -> SignedDuration {
    until.duration_since(since).max(SignedDuration::ZERO)
}

#[cfg(test)]
mod tests;
