//! How fast the reconciler labels nodes (`AUTO_LABEL`): one at a time, and slowly while that is refused. Pure.

use std::time::Duration;

use crate::pending::back_off;

/// Time between two labels. Each label makes the cluster start a pod, pull an image and create a shadow.
const EVERY: Duration = Duration::from_millis(100);

/// Which node was labelled last, and when the next may be; instants are durations since any fixed moment of a monotonic
/// clock.
#[derive(Debug, Default)]
pub struct LabelRate {
    called: bool,
    not_before: Duration,
    failures: u32,
    last: Option<String>,
}

impl LabelRate {
    /// When the next call is due; `None` while one is under way.
    pub fn due(&self) -> Option<Duration> {
        (!self.called).then_some(self.not_before)
    }

    /// The first of these, sorted by name, that comes after the last one; then the first of all. So a node whose label
    /// is always refused does not keep the others waiting.
    pub fn turn<T>(&self, ready: impl IntoIterator<Item = T>, name: impl Fn(&T) -> &str) -> Option<T> {
        let mut first = None;
        for one in ready {
            if self.last.as_deref().is_none_or(|last| name(&one) > last) {
                return Some(one);
            }
            first = first.or(Some(one));
        }
        first
    }

    /// A call for the node of this name begins.
    pub fn begin(&mut self, name: &str, now: Duration) {
        self.called = true;
        self.not_before = now + EVERY;
        self.last = Some(name.to_owned());
    }

    /// The node was labelled.
    pub fn labelled(&mut self) {
        self.called = false;
        self.failures = 0;
    }

    /// The call failed.
    pub fn failed(&mut self, now: Duration) {
        self.called = false;
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + back_off(self.failures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Whose turn it is of these.
    fn turn(rate: &LabelRate, ready: &[&'static str]) -> Option<&'static str> {
        rate.turn(ready.iter().copied(), |name| name)
    }

    #[test]
    fn one_at_a_time_and_ten_a_second() {
        let mut rate = LabelRate::default();
        assert_eq!(rate.due(), Some(s(0)));
        rate.begin("a", s(5));
        assert_eq!(rate.due(), None, "one is under way");
        rate.labelled();
        assert_eq!(rate.due(), Some(Duration::from_millis(5100)));
    }

    #[test]
    fn refusals_slow_it_down_to_one_a_minute_and_a_success_ends_that() {
        let mut rate = LabelRate::default();
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            rate.begin("a", s(100));
            rate.failed(s(100));
            assert_eq!(rate.due(), Some(s(100 + wait)));
        }
        rate.begin("a", s(200));
        rate.labelled();
        rate.begin("b", s(300));
        rate.failed(s(300));
        assert_eq!(rate.due(), Some(s(301)));
    }

    #[test]
    fn everybody_has_a_turn_before_anybody_has_another() {
        let mut rate = LabelRate::default();
        let mut turns = Vec::new();
        for at in 0..4 {
            let next = turn(&rate, &["a", "b", "c"]).unwrap();
            rate.begin(next, s(at));
            rate.failed(s(at));
            turns.push(next);
        }
        assert_eq!(turns, ["a", "b", "c", "a"]);
        assert_eq!(turn(&rate, &[]), None);
    }
}
