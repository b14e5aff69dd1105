//! How fast nodes are labelled: one after the other, so many a second, and slowly while that is refused. Pure.

use std::time::Duration;

use crate::pending::back_off;

/// Time from one to the next: ten a second, for each is a pod, an image and a shadow to be made.
const EVERY: Duration = Duration::from_millis(100);

/// Who was last, and when the next one may be; instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub struct Pace {
    called: bool,
    not_before: Duration,
    failures: u32,
    last: Option<String>,
}

impl Pace {
    /// When the next one is due; `None` while one is under way.
    pub fn due(&self) -> Option<Duration> {
        (!self.called).then_some(self.not_before)
    }

    /// Whose turn it is of these, which are sorted by name: one that is refused for ever keeps nobody else waiting.
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

    /// A call for this one begins.
    pub fn begin(&mut self, name: &str, now: Duration) {
        self.called = true;
        self.not_before = now + EVERY;
        self.last = Some(name.to_owned());
    }

    /// It was labelled.
    pub fn labelled(&mut self) {
        self.called = false;
        self.failures = 0;
    }

    /// It was not.
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
    fn turn(pace: &Pace, ready: &[&'static str]) -> Option<&'static str> {
        pace.turn(ready.iter().copied(), |name| name)
    }

    #[test]
    fn one_at_a_time_and_ten_a_second() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(), Some(s(0)));
        pace.begin("a", s(5));
        assert_eq!(pace.due(), None, "one is under way");
        pace.labelled();
        assert_eq!(pace.due(), Some(Duration::from_millis(5100)));
    }

    #[test]
    fn refusals_slow_it_down_to_one_a_minute_and_a_success_ends_that() {
        let mut pace = Pace::default();
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            pace.begin("a", s(100));
            pace.failed(s(100));
            assert_eq!(pace.due(), Some(s(100 + wait)));
        }
        pace.begin("a", s(200));
        pace.labelled();
        pace.begin("b", s(300));
        pace.failed(s(300));
        assert_eq!(pace.due(), Some(s(301)));
    }

    #[test]
    fn everybody_has_a_turn_before_anybody_has_another() {
        let mut pace = Pace::default();
        let mut turns = Vec::new();
        for at in 0..4 {
            let next = turn(&pace, &["a", "b", "c"]).unwrap();
            pace.begin(next, s(at));
            pace.failed(s(at));
            turns.push(next);
        }
        assert_eq!(turns, ["a", "b", "c", "a"]);
        assert_eq!(turn(&pace, &[]), None);
    }
}
