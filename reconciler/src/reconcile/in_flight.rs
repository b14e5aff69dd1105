//! What was last written to one object. The object is left alone until that has come back through its watch, so that no
//! write is repeated, or decided, on a stale view; and what changed nothing is not written again. Pure: the clock is an
//! argument.

use std::time::Duration;

use brupop_runtime::FailureLog;
use brupop_runtime::waits::doubled;
use serde_json::Value;

/// Longest wait for a change to come back; after that, the watch is assumed to have missed it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Wait after the first failure; doubled with each further one.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// Longest wait after failures.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);

/// The last request about one object. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    wait: Wait,
    /// Failures in a row.
    failures: u32,
    /// The last write, if it changed nothing: the object's `resourceVersion`, and the patch. Somebody else may hold a field
    /// that it should remove, or a webhook puts back what it changes.
    idle: Option<(u64, Value)>,
    log: FailureLog,
}

#[derive(Clone, Debug, Default)]
enum Wait {
    /// It waits for nothing.
    #[default]
    Nothing,
    /// The request is under way.
    Answer,
    /// It waits for this version of the object, or a later one.
    Version { at_least: u64, until: Duration },
    /// It waits for any version other than this.
    Change { from: Option<u64>, until: Duration },
    /// It waits for this instant.
    Time { until: Duration },
}

/// May a request about the object be sent?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Yes.
    Ready,
    /// Not while one is under way.
    UnderWay,
    /// Not before the object changes, or this instant comes.
    Until(Duration),
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// It changed the object.
    Change,
    /// It changed nothing. Is it the first such write in a row?
    Nothing { first: bool },
}

impl InFlight {
    /// A request is sent.
    pub(super) fn sent(&mut self) {
        self.wait = Wait::Answer;
    }

    /// Is a request under way?
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.wait, Wait::Answer)
    }

    /// The request was carried out on the object in version `seen`, which is in version `written` now.
    pub(super) fn written(
        &mut self,
        seen: Option<u64>,
        written: Option<u64>,
        patch: Option<Value>,
        now: Duration,
    ) -> Wrote {
        let until = now + LONGEST_WAIT;
        let wait = written.map_or(Wait::Nothing, |at_least| Wait::Version { at_least, until });
        let idle = seen.filter(|_| seen == written).zip(patch);
        let wrote = match idle {
            None => Wrote::Change,
            Some(_) => Wrote::Nothing { first: self.idle.is_none() },
        };
        *self = Self { wait, idle, ..Self::default() };
        wrote
    }

    /// Would this patch of the object in this version change nothing once more?
    pub(super) fn would_repeat(&self, seen: Option<u64>, patch: impl FnOnce() -> Option<Value>) -> bool {
        self.idle
            .as_ref()
            .is_some_and(|(version, last)| seen == Some(*version) && patch().as_ref() == Some(last))
    }

    /// The request removed the object whose version was `from`.
    pub(super) fn removed(&mut self, from: Option<u64>, now: Duration) {
        *self = Self { wait: Wait::Change { from, until: now + LONGEST_WAIT }, ..Self::default() };
    }

    /// The request was refused, because the object is no longer as it was in version `from`. If it still is, the mistake is
    /// ours; so the wait is limited. Returns how often in a row this has happened.
    pub(super) fn refused(&mut self, from: Option<u64>, now: Duration) -> u32 {
        self.failures += 1;
        let until = now + back_off(self.failures).max(FIRST_BACK_OFF * 4);
        self.wait = Wait::Change { from, until };
        self.failures
    }

    /// The request failed. Returns whether that is worth a line.
    pub(super) fn failed(&mut self, why: &str, now: Duration) -> bool {
        self.postponed(now);
        self.log.is_new(why)
    }

    /// The request was not made, as it was too early for it.
    pub(super) fn postponed(&mut self, now: Duration) {
        self.failures += 1;
        self.wait = Wait::Time { until: now + back_off(self.failures) };
    }

    /// May a request about the object be sent, if the object is known in this version?
    pub(super) fn readiness(&self, version: Option<u64>, now: Duration) -> Readiness {
        let until = match self.wait {
            Wait::Nothing => return Readiness::Ready,
            Wait::Answer => return Readiness::UnderWay,
            Wait::Version { at_least, .. } if version >= Some(at_least) => return Readiness::Ready,
            Wait::Change { from, .. } if version != from => return Readiness::Ready,
            Wait::Version { until, .. } | Wait::Change { until, .. } | Wait::Time { until } => until,
        };
        if now >= until { Readiness::Ready } else { Readiness::Until(until) }
    }
}

