//! What the reconciler is told at start, by flags or environment; upstream's variables keep their names.

use std::net::SocketAddr;
use std::str::FromStr;

use clap::{ArgAction, Parser, Subcommand, ValueEnum, value_parser};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::facts::FailureBudget;
use crate::leave::LeaveArgs;
use crate::plan::PlanArgs;
use crate::schedule::{Kind, Schedule};

/// Longest time that can be set, in seconds: a week.
const LONGEST: u64 = 7 * 24 * 3600;

/// Updates the Bottlerocket hosts of a cluster, a few at a time.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-reconciler", version)]
pub struct Settings {
    /// How many nodes may be updated at once: an integer, a percentage of the labelled nodes, or `unlimited`
    #[arg(long, env = "MAX_CONCURRENT_UPDATE", default_value = "1")]
    pub max_concurrent_update: Limit,
    /// How many nodes may fail to reach a version that none has reached yet, before no further one tries; or `unlimited`
    #[arg(long, env = "MAX_FAILURES_OF_NEW_VERSION", default_value = "1")]
    pub max_failures_of_new_version: Failures,
    /// The same, once a node has reached it
    #[arg(long, env = "MAX_FAILURES", default_value = "2")]
    pub max_failures: Failures,
    /// Seconds between the exclusion from load balancers and the drain; 0 leaves load balancers alone
    #[arg(long, env = "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", default_value = "0", value_parser = seconds(0))]
    pub exclude_from_lb_wait_time_in_sec: u64,
    /// When updates may start: seven fields, seconds first; with a duration also five, minutes first
    #[arg(long, env = "SCHEDULER_CRON_EXPRESSION", default_value = "* * * * * * *")]
    pub scheduler_cron_expression: String,
    /// Time zone of the cron expression, by its name in the IANA database
    #[arg(long, env = "SCHEDULER_TIME_ZONE", default_value = "UTC", value_parser = time_zone)]
    pub scheduler_time_zone: TimeZone,
    /// For how long updates may start each time that the cron expression fires, such as `4h` or `90m`
    #[arg(long, env = "SCHEDULER_WINDOW_DURATION", value_parser = window)]
    pub scheduler_window_duration: Option<SignedDuration>,
    /// Seconds that must be left of the window for an update to start, or `typical`: as long as updates have taken so far
    #[arg(long, env = "SCHEDULER_MIN_REMAINING_SECONDS", default_value = "typical")]
    pub scheduler_min_remaining_seconds: Remaining,
    /// Seconds for which a node must have existed before it is updated
    #[arg(long, env = "MIN_NODE_AGE_SECONDS", default_value = "300", value_parser = seconds(0))]
    pub min_node_age_seconds: u64,
    /// Seconds after the end of an update in which no other one starts
    #[arg(long, env = "PAUSE_BETWEEN_UPDATES_SECONDS", default_value = "0", value_parser = seconds(0))]
    pub pause_between_updates_seconds: u64,
    /// Seconds for which an updated node is watched before its update counts as done
    #[arg(long, env = "SOAK_SECONDS", default_value = "60", value_parser = seconds(0))]
    pub soak_seconds: u64,
    /// Seconds after that in which workloads whose pods were evicted must be available again, if they were before; 0 does not look at them
    #[arg(long, env = "WORKLOADS_DEADLINE_SECONDS", default_value = "900", value_parser = seconds(0))]
    pub workloads_deadline_seconds: u64,
    /// Seconds for download and activation: more than the slowest network takes, for no agent gives up a download that goes on
    #[arg(long, env = "STAGE_DEADLINE_SECONDS", default_value = "14400", value_parser = seconds(1))]
    pub stage_deadline_seconds: u64,
    /// Seconds in which a node must be empty once its drain began
    #[arg(long, env = "DRAIN_DEADLINE_SECONDS", default_value = "900", value_parser = seconds(1))]
    pub drain_deadline_seconds: u64,
    /// What becomes of a drain that takes too long: `abort` leaves the pods alone and passes the node over; `force` deletes them whatever their budgets say (and needs the right to)
    #[arg(long, env = "DRAIN_ON_DEADLINE", default_value = "abort")]
    pub drain_on_deadline: OnDeadline,
    /// Seconds for a reboot, from the grant on
    #[arg(long, env = "REBOOT_DEADLINE_SECONDS", default_value = "1800", value_parser = seconds(1))]
    pub reboot_deadline_seconds: u64,
    /// Seconds in which a node must be Ready again while it is watched, and its agent must take up an update or follow its end
    #[arg(long, env = "SETTLE_DEADLINE_SECONDS", default_value = "600", value_parser = seconds(1))]
    pub settle_deadline_seconds: u64,
    /// Seconds that a node waits after its first failure; doubled with each further one, at most a day
    #[arg(long, env = "BACK_OFF_BASE_SECONDS", default_value = "120", value_parser = seconds(1))]
    pub back_off_base_seconds: u64,
    /// Seconds after which a silent leader is succeeded
    #[arg(long, env = "LEASE_DURATION_SECONDS", default_value = "15", value_parser = value_parser!(u64).range(3..=300))]
    pub lease_duration_seconds: u64,
    /// Labels the nodes that run Bottlerocket and do not have the label bottlerocket.aws/updater-interface-version (and needs the component auto-label, by which the policy allows it)
    #[arg(long, env = "AUTO_LABEL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub auto_label: bool,
    /// Seconds between two proofs that our admission rules are in force
    #[arg(long, env = "CANARY_INTERVAL_SECONDS", default_value = "60", value_parser = value_parser!(u64).range(1..=3600))]
    pub canary_interval_seconds: u64,
    /// Address and port for /livez and /readyz
    #[arg(long, env = "HEALTH_ADDRESS", default_value = "[::]:8080")]
    pub health_address: SocketAddr,
    /// Address and port for /metrics (TLS), for those who may get the nonResourceURL /metrics
    #[arg(long, env = "METRICS_ADDRESS", default_value = "[::]:8444")]
    pub metrics_address: SocketAddr,
    /// Name of this pod: who holds the Lease, and who reports Events
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// What to do instead of reconciling
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do instead of reconciling.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Prints what would happen now, in which order, and why not for the rest; writes nothing
    Plan(PlanArgs),
    /// Waits until no update runs and nothing of ours is left on any Node, before uninstalling; writes nothing
    DrainToIdle(LeaveArgs),
}

