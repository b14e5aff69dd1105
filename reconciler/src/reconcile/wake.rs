//! When the loop has to look again.

use std::time::Duration;

use jiff::Timestamp;

/// The earliest instant that was requested; instants are durations since the loop's epoch.
#[derive(Debug, Default)]
pub(super) struct Wake(Option<Duration>);

impl Wake {
    /// Look again at this instant at the latest.
    pub(super) fn by(&mut self, at: Duration) {
        self.0 = Some(self.0.map_or(at, |wake| wake.min(at)));
    }

    /// Look again at this time at the latest, if there is one; `now` is the time at `instant`.
    pub(super) fn by_time(&mut self, at: Option<Timestamp>, now: Timestamp, instant: Duration) {
        if let Some(at) = at {
            self.by(instant + Duration::try_from(at.duration_since(now)).unwrap_or_default());
        }
    }

    /// The earliest instant, if any was requested.
    pub(super) fn at(&self) -> Option<Duration> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_instant_counts() {
        let mut wake = Wake::default();
        assert_eq!(wake.at(), None);
        for (at, earliest) in [(5, 5), (7, 5), (3, 3)] {
            wake.by(Duration::from_secs(at));
            assert_eq!(wake.at(), Some(Duration::from_secs(earliest)));
        }
    }

    #[test]
    fn times_become_instants() {
        let now: Timestamp = "2026-11-20T09:59:58.25Z".parse().unwrap();
        let instant = Duration::from_secs(100);
        let mut wake = Wake::default();
        wake.by_time(None, now, instant);
        assert_eq!(wake.at(), None);
        wake.by_time(Some("2026-11-20T10:00:00Z".parse().unwrap()), now, instant);
        assert_eq!(wake.at(), Some(Duration::from_millis(101_750)));
        wake.by_time(Some("2026-11-20T09:00:00Z".parse().unwrap()), now, instant);
        assert_eq!(wake.at(), Some(instant), "what is past is due now");
    }
}
