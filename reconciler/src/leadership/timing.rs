//! Until when we lead, and when the Lease is written: from the Lease and a monotonic clock.

use std::time::Duration;

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

/// Until when we may act as the leader; `None` = we may not.
pub fn leads_until(
    lease: Option<SeenLease<'_>>,
    state: &ElectionState,
    us: &str,
    timing: &Timing,
) -> Option<Duration> {
    let ours = lease.is_some_and(|lease| lease.holder == Some(us));
    state
        .renewed
        .filter(|_| ours)
        .map(|renewed| renewed + timing.renew_deadline)
}

/// When to write the Lease next: to create it, to take it over from its last holder, or to renew ours.
pub fn write_at(
    lease: Option<SeenLease<'_>>,
    state: &ElectionState,
    us: &str,
    timing: &Timing,
) -> Duration {
    let due = match lease {
        // If it is ours from before a restart, it can be renewed at once: nobody else uses our name.
        Some(lease) if lease.holder == Some(us) => state
            .renewed
            .map_or(Duration::ZERO, |renewed| renewed + timing.renew_after),
        Some(SeenLease {
            holder: Some(holder),
            duration,
        }) if !holder.is_empty() => state.first_seen + duration,
        _ => Duration::ZERO,
    };
    due.max(state.not_before)
}
