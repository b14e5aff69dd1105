//! Debounces writes of statuses and conditions: most changes pass at once.

use std::time::Duration;

/// Time for which a condition must stay the same before it is written: one that passes at once is not worth a request.
const SETTLED: Duration = Duration::from_secs(1);
/// Interval of writes under constant change: changes of one node must not keep the fleet's
/// status from being written.
const WRITTEN_AT_LATEST: Duration = Duration::from_secs(5);

/// A wanted write of one object. It is made once it has been stable for a moment, for most reasons last no longer;
/// or once others have been wanted before it for long enough.
#[derive(Debug)]
pub struct Debounced<W>(Option<Wanted<W>>);

#[derive(Debug)]
struct Wanted<W> {
    what: W,
    since: Duration,
    /// The time since which this, or something else before it, could not be written.
    waiting_since: Duration,
}

impl<W> Default for Debounced<W> {
    fn default() -> Self {
        Self(None)
    }
}

impl<W: PartialEq> Debounced<W> {
    /// This is wanted now. Returns when to ask again; `None` if it has been wanted for long enough to be written.
    pub fn waits_until(&mut self, wanted: W, now: Duration) -> Option<Duration> {
        let (since, waiting_since) = match &self.0 {
            Some(before) if before.what == wanted => (before.since, before.waiting_since),
            Some(before) => (now, before.waiting_since),
            None => (now, now),
        };
        let due = (since + SETTLED).min(waiting_since + WRITTEN_AT_LATEST);
        let waiting_since = if now < due { waiting_since } else { now };
        self.0 = Some(Wanted {
            what: wanted,
            since,
            waiting_since,
        });
        (now < due).then_some(due)
    }

    /// Nothing is to be written any more.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_at_once_is_not_written() {
        let ms = Duration::from_millis;
        let mut debounced = Debounced::default();
        assert_eq!(debounced.waits_until(1, ms(0)), Some(ms(1000)));
        assert_eq!(
            debounced.waits_until(2, ms(100)),
            Some(ms(1100)),
            "another reason begins again"
        );
        assert_eq!(debounced.waits_until(2, ms(1099)), Some(ms(1100)));
        assert_eq!(debounced.waits_until(2, ms(1100)), None);
        assert_eq!(
            debounced.waits_until(2, ms(1150)),
            None,
            "as long as it is not written"
        );
        debounced.forget();
        assert_eq!(debounced.waits_until(2, ms(1200)), Some(ms(2200)));
    }

    #[test]
    fn what_always_changes_is_written_now_and_then() {
        let mut debounced = Debounced::default();
        let due = (0..600).filter(|tick| {
            let now = Duration::from_millis(100) * *tick;
            debounced.waits_until(*tick, now).is_none()
        });
        assert_eq!(
            due.collect::<Vec<_>>(),
            (1..12).map(|nth| nth * 50).collect::<Vec<_>>()
        );
    }
}
