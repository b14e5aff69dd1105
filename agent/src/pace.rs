//! How often the host may be asked the same thing, and when it is looked at again.

use std::time::Duration;

use brupop_runtime::waits::{doubled, jittered, random_part};
use tokio::time::Instant;

use brupop_agent_core::step::{Command, HostCall};

const POLL_MIN: Duration = Duration::from_millis(10);
const REPEAT_MIN: Duration = Duration::from_secs(2);
const REPEAT_MAX: Duration = Duration::from_secs(45);
/// Longest wait between two downloads of the same version ahead of its turn.
const PREFETCH_PAUSE_MAX: Duration = Duration::from_hours(24);
/// An image that was downloaded ahead of its turn makes looks for updates this many times rarer, for each look costs a
/// report.
const REFRESHES_LEFT_OUT: u32 = 12;
/// A host that is busy for longer while nothing is asked of it is worth a word. A refresh takes seconds, or its network
/// time-outs.
const BUSY_FOR_LONG: Duration = Duration::from_mins(10);
/// A command that had begun is lost if the host has said for so long that nothing runs, and still does not tell its end.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// When the host may be asked for what.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) polls: Polls,
    repeats: Repeats,
    /// Repeats of an activate, between which there are looks for updates.
    activates: Repeats,
    pub(crate) prefetches: Prefetches,
    pub(crate) command: RunningCommand,
    refresh_at: Instant,
}

impl Pace {
    /// The first look for updates, and the first download ahead of its turn, come within `start_jitter`.
    pub(crate) fn new(start_jitter: Duration) -> Self {
        let refresh_at = Instant::now() + random_part(start_jitter);
        Self {
            polls: Polls::default(),
            repeats: Repeats::default(),
            activates: Repeats::default(),
            prefetches: Prefetches::not_before(refresh_at),
            command: RunningCommand::default(),
            refresh_at,
        }
    }

    /// The repetitions of this call.
    pub(crate) fn repeats(&mut self, call: HostCall) -> &mut Repeats {
        if call == HostCall::Command(Command::Activate) {
            &mut self.activates
        } else {
            &mut self.repeats
        }
    }

    /// Is it time to look for updates?
    pub(crate) fn refresh_is_due(&self) -> bool {
        Instant::now() >= self.refresh_at
    }

    /// The host has begun to look for updates: it does so again after `interval`.
    pub(crate) fn refresh_begun(&mut self, interval: Duration) {
        self.refresh_at = Instant::now() + jittered(interval, 0.1);
    }

    /// An image waits that was downloaded ahead of its turn.
    pub(crate) fn prefetched(&mut self, interval: Duration) {
        self.refresh_begun(interval.saturating_mul(REFRESHES_LEFT_OUT));
    }

    /// No image waits any more.
    pub(crate) fn image_gone(&mut self, interval: Duration) {
        self.refresh_at = self
            .refresh_at
            .min(Instant::now() + jittered(interval, 0.1));
    }

    /// How long until something is due on an idle host, which may download `prefetch` ahead of its turn.
    pub(crate) fn idle_for(&self, prefetch: Option<&str>) -> Duration {
        let refresh = self.refresh_at.duration_since(Instant::now());
        prefetch
            .and_then(|version| self.prefetches.wait(version))
            .map_or(refresh, |wait| wait.min(refresh))
    }
}

/// Looks at a command that runs: soon at first, then at an interval.
#[derive(Debug, Default)]
pub(crate) struct Polls(u32);

impl Polls {
    /// How long to wait before the next look.
    pub(crate) fn next(&mut self, interval: Duration) -> Duration {
        let delay = doubled(POLL_MIN, self.0, interval);
        self.0 = self.0.saturating_add(1);
        delay
    }

    /// Something else happened.
    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Repetitions of the same call for the same spec. They should be rare: a call is repeated only if the first was lost.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    last: Option<(HostCall, u64)>,
    times: u32,
    allowed_at: Option<Instant>,
}

impl Repeats {
    /// How long this call must wait, if it must. `generation` is the shadow's.
    pub(crate) fn wait(&self, call: HostCall, generation: u64) -> Option<Duration> {
        if self.last != Some((call, generation)) {
            return None;
        }
        self.allowed_at?
            .checked_duration_since(Instant::now())
            .filter(|wait| !wait.is_zero())
    }

    /// The call was made, and accepted. A reboot may be asked for again after `reboot`.
    pub(crate) fn accepted(&mut self, call: HostCall, generation: u64, reboot: Duration) {
        self.times = if self.last == Some((call, generation)) {
            self.times.saturating_add(1)
        } else {
            0
        };
        self.last = Some((call, generation));
        let pause = match call {
            HostCall::Reboot => reboot,
            HostCall::Command(_) => doubled(REPEAT_MIN, self.times, REPEAT_MAX),
        };
        self.allowed_at = Some(Instant::now() + pause);
    }

    /// The call was made, whatever came of it. While a reboot that was accepted is under way, the host may refuse further
    /// requests: these wait just as long.
    pub(crate) fn asked(&mut self, call: HostCall, generation: u64, reboot: Duration) {
        if call == HostCall::Reboot && self.last == Some((call, generation)) {
            self.allowed_at = Some(Instant::now() + reboot);
        }
    }
}

