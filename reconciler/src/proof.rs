//! When to prove again what every start rests on, and what the last proofs showed: that our admission rules are in force,
//! and that no other operator is here. Pure.

use std::time::Duration;

/// What a proof found.
pub trait Finding {
    /// Is it as it must be?
    ///
    /// # Errors
    /// What was found instead, in a sentence.
    fn holds(&self) -> Result<(), String>;

    /// Does it say too little? Then the finding before stays valid for a while.
    fn is_unknown(&self) -> bool;
}

/// Wait after a proof that failed; doubled with each further one, up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// For so many intervals a proof stays valid if later ones get no answer.
const STANDS_FOR: u32 = 3;

/// The state of the proof; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug)]
pub struct Proof {
    interval: Duration,
    /// What was found, and when; `None` (it does not hold) before the first proof.
    found: Option<(Result<(), String>, Duration)>,
    next: Duration,
    retry: Duration,
    called: bool,
    /// How many proofs have begun.
    begun: usize,
}

impl Proof {
    /// Nothing is proven yet, and the first proof is due.
    pub fn new(interval: Duration) -> Self {
        Self { interval, found: None, next: Duration::ZERO, retry: FIRST_RETRY, called: false, begun: 0 }
    }

    /// When the next proof is due; `None` while one is under way.
    pub fn due(&self) -> Option<Duration> {
        (!self.called).then_some(self.next)
    }

    /// A proof begins. Returns its number.
    pub fn begin(&mut self) -> usize {
        self.called = true;
        self.begun += 1;
        self.begun
    }

    /// A proof ended. Returns whether the result differs from the one before.
    pub fn found(&mut self, finding: &impl Finding, now: Duration) -> bool {
        self.called = false;
        let result = finding.holds();
        let proven = result.is_ok();
        let wait = if proven { self.interval } else { self.retry.min(self.interval) };
        self.retry = if proven { FIRST_RETRY } else { self.retry.saturating_mul(2).min(self.interval) };
        self.next = now + wait;
        if let Some((Ok(()), at)) = &self.found
            && finding.is_unknown()
            && now < *at + self.interval * STANDS_FOR
        {
            return false;
        }
        let before = self.found.replace((result, now));
        before.map(|(result, _)| result) != self.found.as_ref().map(|(result, _)| result.clone())
    }

    /// Is it as it must be?
    ///
    /// # Errors
    /// Why that is not known, or what was seen instead.
    pub fn holds(&self) -> Result<(), &str> {
        match &self.found {
            None => Err("not tried out yet"),
            Some((result, _)) => result.as_ref().map(|&()| ()).map_err(String::as_str),
        }
    }

    /// Is the result of a proof known, whatever it is?
    pub fn is_known(&self) -> bool {
        self.found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission_probe::{Finding, Met};

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn finding(webhook: Met) -> Finding {
        Finding { webhook, policy: Met::Refusal }
    }

    #[test]
    fn shut_until_proven_and_whenever_disproven() {
        let mut admission = Proof::new(s(60));
        assert!(admission.holds().is_err());
        assert_eq!(admission.due(), Some(s(0)));
        admission.begin();
        assert_eq!(admission.due(), None);
        assert!(admission.found(&finding(Met::Refusal), s(1)));
        assert_eq!((admission.holds(), admission.due()), (Ok(()), Some(s(61))));
        assert!(!admission.found(&finding(Met::Refusal), s(61)));
        assert!(admission.found(&finding(Met::Nobody), s(121)));
        assert!(admission.holds().unwrap_err().contains("was allowed"));
        assert_eq!(admission.due(), Some(s(122)), "tried again soon");
    }

    #[test]
    fn retries_slow_down_to_the_interval() {
        let mut admission = Proof::new(s(10));
        for (now, next) in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 25), (25, 35)] {
            admission.found(&finding(Met::Else("x".into())), s(now));
            assert_eq!(admission.due(), Some(s(next)));
        }
    }

    #[test]
    fn a_proof_stands_for_a_while_when_there_is_no_answer() {
        let mut admission = Proof::new(s(60));
        let unknown = finding(Met::Nothing("timeout".into()));
        admission.found(&finding(Met::Refusal), s(0));
        assert!(!admission.found(&unknown, s(179)));
        assert_eq!(admission.holds(), Ok(()));
        assert!(admission.found(&unknown, s(180)));
        assert!(admission.holds().unwrap_err().contains("timeout"));
    }

    #[test]
    fn a_half_that_is_let_through_shuts_at_once_though_the_other_is_silent() {
        let mut admission = Proof::new(s(60));
        admission.found(&finding(Met::Refusal), s(0));
        let half = Finding { webhook: Met::Nobody, policy: Met::Nothing("timeout".into()) };
        assert!(admission.found(&half, s(60)));
        assert!(admission.holds().unwrap_err().contains("was allowed"));
    }
}
