//! Who leads. This file is pure: one step, from the Lease as it was read and a monotonic clock to an action.
//!
//! The Lease is for liveness only: somebody leads, and mostly just one. The ledger's term and conditional writes
//! prevent what must never happen twice. So nothing here compares wall clocks.

mod elect;
pub mod lease;

use std::time::Duration;

pub use elect::{Elected, Election, run};

/// The Lease as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
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
pub struct Memory {
    /// When the current version of the Lease was first seen.
    pub first_seen: Duration,
    /// When the last of our renewals that succeeded was *sent*.
    pub renewed: Option<Duration>,
    /// No call before this instant, because the last one failed.
    pub not_before: Duration,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until then, unless the Lease changes.
    Wait(Duration),
    /// Make the Lease ours: create it, or take it over from its last holder.
    Acquire,
    /// Renew our Lease.
    Renew,
}

/// Until when we may act as the leader; `None` = we may not.
pub fn leads_until(lease: Option<View<'_>>, memory: &Memory, us: &str, timing: &Timing) -> Option<Duration> {
    let ours = lease.is_some_and(|lease| lease.holder == Some(us));
    memory.renewed.filter(|_| ours).map(|renewed| renewed + timing.renew_deadline)
}

/// What to do now.
pub fn step(lease: Option<View<'_>>, memory: &Memory, us: &str, timing: &Timing, now: Duration) -> Action {
    let (due, action) = match lease {
        // If it is ours from before a restart, it can be renewed at once: nobody else uses our name.
        Some(lease) if lease.holder == Some(us) => {
            (memory.renewed.map_or(Duration::ZERO, |renewed| renewed + timing.renew_after), Action::Renew)
        }
        Some(View { holder: Some(holder), duration }) if !holder.is_empty() => {
            (memory.first_seen + duration, Action::Acquire)
        }
        _ => (Duration::ZERO, Action::Acquire),
    };
    let due = due.max(memory.not_before);
    if now >= due { action } else { Action::Wait(due) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: &str = "us";

    fn timing() -> Timing {
        Timing::of(Duration::from_secs(15))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[allow(clippy::unnecessary_wraps, reason = "a Lease that is there, among those that are not")]
    fn held_by(holder: &str) -> Option<View<'_>> {
        Some(View { holder: Some(holder), duration: seconds(15) })
    }

    #[test]
    fn the_table() {
        let seen = |first_seen| Memory { first_seen: seconds(first_seen), ..Memory::default() };
        let renewed = |at| Memory { renewed: Some(seconds(at)), ..Memory::default() };
        let failed = |until| Memory { not_before: seconds(until), ..seen(0) };
        for (what, lease, memory, now, expected) in [
            ("none yet", None, seen(0), 0, Action::Acquire),
            ("released", held_by(""), seen(9), 9, Action::Acquire),
            ("no holder", Some(View { holder: None, duration: seconds(15) }), seen(9), 9, Action::Acquire),
            ("another's, just seen", held_by("other"), seen(100), 100, Action::Wait(seconds(115))),
            (
                "another's, nearly silent for too long",
                held_by("other"),
                seen(100),
                114,
                Action::Wait(seconds(115)),
            ),
            ("another's, silent for too long", held_by("other"), seen(100), 115, Action::Acquire),
            ("silent, but our last call failed", held_by("other"), failed(20), 16, Action::Wait(seconds(20))),
            ("ours, fresh", held_by(US), renewed(100), 104, Action::Wait(seconds(105))),
            ("ours, due", held_by(US), renewed(100), 105, Action::Renew),
            ("ours, before a restart", held_by(US), seen(100), 100, Action::Renew),
        ] {
            assert_eq!(step(lease, &memory, US, &timing(), seconds(now)), expected, "{what}");
        }
    }

    #[test]
    fn we_lead_only_by_a_renewal_of_our_own_and_only_while_the_lease_is_ours() {
        let renewed = Memory { renewed: Some(seconds(100)), ..Memory::default() };
        assert_eq!(leads_until(held_by(US), &renewed, US, &timing()), Some(seconds(110)));
        assert_eq!(leads_until(held_by("other"), &renewed, US, &timing()), None);
        assert_eq!(leads_until(None, &renewed, US, &timing()), None);
        assert_eq!(leads_until(held_by(US), &Memory::default(), US, &timing()), None);
    }

    proptest! {
        /// Whatever the instants: who renewed at `renewed` has stopped before anyone who saw that renewal, which is
        /// later than it was sent, takes over.
        #[test]
        fn a_leader_stops_before_its_successor_begins(
            duration in 3_u64..300,
            renewed in 0_u64..1_000_000,
            delay in 0_u64..100_000,
            not_before in 0_u64..2_000_000,
            now in 0_u64..3_000_000,
        ) {
            let timing = Timing::of(seconds(duration));
            let leader = Memory { renewed: Some(seconds(renewed)), ..Memory::default() };
            let stops = leads_until(held_by(US), &leader, US, &timing).unwrap();
            let heir = Memory {
                first_seen: seconds(renewed + delay),
                not_before: seconds(not_before),
                ..Memory::default()
            };
            let lease = Some(View { holder: Some(US), duration: timing.duration });
            if step(lease, &heir, "heir", &timing, seconds(now)) == Action::Acquire {
                prop_assert!(seconds(now) > stops);
            }
        }

        /// A wait always ends in an action, and never lies in the past.
        #[test]
        fn every_wait_ends(
            holder in proptest::option::of("[a-c]?"),
            first_seen in 0_u64..1000,
            renewed in proptest::option::of(0_u64..1000),
            not_before in 0_u64..1000,
            now in 0_u64..2000,
        ) {
            let memory = Memory {
                first_seen: seconds(first_seen),
                renewed: renewed.map(seconds),
                not_before: seconds(not_before),
            };
            let lease = Some(View { holder: holder.as_deref(), duration: seconds(15) });
            if let Action::Wait(until) = step(lease, &memory, "a", &timing(), seconds(now)) {
                prop_assert!(until > seconds(now));
                prop_assert!(!matches!(step(lease, &memory, "a", &timing(), until), Action::Wait(_)));
            }
        }
    }
}
