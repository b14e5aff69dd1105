//! Which waits are over, and when the next one will be.

use jiff::{SignedDuration, Timestamp};

use crate::times::{self, Ahead};

/// The time now, and the earliest later time at which one of the answers changes.
pub struct Clock<'k> {
    pub(crate) now: Timestamp,
    /// When to look again.
    pub(crate) next: Option<Timestamp>,
    /// The times that earlier passes have seen ahead.
    pub(crate) known: &'k Ahead,
    /// Those of them that this clock was asked for, and new ones.
    pub(crate) ahead: Ahead,
}

impl<'k> Clock<'k> {
    /// A clock that knows which times earlier passes have seen ahead.
    pub fn new(now: Timestamp, known: &'k Ahead) -> Self {
        Self {
            now,
            next: None,
            known,
            ahead: Ahead::default(),
        }
    }

    /// Returns since when this time counts; see [`Ahead::since`].
    pub(crate) fn since(&mut self, of: [&str; 2], time: Timestamp) -> Timestamp {
        let since = self.known.since(of, time, self.now);
        if since != time {
            self.ahead.note(of, time, since);
        }
        since
    }

    /// Returns since when the time in this text counts, if it can be read.
    pub(crate) fn read(&mut self, of: [&str; 2], text: Option<&str>) -> Option<Timestamp> {
        Some(self.since(of, times::read(text)?))
    }

    /// At this time an answer changes that is not this clock's.
    pub(crate) fn wake_at(&mut self, at: Option<Timestamp>) {
        self.next = [self.next, at].into_iter().flatten().min();
    }

    /// Whether so much time has passed since then. No, if there is no time, or it cannot be read.
    pub(super) fn passed(&mut self, since: Option<Timestamp>, wait: SignedDuration) -> bool {
        since.is_some_and(|since| self.is_older(since, wait))
    }

    /// Whether so much time has passed since then. Yes, if there is no time, or it cannot be read.
    pub(crate) fn passed_or_unknown(
        &mut self,
        since: Option<Timestamp>,
        wait: SignedDuration,
    ) -> bool {
        since.is_none_or(|since| self.is_older(since, wait))
    }

    /// Whether so much time has passed since then.
    pub(crate) fn is_older(&mut self, since: Timestamp, wait: SignedDuration) -> bool {
        let at = since.saturating_add(wait).unwrap_or(Timestamp::MAX);
        if at > self.now {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
        at <= self.now
    }

    /// Returns the whole seconds since then.
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
        let mut clock = Clock::new(since.unwrap(), Ahead::NONE);
        assert!(!clock.passed_or_unknown(since, whole) && !clock.passed(since, half));
        let next = clock.next.unwrap();
        assert_eq!(next.to_string(), "2026-11-21T04:00:30Z");
        assert!(Clock::new(next, Ahead::NONE).passed(since, half));
        // A time that cannot be read is not waited for.
        let mut clock = Clock::new(Timestamp::UNIX_EPOCH, Ahead::NONE);
        assert!(
            clock.passed_or_unknown(times::read(Some("soon")), whole) && !clock.passed(None, whole)
        );
        assert_eq!(clock.next, None);
    }
}