/// The durations that [`crate::observe`] turns into facts.
#[derive(Clone, Copy, Debug)]
pub struct Durations {
    /// Between exclusion and drain; zero = no exclusion.
    pub exclusion: SignedDuration,
    /// Of the watch after an update.
    pub soak: SignedDuration,
    /// For evicted workloads to be available again, after the watch; zero = they are not looked at.
    pub workloads: SignedDuration,
    /// For download and activation.
    pub stage: SignedDuration,
    /// For a drain.
    pub drain: SignedDuration,
    /// For a reboot.
    pub reboot: SignedDuration,
    /// For what should take moments: the agent's first and last word, a node that is Ready again.
    pub settle: SignedDuration,
    /// Wait after the first failure.
    pub back_off_base: SignedDuration,
    /// Of a node, before it is updated.
    pub min_node_age: SignedDuration,
    /// Between the end of an update and the start of another.
    pub pause: SignedDuration,
}

impl Settings {
    /// When updates may start.
    ///
    /// # Errors
    /// What is wrong with the expression, and what to write instead.
    pub fn schedule(&self) -> Result<Schedule, String> {
        Schedule::new(
            &self.scheduler_cron_expression,
            self.scheduler_time_zone.clone(),
            self.scheduler_window_duration,
        )
        .map_err(|why| format!("SCHEDULER_CRON_EXPRESSION \"{}\": {why}", self.scheduler_cron_expression))
        .and_then(|schedule| match schedule.kind() {
            Kind::Span(length) if length < self.min_remaining(&schedule, Timestamp::MIN, None) => Err(
                "SCHEDULER_MIN_REMAINING_SECONDS is more than SCHEDULER_WINDOW_DURATION, so nothing would ever start: \
                 write less"
                    .to_owned(),
            ),
            _ => Ok(schedule),
        })
    }

