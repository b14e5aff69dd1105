//! How soon `caBundle` is repaired again, if somebody else changes it again and again.

use std::time::Duration;
use tokio::time::Instant;

/// Repairs in a row that are made at once.
const AT_ONCE: u32 = 5;
/// From then on, the time between one repair and the next.
const PAUSE: Duration = Duration::from_mins(1);
/// After this time without a repair, the next one is the first of another row.
const QUIET: Duration = Duration::from_mins(10);

/// The repairs of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repairs {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Repairs {
    /// These repairs and one more, made now.
    pub(super) fn with_one(self, now: Instant) -> Self {
        let goes_on = self.last.is_some_and(|last| now < last + QUIET);
        Self {
            in_a_row: if goes_on {
                self.in_a_row.saturating_add(1)
            } else {
                1
            },
            last: Some(now),
        }
    }

    /// When the next may be made; `None` = at once.
    pub(super) fn next(self) -> Option<Instant> {
        self.last
            .filter(|_| self.in_a_row >= AT_ONCE)
            .map(|last| last + PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fight_slows_down_and_quiet_ends_it() {
        let start = Instant::now();
        let minute = |minute: u64| start + Duration::from_secs(60 * minute);
        let mut repairs = Repairs::default();
        assert_eq!(repairs.next(), None);
        for (made, next) in [
            (0, None),
            (0, None),
            (9, None),
            (18, None),
            // The fifth.
            (18, Some(19)),
            (19, Some(20)),
            (28, Some(29)),
            // Ten quiet minutes later.
            (38, None),
            (39, None),
        ] {
            repairs = repairs.with_one(minute(made));
            assert_eq!(
                repairs.next(),
                next.map(minute),
                "after the repair in minute {made}"
            );
        }
    }
}