/// Downloads ahead of the turn. The first of each version is made at once; if it fails, further ones come ever more rarely.
#[derive(Debug)]
pub(crate) struct Prefetches {
    version: Option<String>,
    times: u32,
    allowed_at: Instant,
}

impl Prefetches {
    /// No download before this moment, for all agents of a fleet may start at once.
    pub(crate) fn not_before(moment: Instant) -> Self {
        Self {
            version: None,
            times: 0,
            allowed_at: moment,
        }
    }

    /// How long a download of this version must wait, if it must.
    pub(crate) fn wait(&self, version: &str) -> Option<Duration> {
        if self.times > 0 && self.version.as_deref() != Some(version) {
            return None;
        }
        self.allowed_at
            .checked_duration_since(Instant::now())
            .filter(|wait| !wait.is_zero())
    }

    /// A download of this version was asked for. A second one may follow after `base`, a third after twice that.
    pub(crate) fn asked(&mut self, version: &str, base: Duration) {
        self.times = if self.version.as_deref() == Some(version) {
            self.times.saturating_add(1)
        } else {
            1
        };
        self.version = Some(version.to_owned());
        let pause = doubled(base, self.times - 1, PREFETCH_PAUSE_MAX);
        self.allowed_at = Instant::now() + jittered(pause, 0.1);
    }
}

/// The command that runs on the host, as far as it is seen.
#[derive(Debug, Default)]
pub(crate) struct RunningCommand {
    /// When one was last known to run.
    known_at: Option<Instant>,
    /// Since when one has run at each look.
    busy_since: Option<Instant>,
}

impl RunningCommand {
    /// A command of ours has begun, or may have.
    pub(crate) fn begun(&mut self) {
        self.known_at = Some(Instant::now());
    }

    /// The host says whether a command runs.
    pub(crate) fn seen(&mut self, busy: bool) {
        if busy {
            self.begun();
            self.busy_since.get_or_insert_with(Instant::now);
        } else {
            self.busy_since = None;
        }
    }

    /// Is a command that had begun lost: killed on the host, or its result overwritten by another's?
    pub(crate) fn is_lost(&self) -> bool {
        self.known_at
            .is_none_or(|known_at| known_at.elapsed() >= LOST_AFTER)
    }

    /// Has the host been busy for long, without interruption?
    pub(crate) fn is_long(&self) -> bool {
        self.busy_since
            .is_some_and(|since| since.elapsed() >= BUSY_FOR_LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_agent_core::step::Command;

    #[test]
    fn polls_slow_down_to_the_interval() {
        let mut polls = Polls::default();
        let interval = Duration::from_millis(100);
        let delays: Vec<u128> = (0..5).map(|_| polls.next(interval).as_millis()).collect();
        assert_eq!(delays, [10, 20, 40, 80, 100]);
        polls.reset();
        assert_eq!(polls.next(Duration::from_millis(10)).as_millis(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_call_for_the_same_wish_waits() {
        let prepare = HostCall::Command(Command::Prepare);
        let reboot = Duration::from_secs(30);
        let mut repeats = Repeats::default();
        assert_eq!(repeats.wait(prepare, 1), None);
        repeats.accepted(prepare, 1, reboot);
        assert_eq!(repeats.wait(prepare, 1), Some(Duration::from_secs(2)));
        assert_eq!(repeats.wait(prepare, 2), None, "another wish");
        assert_eq!(
            repeats.wait(HostCall::Command(Command::Activate), 1),
            None,
            "another call"
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(repeats.wait(prepare, 1), None);
        repeats.accepted(prepare, 1, reboot);
        assert_eq!(repeats.wait(prepare, 1), Some(Duration::from_secs(4)));
        repeats.accepted(HostCall::Reboot, 1, reboot);
        assert_eq!(repeats.wait(HostCall::Reboot, 1), Some(reboot));
        tokio::time::advance(reboot).await;
        repeats.asked(HostCall::Reboot, 1, reboot);
        assert_eq!(
            repeats.wait(HostCall::Reboot, 1),
            Some(reboot),
            "also if the host refuses it now"
        );
        repeats.asked(HostCall::Reboot, 2, reboot);
        assert_eq!(
            repeats.wait(HostCall::Reboot, 2),
            None,
            "it has accepted nothing yet"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn useless_prefetches_become_rare() {
        let second = Duration::from_secs(1);
        let mut prefetches = Prefetches::not_before(Instant::now() + second);
        assert_eq!(
            prefetches.wait("1.20.0"),
            Some(second),
            "a fleet does not start all at once"
        );
        tokio::time::advance(second).await;
        assert_eq!(prefetches.wait("1.20.0"), None);
        let base = Duration::from_mins(10);
        let mut pauses = vec![];
        for _ in 0..12 {
            prefetches.asked("1.20.0", base);
            let pause = prefetches.wait("1.20.0").unwrap();
            pauses.push(pause.as_secs_f64() / base.as_secs_f64());
            assert_eq!(
                prefetches.wait("1.20.1"),
                None,
                "another version starts afresh"
            );
            tokio::time::advance(pause).await;
            assert_eq!(prefetches.wait("1.20.0"), None);
        }
        for (pause, expected) in pauses
            .iter()
            .zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 144.0, 144.0])
        {
            assert!((pause / expected - 1.0).abs() <= 0.11, "{pauses:?}");
        }
        prefetches.asked("1.20.1", base);
        assert!(prefetches.wait("1.20.1").unwrap() < base.mul_f64(1.11));
    }
}