    /// How many nodes may fail to reach a version.
    pub fn failure_budget(&self) -> FailureBudget {
        FailureBudget { unproven: self.max_failures_of_new_version.0, proven: self.max_failures.0 }
    }

    /// What must be left of the window for an update to start now, if one usually takes so many seconds.
    pub fn min_remaining(
        &self,
        schedule: &Schedule,
        now: Timestamp,
        typical_seconds: Option<u64>,
    ) -> SignedDuration {
        match self.scheduler_min_remaining_seconds {
            Remaining::Seconds(seconds) => duration(seconds),
            Remaining::Typical => {
                let typical = duration(typical_seconds.unwrap_or(0).min(LONGEST));
                // What fits into no window would never start.
                if schedule.fits(now, typical) { typical } else { SignedDuration::ZERO }
            }
        }
    }

    /// The durations that decisions rest on.
    pub fn durations(&self) -> Durations {
        let of = duration;
        Durations {
            exclusion: of(self.exclude_from_lb_wait_time_in_sec),
            soak: of(self.soak_seconds),
            workloads: of(self.workloads_deadline_seconds),
            stage: of(self.stage_deadline_seconds),
            drain: of(self.drain_deadline_seconds),
            reboot: of(self.reboot_deadline_seconds),
            settle: of(self.settle_deadline_seconds),
            back_off_base: of(self.back_off_base_seconds),
            min_node_age: of(self.min_node_age_seconds),
            pause: of(self.pause_between_updates_seconds),
        }
    }
}

/// `LONGEST` is far below `i64::MAX`.
fn duration(seconds: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn time_zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name)
        .map_err(|_| "write a name of the IANA database, such as Europe/Berlin or UTC".to_owned())
}

fn window(text: &str) -> Result<SignedDuration, String> {
    let week = SignedDuration::from_hours(7 * 24);
    text.parse()
        .ok()
        .filter(|duration: &SignedDuration| duration.is_positive() && *duration <= week)
        .ok_or_else(|| "write hours and minutes up to a week, such as 4h or 90m".to_owned())
}

fn seconds(least: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse()
            .ok()
            .filter(|seconds| (least..=LONGEST).contains(seconds))
            .ok_or_else(|| format!("write whole seconds from {least} to {LONGEST}, such as 300"))
    }
}

/// What must be left of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// As much as an update usually takes.
    Typical,
    /// That many seconds.
    Seconds(u64),
}

impl FromStr for Remaining {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "typical" => Ok(Self::Typical),
            seconds => {
                self::seconds(0)(seconds).map(Self::Seconds).map_err(|why| format!("{why}; or `typical`"))
            }
        }
    }
}

/// How many nodes may be updated at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// That many.
    Nodes(u64),
    /// That part of the labelled nodes, rounded down, at least one.
    Percent(u64),
    /// Any number.
    Unlimited,
}

impl Limit {
    /// The limit as a number, for a fleet of so many labelled nodes; `None` = unlimited.
    pub fn of(self, labelled: u64) -> Option<u64> {
        match self {
            Self::Nodes(nodes) => Some(nodes),
            Self::Percent(percent) => Some((labelled.saturating_mul(percent) / 100).max(1)),
            Self::Unlimited => None,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| digits.parse::<u64>().ok().filter(|number| *number >= 1);
        match (text, text.strip_suffix('%')) {
            ("unlimited", _) => Some(Self::Unlimited),
            (_, Some(digits)) => number(digits).filter(|percent| *percent <= 100).map(Self::Percent),
            (digits, None) => number(digits).map(Self::Nodes),
        }
        .ok_or_else(|| {
            "write an integer from 1 such as 2, a percentage from 1% to 100% such as 10%, or unlimited"
                .to_owned()
        })
    }
}

/// What becomes of a drain that takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnDeadline {
    /// The update is given up, and what was changed is undone.
    Abort,
    /// The pods are deleted.
    Force,
}

/// How many nodes may fail; `None` = any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures(pub Option<u64>);

