//! Something that fails again and again: said once, then counted; tried again ever more slowly.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use brupop_runtime::waits::doubled;
use tokio::time::Instant;

const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// Trouble that lasts longer is worth telling the cluster.
const LASTING: Duration = Duration::from_secs(30);

/// What keeps failing, if anything does.
#[derive(Debug)]
pub struct Trouble {
    what: &'static str,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    times: u32,
    sentence: String,
}

impl Trouble {
    /// Nothing has failed yet. `what` is the beginning of log lines.
    pub fn new(what: &'static str) -> Self {
        Self { what, failing: None }
    }

    /// It failed, for this reason. Returns how long to wait before the next try.
    pub fn failed(&mut self, sentence: &str) -> Duration {
        let failing = self.failing.get_or_insert_with(|| Failing {
            since: Instant::now(),
            times: 0,
            sentence: String::new(),
        });
        if failing.sentence == sentence {
            tracing::debug!(reason = sentence, times = failing.times, "{} fails again", self.what);
        } else {
            tracing::warn!(
                reason = sentence,
                "{} fails; it is tried again, and this is said once",
                self.what
            );
            sentence.clone_into(&mut failing.sentence);
        }
        failing.times = failing.times.saturating_add(1);
        jittered(delay(failing.times), 0.2)
    }

    /// It works.
    pub fn over(&mut self) {
        if let Some(failing) = self.failing.take() {
            let seconds = failing.since.elapsed().as_secs();
            tracing::info!(times = failing.times, seconds, "{} works again", self.what);
        }
    }

    /// It failed the last time that it was tried.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// The reason, if it has failed for a good while.
    pub fn lasting(&self) -> Option<&str> {
        self.failing
            .as_ref()
            .filter(|failing| failing.since.elapsed() >= LASTING)
            .map(|failing| failing.sentence.as_str())
    }
}

/// Before the next try, after so many failures.
fn delay(times: u32) -> Duration {
    doubled(DELAY_MIN, times.saturating_sub(1), DELAY_MAX)
}

/// A random duration that is at most this share longer or shorter.
pub fn jittered(duration: Duration, share: f64) -> Duration {
    duration.mul_f64(1.0 + share * (2.0 * random() - 1.0))
}

/// A random number from 0 to 1, good enough to spread a fleet's requests.
pub fn random() -> f64 {
    f64::from(u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0))
        / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit() {
        let delays: Vec<u128> =
            [1, 2, 3, 4, 7, 8, u32::MAX].map(delay).iter().map(Duration::as_millis).collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 30_000, 30_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_trouble_that_lasts_is_told() {
        let mut trouble = Trouble::new("the test");
        trouble.failed("no");
        assert_eq!(trouble.lasting(), None);
        tokio::time::advance(LASTING).await;
        assert_eq!(trouble.lasting(), Some("no"));
        trouble.failed("still no");
        assert_eq!(trouble.lasting(), Some("still no"));
        trouble.over();
        assert_eq!(trouble.lasting(), None);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let second = Duration::from_secs(1);
        let tries: Vec<Duration> = (0..100).map(|_| jittered(second, 0.1)).collect();
        assert!(tries.iter().all(|try_| (900..=1100).contains(&try_.as_millis())));
        assert!(tries.iter().any(|try_| try_ != &tries[0]));
    }
}
