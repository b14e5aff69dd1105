//! Which waits are over, and when the next one will be.

use jiff::{SignedDuration, Timestamp};

use crate::times;

/// The time now, and the earliest later time at which one of the answers changes.
pub(crate) struct Clock {
    now: Timestamp,
    /// When to look again.
    pub(crate) next: Option<Timestamp>,
}

impl Clock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, next: None }
    }

    /// At this time an answer changes that is not this clock's.
    pub(crate) fn wake_at(&mut self, at: Option<Timestamp>) {
        self.next = [self.next, at].into_iter().flatten().min();
    }

    /// Has so much time passed since then? No, if there is no time, or it cannot be read.
    pub(super) fn passed(&mut self, since: Option<Timestamp>, wait: SignedDuration) -> bool {
        since.is_some_and(|since| self.is_older(times::past(since, self.now), wait))
    }

    /// Has so much time passed since then? Yes, if there is no time, or it cannot be read.
    pub(crate) fn passed_or_unknown(&mut self, since: Option<Timestamp>, wait: SignedDuration) -> bool {
        since.is_none_or(|since| self.is_older(times::past(since, self.now), wait))
    }

    /// Has a leader whose clock was ahead written this time?
    pub(crate) fn is_ahead(&mut self, time: Option<Timestamp>) -> bool {
        let until = time.and_then(|time| times::ahead_until(time, self.now));
        self.wake_at(until);
        until.is_some()
    }

    /// Has so much time passed since then?
    pub(crate) fn is_older(&mut self, since: Timestamp, wait: SignedDuration) -> bool {
        let at = since.saturating_add(wait).unwrap_or(Timestamp::MAX);
        if at > self.now {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
        at <= self.now
    }

    /// Whole seconds since then; `None` if the time lies ahead.
    pub(super) fn seconds_since(&self, since: Timestamp) -> Option<u64> {
        u64::try_from(self.now.duration_since(since).as_secs()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_says() {
        let since = times::read(Some("2026-11-21T04:00:00Z"));
        let [half, whole] = [30, 60].map(SignedDuration::from_secs);
        let mut clock = Clock::new(since.unwrap());
        assert!(!clock.passed_or_unknown(since, whole) && !clock.passed(since, half));
        let next = clock.next.unwrap();
        assert_eq!(next.to_string(), "2026-11-21T04:00:30Z");
        assert!(Clock::new(next).passed(since, half));
        // A time that cannot be read is not waited for.
        let mut clock = Clock::new(Timestamp::UNIX_EPOCH);
        assert!(clock.passed_or_unknown(times::read(Some("soon")), whole) && !clock.passed(None, whole));
        assert_eq!(clock.next, None);
    }
}
