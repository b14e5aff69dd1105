//! Calls to the API server whose result has not come back through a watch yet. Their objects are left alone, so that no
//! write is repeated, or decided, on a stale view. Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use brupop_runtime::waits::doubled;

/// Longest wait for a change to come back; after that, the watch is assumed to have missed it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Wait after the first failure; doubled with each further one.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// Longest wait after failures.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);

/// What each key waits for. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug)]
pub struct InFlight<K> {
    waits: BTreeMap<K, Wait>,
}

#[derive(Clone, Debug)]
struct Wait {
    what: What,
    /// Failures in a row.
    failures: u32,
}

#[derive(Clone, Debug)]
enum What {
    /// The call is under way.
    Call,
    /// It waits for nothing, but its failures are remembered.
    Nothing,
    /// It waits for this version of the object, or a later one.
    Version { at_least: u64, until: Duration },
    /// It waits for any version other than this.
    Change { from: Option<u64>, until: Duration },
    /// It waits for this instant.
    Time { until: Duration },
}

/// May a call of this key be made?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Yes.
    Ready,
    /// Not while a call is under way.
    Called,
    /// Not before the object changes, or this instant comes.
    Until(Duration),
}

impl<K> Default for InFlight<K> {
    fn default() -> Self {
        Self { waits: BTreeMap::new() }
    }
}

impl<K: Ord> InFlight<K> {
    /// A call begins.
    pub fn begin(&mut self, key: K) {
        self.wait(key, |_| What::Call);
    }

    /// The call succeeded, and made this version of the object.
    pub fn written(&mut self, key: K, version: Option<u64>, now: Duration) {
        let until = now + LONGEST_WAIT;
        let what = match version {
            Some(at_least) => What::Version { at_least, until },
            None => What::Nothing,
        };
        self.waits.insert(key, Wait { what, failures: 0 });
    }

    /// The call removed the object whose version was `from`.
    pub fn removed(&mut self, key: K, from: Option<u64>, now: Duration) {
        let what = What::Change { from, until: now + LONGEST_WAIT };
        self.waits.insert(key, Wait { what, failures: 0 });
    }

    /// The call was refused, because the object is no longer as it was when the call was decided, in version `from`. If
    /// it still is, the mistake is ours; so the wait is limited. Returns how often in a row this has happened.
    pub fn refused(&mut self, key: K, from: Option<u64>, now: Duration) -> u32 {
        self.wait(key, |failures| {
            *failures += 1;
            What::Change { from, until: now + back_off(*failures).max(FIRST_BACK_OFF * 4) }
        })
    }

    /// The call failed. Returns how often in a row this has happened.
    pub fn failed(&mut self, key: K, now: Duration) -> u32 {
        self.wait(key, |failures| {
            *failures += 1;
            What::Time { until: now + back_off(*failures) }
        })
    }

    fn wait(&mut self, key: K, what: impl FnOnce(&mut u32) -> What) -> u32 {
        let wait = self.waits.entry(key).or_insert(Wait { what: What::Nothing, failures: 0 });
        wait.what = what(&mut wait.failures);
        wait.failures
    }

    /// May a call of this key be made, if its object is known in this version?
    pub fn readiness(&self, key: &K, version: Option<u64>, now: Duration) -> Readiness {
        let until = match self.waits.get(key).map(|wait| &wait.what) {
            None | Some(What::Nothing) => return Readiness::Ready,
            Some(What::Call) => return Readiness::Called,
            Some(What::Version { at_least, .. }) if version >= Some(*at_least) => return Readiness::Ready,
            Some(What::Change { from, .. }) if version != *from => return Readiness::Ready,
            Some(What::Version { until, .. } | What::Change { until, .. } | What::Time { until }) => *until,
        };
        if now >= until { Readiness::Ready } else { Readiness::Until(until) }
    }

    /// Forgets keys that are not known any more, except those with a call under way.
    pub fn forget_unless(&mut self, mut known: impl FnMut(&K) -> bool) {
        self.waits.retain(|key, wait| matches!(wait.what, What::Call) || known(key));
    }
}

pub(crate) fn back_off(failures: u32) -> Duration {
    doubled(FIRST_BACK_OFF, failures.saturating_sub(1), LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Readiness::{Called, Ready, Until};

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_write_is_waited_for_until_it_comes_back() {
        let mut pending = InFlight::default();
        assert_eq!(pending.readiness(&"n", Some(5), s(0)), Ready);
        pending.begin("n");
        assert_eq!(pending.readiness(&"n", Some(9), s(100)), Called);
        pending.written("n", Some(7), s(1));
        assert_eq!(pending.readiness(&"n", Some(6), s(2)), Until(s(31)));
        assert_eq!(pending.readiness(&"n", None, s(2)), Until(s(31)), "created, and not seen yet");
        assert_eq!(pending.readiness(&"n", Some(7), s(2)), Ready);
        assert_eq!(pending.readiness(&"n", Some(8), s(2)), Ready);
        assert_eq!(pending.readiness(&"n", Some(6), s(31)), Ready, "the watch missed it");
        assert_eq!(pending.readiness(&"other", Some(1), s(2)), Ready);
    }

    #[test]
    fn a_refusal_is_followed_by_another_version_or_a_longer_and_longer_wait() {
        let mut pending = InFlight::default();
        assert_eq!(pending.refused("n", Some(5), s(0)), 1);
        assert_eq!(pending.readiness(&"n", Some(5), s(1)), Until(s(4)));
        assert_eq!(pending.readiness(&"n", Some(6), s(1)), Ready);
        for times in 2..=8 {
            assert_eq!(pending.refused("n", Some(5), s(0)), times);
        }
        assert_eq!(pending.readiness(&"n", Some(5), s(1)), Until(s(60)));
        pending.written("n", Some(9), s(0));
        assert_eq!(pending.refused("n", Some(9), s(0)), 1, "a success ends the row");
    }

    #[test]
    fn a_failure_is_followed_by_a_longer_and_longer_wait_whatever_the_version() {
        let mut pending = InFlight::default();
        for (times, wait) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)] {
            pending.begin("n");
            assert_eq!(pending.failed("n", s(100)), times);
            assert_eq!(pending.readiness(&"n", Some(times.into()), s(100)), Until(s(100 + wait)));
        }
        assert_eq!(pending.readiness(&"n", None, s(160)), Ready);
    }

    #[test]
    fn a_removed_object_is_gone_or_another() {
        let mut pending = InFlight::default();
        pending.removed("n", Some(5), s(0));
        assert_eq!(pending.readiness(&"n", Some(5), s(1)), Until(s(30)));
        assert_eq!(pending.readiness(&"n", None, s(1)), Ready);
    }

    #[test]
    fn what_is_called_is_not_forgotten() {
        let mut pending = InFlight::default();
        pending.begin("called");
        pending.failed("gone", s(0));
        pending.forget_unless(|_| false);
        assert_eq!(pending.readiness(&"called", None, s(0)), Called);
        assert_eq!(pending.readiness(&"gone", None, s(0)), Ready);
    }
}
