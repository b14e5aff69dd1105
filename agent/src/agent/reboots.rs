//! Whether the host refuses to reboot for good, so that the claim may be taken back.

use std::time::Duration;

use tokio::time::Instant;

use crate::host::{HostError, Outcome};

/// What became of the reboots that this process asked for.
#[derive(Debug, Default)]
pub(super) struct Reboots {
    attempt: Option<u64>,
    /// This process made the claim. So no process before it can have asked for this reboot.
    claimed: bool,
    /// The host accepted a request, or may have. The reboot may come at any moment.
    accepted: bool,
    refused_since: Option<Instant>,
}

impl Reboots {
    /// Notes the attempt that the spec asks for. A new attempt forgets what happened in the one before.
    pub(super) fn attempt(&mut self, attempt: Option<u64>) {
        if self.attempt != attempt {
            *self = Self { attempt, ..Self::default() };
        }
    }

    /// This process has claimed the reboot.
    pub(super) fn claimed(&mut self) {
        self.claimed = true;
    }

    /// What the host said to a request for a reboot.
    pub(super) fn answered(&mut self, answer: &Result<Outcome, HostError>) {
        match answer {
            Ok(Outcome::Begun) => self.accepted(),
            Ok(_) => self.refused(),
            // It was never asked.
            Err(HostError::Unreachable { .. }) => {}
            Err(_) => self.accepted(),
        }
    }

    /// The host said yes, or nobody knows what it said.
    fn accepted(&mut self) {
        self.accepted = true;
    }

    /// The host said no.
    fn refused(&mut self) {
        self.refused_since.get_or_insert_with(Instant::now);
    }

    /// Has the host refused every request of this process for as long as `deadline`? Only if the claim is its own.
    pub(super) fn refused_for_good(&self, deadline: Duration) -> bool {
        self.claimed && !self.accepted && self.refused_since.is_some_and(|since| since.elapsed() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(50);

    #[tokio::test(start_paused = true)]
    async fn only_our_own_claim_and_only_after_nothing_but_refusals() {
        for (claimed, accepted, waited, expected) in [
            (true, false, DEADLINE, true),
            (true, false, DEADLINE / 2, false),
            (true, true, DEADLINE, false),
            (false, false, DEADLINE, false),
        ] {
            let mut reboots = Reboots::default();
            reboots.attempt(Some(1));
            if claimed {
                reboots.claimed();
            }
            if accepted {
                reboots.accepted();
            }
            reboots.refused();
            tokio::time::advance(waited).await;
            reboots.refused();
            assert_eq!(reboots.refused_for_good(DEADLINE), expected, "{claimed} {accepted} {waited:?}");
            reboots.attempt(Some(1));
            assert_eq!(reboots.refused_for_good(DEADLINE), expected);
            reboots.attempt(Some(2));
            assert!(!reboots.refused_for_good(DEADLINE), "another attempt");
        }
    }
}
