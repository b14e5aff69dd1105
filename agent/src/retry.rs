//! Something that is tried again until it works: ever more slowly, and logged when it begins to fail, changes, and works.

use std::time::Duration;

use brupop_runtime::FailureLog;
use brupop_runtime::waits::{doubled, jittered};
use tokio::time::Instant;

const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// A failure that lasts longer is worth telling the cluster.
pub(crate) const LASTING: Duration = Duration::from_secs(30);

/// An operation that is retried, with the failures since its last success.
#[derive(Debug)]
pub(crate) struct Retry {
    what: &'static str,
    log: FailureLog,
    reason: String,
    since: Instant,
    times: u32,
}

impl Retry {
    /// Nothing has failed yet. `what` is the beginning of log lines.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            log: FailureLog::default(),
            reason: String::new(),
            since: Instant::now(),
            times: 0,
        }
    }

    /// It failed, for this reason. Returns how long to wait before the next try. A single failure may be a mere race, and is
    /// no warning.
    pub(crate) fn failed(&mut self, reason: &str) -> Duration {
        if self.times == 0 {
            self.since = Instant::now();
        }
        reason.clone_into(&mut self.reason);
        let wait = doubled(DELAY_MIN, self.times, DELAY_MAX);
        self.times = self.times.saturating_add(1);
        if self.times > 1 && self.log.is_new(reason) {
            tracing::warn!(
                reason,
                "{} fails; the agent tries again, and logs each reason once",
                self.what
            );
        } else {
            tracing::debug!(reason, times = self.times, "{} fails", self.what);
        }
        jittered(wait, 0.2)
    }

    /// It works. Returns whether it had failed.
    pub(crate) fn resolved(&mut self) -> bool {
        let times = std::mem::take(&mut self.times);
        if self.log.resolved() {
            let seconds = self.since.elapsed().as_secs();
            tracing::info!(times, seconds, "{} works again", self.what);
        }
        times > 0
    }

    /// The reason, if it has failed for so long.
    pub(crate) fn failing_for(&self, duration: Duration) -> Option<&str> {
        (self.times > 0 && self.since.elapsed() >= duration).then_some(&*self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_once_it_lasts() {
        let mut retry = Retry::new("the test");
        let first = retry.failed("no");
        assert!(first < DELAY_MIN.mul_f64(1.21), "{first:?}");
        assert_eq!(retry.failing_for(LASTING), None);
        tokio::time::advance(LASTING).await;
        for _ in 0..10 {
            assert!(retry.failed("still no") < DELAY_MAX.mul_f64(1.21));
        }
        assert_eq!(retry.failing_for(LASTING), Some("still no"));
        assert!(retry.resolved() && !retry.resolved());
        assert_eq!(retry.failing_for(LASTING), None);
    }
}