impl FromStr for Failures {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unlimited" {
            return Ok(Self(None));
        }
        // The ledger keeps the last eight failed nodes of a version.
        text.parse()
            .ok()
            .filter(|number| (1..=8).contains(number))
            .map(|number| Self(Some(number)))
            .ok_or_else(|| "write an integer from 1 to 8, such as 2, or unlimited".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &[&str]) -> Result<Settings, clap::Error> {
        Settings::try_parse_from(["reconciler", "--pod-name=brupop-reconciler-0"].iter().chain(more))
    }

    #[test]
    fn the_defaults_are_good() {
        let settings = parse(&[]).unwrap();
        assert_eq!(settings.max_concurrent_update, Limit::Nodes(1));
        assert_eq!(settings.failure_budget(), FailureBudget::default());
        assert_eq!(settings.durations().exclusion, SignedDuration::ZERO);
        assert_eq!(settings.durations().soak, SignedDuration::from_secs(60));
    }

    #[test]
    fn limits_are_read_and_counted() {
        for (text, nodes, limit) in [
            ("3", 100, Some(3)),
            ("10%", 100, Some(10)),
            ("10%", 19, Some(1)),
            ("10%", 0, Some(1)),
            ("100%", 7, Some(7)),
            ("unlimited", 7, None),
        ] {
            assert_eq!(text.parse::<Limit>().unwrap().of(nodes), limit, "{text} of {nodes}");
        }
    }

    #[test]
    fn bad_values_are_refused_by_name_with_what_to_write() {
        for (bad, variable, hint) in [
            ("--max-concurrent-update=0", "MAX_CONCURRENT_UPDATE", "such as 2"),
            ("--max-concurrent-update=-1", "MAX_CONCURRENT_UPDATE", "such as 10%"),
            ("--max-concurrent-update=101%", "MAX_CONCURRENT_UPDATE", "100%"),
            ("--max-concurrent-update=many", "MAX_CONCURRENT_UPDATE", "unlimited"),
            ("--max-concurrent-update=", "MAX_CONCURRENT_UPDATE", "unlimited"),
            ("--max-failures=0", "MAX_FAILURES", "from 1 to 8"),
            ("--max-failures-of-new-version=9", "MAX_FAILURES_OF_NEW_VERSION", "unlimited"),
            ("--exclude-from-lb-wait-time-in-sec=soon", "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "such as 300"),
            ("--scheduler-time-zone=Berlin", "SCHEDULER_TIME_ZONE", "Europe/Berlin"),
            ("--scheduler-window-duration=0h", "SCHEDULER_WINDOW_DURATION", "such as 4h"),
            ("--scheduler-window-duration=4", "SCHEDULER_WINDOW_DURATION", "such as 4h"),
            ("--soak-seconds=1m", "SOAK_SECONDS", "such as 300"),
            ("--drain-deadline-seconds=0", "DRAIN_DEADLINE_SECONDS", "from 1"),
            ("--lease-duration-seconds=1", "LEASE_DURATION_SECONDS", "3..=300"),
        ] {
            let sentence = parse(&[bad]).unwrap_err().to_string();
            assert!(sentence.contains(variable) && sentence.contains(hint), "{bad}: {sentence}");
        }
        for bad in ["* * *", "0 0 25 * * * *"] {
            let settings = parse(&[&format!("--scheduler-cron-expression={bad}")]).unwrap();
            let sentence = settings.schedule().unwrap_err();
            assert!(sentence.contains("SCHEDULER_CRON_EXPRESSION") && sentence.contains("* * * * * * *"));
        }
        let never = parse(&[
            "--scheduler-cron-expression=0 2 * * *",
            "--scheduler-window-duration=1h",
            "--scheduler-min-remaining-seconds=7200",
        ]);
        let sentence = never.unwrap().schedule().unwrap_err();
        assert!(sentence.contains("SCHEDULER_MIN_REMAINING_SECONDS"), "{sentence}");
        assert_eq!(Settings::try_parse_from(["reconciler"]).unwrap().pod_name, None);
    }
}
