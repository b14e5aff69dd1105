//! Something that is tried again until it works: ever more slowly, and logged when it begins to fail, changes, and works.

use std::time::Duration;

use brupop_runtime::FailureLog;
use brupop_runtime::waits::{doubled, jittered};
use tokio::time::Instant;

const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// A failure that lasts longer is worth telling the cluster.
pub(crate) const LASTING: Duration = Duration::from_secs(30);

/// What is tried again, and how often it has failed since it last worked.
#[derive(Debug)]
pub(crate) struct Retry {
    what: &'static str,
    log: FailureLog,
    since: Instant,
    times: u32,
}

impl Retry {
    /// Nothing has failed yet. `what` is the beginning of log lines.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            log: FailureLog::default(),
            since: Instant::now(),
            times: 0,
        }
    }

    /// It failed, for this reason. Returns how long to wait before the next try.
    pub(crate) fn failed(&mut self, reason: &str) -> Duration {
        if self.times == 0 {
            self.since = Instant::now();
        }
        if self.log.is_new(reason) {
            tracing::warn!(
                reason,
                "{} fails; the agent tries again, and logs each reason once",
                self.what
            );
        } else {
            tracing::debug!(reason, times = self.times, "{} fails again", self.what);
        }
        self.times = self.times.saturating_add(1);
        jittered(delay(self.times), 0.2)
    }

    /// It works. Returns whether it had failed.
    pub(crate) fn resolved(&mut self) -> bool {
        let times = std::mem::take(&mut self.times);
        let resolved = self.log.resolved();
        if resolved {
            let seconds = self.since.elapsed().as_secs();
            tracing::info!(times, seconds, "{} works again", self.what);
        }
        resolved
    }

    /// It failed the last time that it was tried.
    pub(crate) fn is_failing(&self) -> bool {
        self.times > 0
    }

    /// The reason, if it has failed for a good while.
    pub(crate) fn lasting(&self) -> Option<&str> {
        self.failing_for(LASTING)
    }

    /// The reason, if it has failed for so long.
    pub(crate) fn failing_for(&self, duration: Duration) -> Option<&str> {
        self.log
            .reason()
            .filter(|_| self.since.elapsed() >= duration)
    }
}

/// Before the next try, after this many failures.
fn delay(times: u32) -> Duration {
    doubled(DELAY_MIN, times.saturating_sub(1), DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit() {
        let delays: Vec<u128> = [1, 2, 3, 4, 7, 8, u32::MAX]
            .map(delay)
            .iter()
            .map(Duration::as_millis)
            .collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 30_000, 30_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_failure_that_lasts_is_told() {
        let mut retry = Retry::new("the test");
        retry.failed("no");
        assert_eq!(retry.lasting(), None);
        tokio::time::advance(LASTING).await;
        assert_eq!(retry.lasting(), Some("no"));
        retry.failed("still no");
        assert_eq!(retry.lasting(), Some("still no"));
        retry.resolved();
        assert_eq!(retry.lasting(), None);
    }
}
