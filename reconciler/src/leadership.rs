//! Who leads: the Lease as it is read and written, and one pure step, from the Lease and a monotonic clock to what to do.
//!
//! The Lease is for liveness only: somebody leads, and mostly just one. The ledger's term and conditional writes
//! prevent what must never happen twice. So nothing here compares wall clocks.

mod elect;

use std::time::Duration;

use brupop_api::Item;
use brupop_api::item::{Readable, Unreadable};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::Deserialize;

pub use elect::{Elected, Election, run};

/// The Lease as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenLease<'a> {
    /// `spec.holderIdentity`; `None` or empty when it was released.
    pub holder: Option<&'a str>,
    /// For how long its holder may be silent: `spec.leaseDurationSeconds`, as far as that is believed.
    pub duration: Duration,
}

/// When to do what; all of it in proportion to the lease's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long we may be silent before another takes over.
    pub duration: Duration,
    /// How long after the last renewal the next one is due.
    pub renew_after: Duration,
    /// How long after the last renewal we stop acting. Less than `duration`, so that we stop before another leader
    /// begins.
    pub renew_deadline: Duration,
    /// Wait between two calls that failed.
    pub retry: Duration,
    /// Longest wait for an answer of the API server.
    pub call: Duration,
}

impl Timing {
    /// The timing for a lease of this duration.
    pub fn of(duration: Duration) -> Self {
        Self {
            duration,
            renew_after: duration / 3,
            renew_deadline: duration * 2 / 3,
            retry: duration / 15,
            call: duration / 5,
        }
    }
}

/// What this process remembers; instants are durations since any fixed moment of a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionState {
    /// When the current version of the Lease was first seen.
    pub first_seen: Duration,
    /// When the last of our renewals that succeeded was *sent*.
    pub renewed: Option<Duration>,
    /// No call before this instant, because the last one failed.
    pub not_before: Duration,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// Nothing until then, unless the Lease changes.
    Wait(Duration),
    /// Make the Lease ours: create it, or take it over from its last holder.
    Acquire,
    /// Renew our Lease.
    Renew,
}

/// Until when we may act as the leader; `None` = we may not.
pub fn leads_until(
    lease: Option<SeenLease<'_>>,
    state: &ElectionState,
    us: &str,
    timing: &Timing,
) -> Option<Duration> {
    let ours = lease.is_some_and(|lease| lease.holder == Some(us));
    state.renewed.filter(|_| ours).map(|renewed| renewed + timing.renew_deadline)
}

/// What to do now.
pub fn step(
    lease: Option<SeenLease<'_>>,
    state: &ElectionState,
    us: &str,
    timing: &Timing,
    now: Duration,
) -> ElectionStep {
    let (due, action) = match lease {
        // If it is ours from before a restart, it can be renewed at once: nobody else uses our name.
        Some(lease) if lease.holder == Some(us) => (
            state.renewed.map_or(Duration::ZERO, |renewed| renewed + timing.renew_after),
            ElectionStep::Renew,
        ),
        Some(SeenLease { holder: Some(holder), duration }) if !holder.is_empty() => {
            (state.first_seen + duration, ElectionStep::Acquire)
        }
        _ => (Duration::ZERO, ElectionStep::Acquire),
    };
    let due = due.max(state.not_before);
    if now >= due { action } else { ElectionStep::Wait(due) }
}

/// The longest silence of a leader that anybody waits for, and the longest that `LEASE_DURATION_SECONDS` may be. A Lease
/// that asks for more was not written by a reconciler, or by one whose token was stolen.
pub const LONGEST: Duration = Duration::from_mins(5);

/// What is read of the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`.
    pub holder: Option<String>,
    duration: Option<Duration>,
    acquired: Option<Timestamp>,
    transitions: i32,
}

impl Readable for LeaseRecord {
    type Kind = Lease;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            #[serde(default)]
            spec: Spec,
        }

        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Spec {
            holder_identity: Option<String>,
            lease_duration_seconds: Option<i64>,
            acquire_time: Option<String>,
            lease_transitions: Option<i32>,
        }

        let Shape { spec } = serde_json::from_str(json)?;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Ok(Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: seconds.map(Duration::from_secs),
            acquired: spec.acquire_time.and_then(|time| time.parse().ok()),
            transitions: spec.lease_transitions.unwrap_or(0).max(0),
        })
    }
}

impl LeaseRecord {
    /// This record as the election sees it; `ours` is the duration of a Lease of ours.
    pub fn seen(&self, ours: Duration) -> SeenLease<'_> {
        SeenLease { holder: self.holder.as_deref(), duration: self.duration.unwrap_or(ours).min(LONGEST) }
    }

    /// The Lease to write, so that it is held by `us` from now on.
    pub fn held_by(&self, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
        let ours = self.holder.as_deref() == Some(us);
        LeaseSpec {
            holder_identity: Some(us.to_owned()),
            lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: Some(MicroTime(self.acquired.filter(|_| ours).unwrap_or(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(self.transitions.saturating_add(i32::from(!ours))),
            ..LeaseSpec::default()
        }
    }

    /// The Lease to write, so that nobody holds it.
    pub fn released(&self, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
        LeaseSpec { holder_identity: None, ..self.held_by(us, duration, now) }
    }
}

/// The Lease with this spec, as it is put in the place of the one that was read. It has no labels, annotations, owners
/// and finalizers: we write none, so any that are there were planted.
pub fn replacement(read: Option<&Item<LeaseRecord>>, name: &str, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: read.and_then(|lease| lease.metadata.uid.clone()),
        resource_version: read.and_then(|lease| lease.metadata.resource_version.clone()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}

#[cfg(test)]
mod tests;