fn back_off(failures: u32) -> Duration {
    doubled(FIRST_BACK_OFF, failures.saturating_sub(1), LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Readiness::{Ready, UnderWay, Until};
    use serde_json::json;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_write_is_waited_for_until_it_comes_back() {
        let mut last = InFlight::default();
        assert_eq!(last.readiness(Some(5), s(0)), Ready);
        last.sent();
        assert_eq!(last.readiness(Some(9), s(100)), UnderWay);
        assert_eq!(last.written(Some(5), Some(7), None, s(1)), Wrote::Change);
        assert_eq!(last.readiness(Some(6), s(2)), Until(s(31)));
        assert_eq!(last.readiness(None, s(2)), Until(s(31)), "created, and not seen yet");
        assert_eq!(last.readiness(Some(7), s(2)), Ready);
        assert_eq!(last.readiness(Some(8), s(2)), Ready);
        assert_eq!(last.readiness(Some(6), s(31)), Ready, "the watch missed it");
    }

    #[test]
    fn a_refusal_waits_for_another_version_or_longer_and_longer() {
        let mut last = InFlight::default();
        assert_eq!(last.refused(Some(5), s(0)), 1);
        assert_eq!(last.readiness(Some(5), s(1)), Until(s(4)));
        assert_eq!(last.readiness(Some(6), s(1)), Ready);
        for times in 2..=8 {
            assert_eq!(last.refused(Some(5), s(0)), times);
        }
        assert_eq!(last.readiness(Some(5), s(1)), Until(s(60)));
        last.written(Some(5), Some(9), None, s(0));
        assert_eq!(last.refused(Some(9), s(0)), 1, "a success ends the row");
    }

    #[test]
    fn a_failure_waits_longer_and_longer_whatever_the_version() {
        let mut last = InFlight::default();
        for (version, wait) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)] {
            last.sent();
            last.failed("timeout", s(100));
            assert_eq!(last.readiness(Some(version), s(100)), Until(s(100 + wait)));
        }
        assert_eq!(last.readiness(None, s(160)), Ready);
    }

    #[test]
    fn a_failure_is_logged_once_for_each_reason() {
        let mut last = InFlight::default();
        let mut failed = |why| last.failed(why, s(0));
        assert_eq!(["a", "a", "b", "a"].map(&mut failed), [true, false, true, true]);
        last.postponed(s(0));
        assert!(!last.failed("a", s(0)), "it did not end in between");
        last.written(None, Some(1), None, s(0));
        assert!(last.failed("a", s(0)), "it came back");
    }

    #[test]
    fn a_removed_object_is_gone_or_another() {
        let mut last = InFlight::default();
        last.removed(Some(5), s(0));
        assert_eq!(last.readiness(Some(5), s(1)), Until(s(30)));
        assert_eq!(last.readiness(None, s(1)), Ready);
    }

    #[test]
    fn what_changed_nothing_waits_for_a_change() {
        let (one, other) = (|| Some(json!({"limit": 1})), || Some(json!({"limit": 2})));
        let mut last = InFlight::default();
        let write = |last: &mut InFlight, seen, written| last.written(Some(seen), written, one(), s(0));
        assert_eq!(write(&mut last, 5, Some(6)), Wrote::Change);
        assert!(!last.would_repeat(Some(6), one));
        assert_eq!(write(&mut last, 6, Some(6)), Wrote::Nothing { first: true });
        assert!(last.would_repeat(Some(6), one));
        assert!(!last.would_repeat(Some(7), one), "the object has changed");
        assert!(!last.would_repeat(Some(6), other), "something else is wanted");
        assert_eq!(write(&mut last, 7, Some(7)), Wrote::Nothing { first: false });
        assert_eq!(write(&mut last, 7, Some(8)), Wrote::Change);
        assert!(!last.would_repeat(Some(7), one));
    }

    #[test]
    fn without_version_or_patch_nothing_is_a_repetition() {
        let mut last = InFlight::default();
        for (seen, written, patch) in
            [(None, None, Some(json!([]))), (Some(1), None, Some(json!([]))), (Some(1), Some(1), None)]
        {
            assert_eq!(last.written(seen, written, patch, s(0)), Wrote::Change);
            assert!(!last.would_repeat(seen, || Some(json!([]))));
        }
    }
}
