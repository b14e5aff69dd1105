//! A rate limit for log lines that others can cause.

use std::time::Duration;

/// The most lines in each period. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    most: u32,
    period: Duration,
    since: Duration,
    logged: u32,
    left_out: u64,
}

impl Quota {
    /// This many lines in each period.
    pub const fn new(most: u32, period: Duration) -> Self {
        Self {
            most,
            period,
            since: Duration::ZERO,
            logged: 0,
            left_out: 0,
        }
    }

    /// May a line be logged now? If so, returns how many were left out since the last one that was.
    pub fn take(&mut self, now: Duration) -> Option<u64> {
        if now.saturating_sub(self.since) >= self.period {
            (self.since, self.logged) = (now, 0);
        }
        if self.logged < self.most {
            self.logged += 1;
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_quota_is_counted() {
        let s = Duration::from_secs;
        let mut quota = Quota::new(2, s(10));
        let taken: Vec<_> = [1, 1, 2, 9, 10, 11, 12, 25]
            .map(|at| quota.take(s(at)))
            .into();
        assert_eq!(
            taken,
            [
                Some(0),
                Some(0),
                None,
                None,
                Some(2),
                Some(0),
                None,
                Some(1)
            ]
        );
    }
}
