//! When the host is looked at, and when it may be asked for what.

use std::collections::HashMap;
use std::time::Duration;

use brupop_agent_core::step::{Command, HostCall};
use brupop_runtime::waits::{doubled, jittered, random_part};
use tokio::time::Instant;

/// Looks for updates that are left out while an image waits for its turn, for each look costs a report.
const REFRESHES_LEFT_OUT: u32 = 11;
/// First and longest wait before a command is repeated for the same spec.
const REPEAT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(45));
/// Longest wait between two downloads of the same version ahead of its turn.
const PREFETCH_PAUSE_MAX: Duration = Duration::from_hours(24);
/// A host that is busy for longer while nothing is asked of it is worth a word. A refresh takes seconds, or its network
/// time-outs.
const BUSY_FOR_LONG: Duration = Duration::from_mins(10);
/// A command that had begun is lost if the host has said for so long that nothing runs, and still does not tell its end.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// The clock of one host.
#[derive(Debug)]
pub(super) struct Pace {
    refresh_at: Instant,
    /// For each call, the generation of the shadow for which it was made.
    calls: HashMap<HostCall, Repeats<u64>>,
    /// The version that was downloaded ahead of its turn.
    prefetch: Option<Repeats<String>>,
    /// When a command was last known to run.
    ran_at: Option<Instant>,
    /// The time since which one has run at each look.
    busy_since: Option<Instant>,
}

/// Counts repeated requests in the same case, and spaces them.
#[derive(Debug)]
struct Repeats<C> {
    case: C,
    times: u32,
    allowed_at: Instant,
}

impl<C: PartialEq> Repeats<C> {
    fn next(before: Option<Self>, case: C, first: Duration, longest: Duration) -> Self {
        let before = before.filter(|before| before.case == case);
        let times = before.map_or(0, |before| before.times.saturating_add(1));
        let pause = jittered(doubled(first, times, longest), 0.1);
        Self {
            case,
            times,
            allowed_at: Instant::now() + pause,
        }
    }

    fn wait(&self) -> Option<Duration> {
        self.allowed_at
            .checked_duration_since(Instant::now())
            .filter(|wait| !wait.is_zero())
    }
}

impl Pace {
    /// The first look for updates comes within `start_jitter`.
    pub(super) fn new(start_jitter: Duration) -> Self {
        Self {
            refresh_at: Instant::now() + random_part(start_jitter),
            calls: HashMap::new(),
            prefetch: None,
            ran_at: None,
            busy_since: None,
        }
    }

    /// Returns how long until the next look for updates. It is later by some intervals if an image waits for its turn.
    pub(super) fn until_refresh(&self, interval: Duration, image_waits: bool) -> Duration {
        let left_out = if image_waits { REFRESHES_LEFT_OUT } else { 0 };
        (self.refresh_at + interval.saturating_mul(left_out)).duration_since(Instant::now())
    }

    /// The host has begun to look for updates.
    pub(super) fn refresh_begun(&mut self, interval: Duration) {
        self.refresh_at = Instant::now() + jittered(interval, 0.1);
    }

    /// Returns how long this call must wait, if it must. `generation` is the shadow's.
    pub(super) fn wait(&self, call: HostCall, generation: u64) -> Option<Duration> {
        let repeats = self.calls.get(&call)?;
        repeats.wait().filter(|_| repeats.case == generation)
    }

    /// The host has accepted the call. A reboot may be asked for again after `reboot`.
    pub(super) fn called(&mut self, call: HostCall, generation: u64, reboot: Duration) {
        let (first, longest) = match call {
            HostCall::Reboot => (reboot, reboot),
            HostCall::Command(_) => REPEAT,
        };
        if call == HostCall::Command(Command::Prepare) {
            // A refresh after a prepare is a new look, and no repetition.
            self.calls.remove(&HostCall::Command(Command::Refresh));
        }
        let before = self.calls.remove(&call);
        let repeats = Repeats::next(before, generation, first, longest);
        self.calls.insert(call, repeats);
    }

    /// Returns how long the download of this version ahead of its turn must wait, if it must.
    pub(super) fn until_prefetch(&self, version: &str) -> Option<Duration> {
        let repeats = self.prefetch.as_ref()?;
        repeats.wait().filter(|_| repeats.case == version)
    }

    /// A download of this version was asked for ahead of its turn. A second one may follow after `interval`, a third after
    /// twice that.
    pub(super) fn prefetched(&mut self, version: &str, interval: Duration) {
        let before = self.prefetch.take();
        let repeats = Repeats::next(before, version.to_owned(), interval, PREFETCH_PAUSE_MAX);
        self.prefetch = Some(repeats);
    }

    /// A command of ours has begun, or may have.
    pub(super) fn command_begun(&mut self) {
        self.ran_at = Some(Instant::now());
    }

    /// The host says whether a command runs.
    pub(super) fn looked(&mut self, busy: bool) {
        if busy {
            self.command_begun();
            self.busy_since.get_or_insert_with(Instant::now);
        } else {
            self.busy_since = None;
        }
    }

    /// Whether a command that had begun is lost: killed on the host, or its result overwritten by another's.
    pub(super) fn is_command_lost(&self) -> bool {
        self.ran_at.is_none_or(|at| at.elapsed() >= LOST_AFTER)
    }

    /// Whether the host has been busy for long, without interruption.
    pub(super) fn is_busy_for_long(&self) -> bool {
        self.busy_since
            .is_some_and(|since| since.elapsed() >= BUSY_FOR_LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_about(wait: Option<Duration>, seconds: u64) -> bool {
        let seconds = Duration::from_secs(seconds);
        wait.is_some_and(|wait| (seconds.mul_f64(0.89)..=seconds.mul_f64(1.11)).contains(&wait))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_longer_each_time_for_the_same_spec() {
        let [refresh, prepare] = [Command::Refresh, Command::Prepare].map(HostCall::Command);
        let minute = Duration::from_mins(1);
        let mut pace = Pace::new(Duration::ZERO);
        for seconds in [2, 4, 8, 16, 32, 45, 45] {
            assert_eq!(pace.wait(prepare, 1), None);
            pace.called(refresh, 1, minute);
            assert!(is_about(pace.wait(refresh, 1), 2));
            pace.called(prepare, 1, minute);
            assert!(is_about(pace.wait(prepare, 1), seconds), "{seconds}");
            assert_eq!(pace.wait(refresh, 1), None, "after a prepare");
            assert_eq!(pace.wait(prepare, 2), None, "another spec");
            assert_eq!(pace.wait(HostCall::Reboot, 1), None, "another call");
            tokio::time::advance(2 * minute).await;
        }
        for _ in 0..3 {
            pace.called(HostCall::Reboot, 1, minute);
            assert!(is_about(pace.wait(HostCall::Reboot, 1), 60));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn useless_prefetches_become_rare() {
        let interval = Duration::from_mins(10);
        let mut pace = Pace::new(Duration::ZERO);
        for times in [1, 2, 4, 8, 16, 32, 64, 128, 144, 144] {
            assert_eq!(pace.until_prefetch("1.20.0"), None);
            pace.prefetched("1.20.0", interval);
            assert!(is_about(pace.until_prefetch("1.20.0"), times * 600));
            assert_eq!(pace.until_prefetch("1.20.1"), None, "another version");
            tokio::time::advance(Duration::from_hours(30)).await;
        }
    }
}
