//! The last request about one object, and when the next one may be sent.
//!
//! An object is left alone until what was written has come back through its watch, so that no write is repeated, or decided,
//! on a stale view; and what changed nothing is not written again.

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
/// Writes of one object for one reason, with no other between them. An update needs fewer; somebody undoes what is written.
const WRITES_ON_END: u32 = 16;

/// The last request about one object. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    wait: Wait,
    /// Failures, refusals and writes without effect in a row.
    failures: u32,
    /// Refusals among them.
    refusals: u32,
    /// For which reason the object was last written, and how often in a row.
    written_for: (&'static str, u32),
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
    /// It waits for this version of the object, or a later one, and for `earliest`. An object that was made may not be seen
    /// yet; any other that is not there has gone.
    Version {
        at_least: u64,
        made: bool,
        earliest: Duration,
        until: Duration,
    },
    /// It waits for any version other than this.
    Change { from: Option<u64>, until: Duration },
    /// It waits for this instant.
    Time { until: Duration },
}

/// Whether a request about the object may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaySend {
    /// Yes.
    Ready,
    /// Not while one is under way.
    UnderWay,
    /// Not before the object changes, or this instant comes.
    Until(Duration),
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// It changed the object.
    Change,
    /// It changed the object, as many did before it for the same reason. `first` says whether it is the first for which the next one waits.
    Again { first: bool },
    /// It changed nothing. `first` says whether it is the first such write in a row.
    Nothing { first: bool },
}

impl InFlight {
    /// A request is sent.
    pub(crate) fn sent(&mut self) {
        self.wait = Wait::Answer;
    }

    /// Whether a request is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.wait, Wait::Answer)
    }

    /// The request was carried out, for this reason, on the object in version `seen`, which is in version `written` now.
    pub(crate) fn written(
        &mut self,
        reason: &'static str,
        seen: Option<u64>,
        written: Option<u64>,
        content: Option<Value>,
        now: Duration,
    ) -> Wrote {
        if let Some(idle) = seen.filter(|_| seen == written).zip(content) {
            let first = self.idle.replace(idle).is_none();
            // The patch may name the time, and so be another one each time.
            self.wait_for_change(seen, now);
            return Wrote::Nothing { first };
        }
        let (before, times) = self.written_for;
        let times = if before == reason && !reason.is_empty() {
            times.saturating_add(1)
        } else {
            1
        };
        let surplus = times.saturating_sub(WRITES_ON_END);
        let earliest = if surplus > 0 {
            now + back_off(surplus)
        } else {
            now
        };
        *self = Self {
            written_for: (reason, times),
            ..Self::default()
        };
        self.wait_for_version(written, seen.is_none(), earliest);
        if surplus > 0 {
            Wrote::Again {
                first: surplus == 1,
            }
        } else {
            Wrote::Change
        }
    }

    /// Waits until this version of the object has been seen, and for this instant.
    pub(super) fn wait_for_version(
        &mut self,
        version: Option<u64>,
        made: bool,
        earliest: Duration,
    ) {
        self.wait = match version {
            Some(at_least) => Wait::Version {
                at_least,
                made,
                earliest,
                until: earliest + LONGEST_WAIT,
            },
            None => Wait::Time { until: earliest },
        };
    }

    /// Whether this change of the object in this version would change nothing once more.
    pub(crate) fn would_repeat(
        &self,
        seen: Option<u64>,
        content: impl FnOnce() -> Option<Value>,
    ) -> bool {
        self.idle.as_ref().is_some_and(|(version, last)| {
            seen == Some(*version) && content().as_ref() == Some(last)
        })
    }

    /// The request removed the object whose version was `from`.
    pub(crate) fn removed(&mut self, from: Option<u64>, now: Duration) {
        *self = Self {
            wait: Wait::Change {
                from,
                until: now + LONGEST_WAIT,
            },
            ..Self::default()
        };
    }

    /// The request was refused, because the object is no longer as it was in version `from`. If it still is, the mistake is
    /// ours; so the wait is limited. Returns how often in a row this has happened.
    pub(crate) fn refused(&mut self, from: Option<u64>, now: Duration) -> u32 {
        self.wait_for_change(from, now);
        self.refusals = self.refusals.saturating_add(1);
        self.refusals
    }

    fn wait_for_change(&mut self, from: Option<u64>, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        let until = now + back_off(self.failures).max(FIRST_BACK_OFF * 4);
        self.wait = Wait::Change { from, until };
    }

    /// The request failed. Returns whether that is worth a line.
    pub(crate) fn failed(&mut self, why: &str, now: Duration) -> bool {
        self.postponed(now);
        self.log.is_new(why)
    }

    /// The request was not made, as it was too early for it.
    pub(crate) fn postponed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.wait = Wait::Time {
            until: now + back_off(self.failures),
        };
    }

    /// Whether a request about the object may be sent, if the object is known in this version.
    pub(crate) fn readiness(&self, version: Option<u64>, now: Duration) -> MaySend {
        let until = match self.wait {
            Wait::Nothing => return MaySend::Ready,
            Wait::Answer => return MaySend::UnderWay,
            Wait::Version {
                at_least,
                made,
                earliest,
                ..
            } if version.map_or(!made, |version| version >= at_least) => earliest,
            Wait::Change { from, .. } if version != from => return MaySend::Ready,
            Wait::Version { until, .. } | Wait::Change { until, .. } | Wait::Time { until } => {
                until
            }
        };
        if now >= until {
            MaySend::Ready
        } else {
            MaySend::Until(until)
        }
    }
}

fn back_off(failures: u32) -> Duration {
    doubled(FIRST_BACK_OFF, failures.saturating_sub(1), LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests;
