//! The flags and environment variables, and the policy that they make. Upstream's variables keep their names.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, value_parser};
use jiff::SignedDuration;
use jiff::tz::TimeZone;

use brupop_api::pool::Limit;
use brupop_core::rules::{Policy, Rules, StepDurations};
use brupop_core::window;

/// Longest time that can be set, in seconds: a week.
const LONGEST: i64 = 7 * 24 * 3600;

/// Updates the Bottlerocket hosts of a cluster, a few at a time.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-reconciler", version)]
pub struct Settings {
    /// Number of nodes without a pool that may be updated at once: an integer, a percentage, or `unlimited`
    #[arg(long, env = "MAX_CONCURRENT_UPDATE", default_value = "1")]
    pub max_concurrent_update: Limit,
    /// Seconds between a node's exclusion from load balancers and its drain; 0 leaves load balancers alone
    #[arg(long, env = "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", default_value = "0", value_parser = seconds(0))]
    pub exclude_from_lb_wait_time_in_sec: SignedDuration,
    /// When updates may start: a cron expression of seven fields, seconds first; with a duration five are enough
    #[arg(
        long,
        env = "SCHEDULER_CRON_EXPRESSION",
        default_value = "* * * * * * *"
    )]
    pub scheduler_cron_expression: String,
    /// Time zone of the cron expression, such as `Europe/Berlin`
    #[arg(long, env = "SCHEDULER_TIME_ZONE", default_value = "UTC", value_parser = window::time_zone)]
    pub scheduler_time_zone: TimeZone,
    /// Length of the window that each fire time opens, such as `4h` or `90m`
    #[arg(long, env = "SCHEDULER_WINDOW_DURATION", value_parser = window)]
    pub scheduler_window_duration: Option<SignedDuration>,
    /// Seconds for which a new node is not updated
    #[arg(long, env = "MIN_NODE_AGE_SECONDS", hide = true, default_value = "300", value_parser = seconds(0))]
    pub min_node_age_seconds: SignedDuration,
    /// Seconds for which a node that somebody else has cordoned counts against the limit
    #[arg(long, env = "CORDONED_BY_OTHERS_SECONDS", hide = true, default_value = "3600", value_parser = seconds(0))]
    pub cordoned_by_others_seconds: SignedDuration,
    /// Seconds for which an updated node and its agent must stay Ready before its update is done
    #[arg(long, env = "SOAK_SECONDS", hide = true, default_value = "60", value_parser = seconds(0))]
    pub soak_seconds: SignedDuration,
    /// Seconds after that for which a node keeps its slot while an evicted workload has fewer pods available than before; 0 does not look
    #[arg(long, env = "WORKLOADS_DEADLINE_SECONDS", hide = true, default_value = "900", value_parser = seconds(0))]
    pub workloads_deadline_seconds: SignedDuration,
    /// Seconds allowed for download and activation on the slowest network
    #[arg(long, env = "STAGE_DEADLINE_SECONDS", hide = true, default_value = "14400", value_parser = seconds(1))]
    pub stage_deadline_seconds: SignedDuration,
    /// Seconds allowed for a drain
    #[arg(long, env = "DRAIN_DEADLINE_SECONDS", hide = true, default_value = "900", value_parser = seconds(1))]
    pub drain_deadline_seconds: SignedDuration,
    /// Seconds allowed for a reboot, from its grant on
    #[arg(long, env = "REBOOT_DEADLINE_SECONDS", hide = true, default_value = "1800", value_parser = seconds(1))]
    pub reboot_deadline_seconds: SignedDuration,
    /// Seconds allowed for short steps of an agent or a node
    #[arg(long, env = "SETTLE_DEADLINE_SECONDS", hide = true, default_value = "600", value_parser = seconds(1))]
    pub settle_deadline_seconds: SignedDuration,
    /// Seconds that a node waits after its first failure; each further one doubles this, up to a day; after a failed drain thirty times as long
    #[arg(long, env = "BACK_OFF_BASE_SECONDS", hide = true, default_value = "120", value_parser = seconds(1))]
    pub back_off_base_seconds: SignedDuration,
    /// Seconds after which another replica takes over from a silent leader
    #[arg(long, env = "LEASE_DURATION_SECONDS", hide = true, default_value = "15", value_parser = value_parser!(u64).range(3..=300))]
    pub lease_duration_seconds: u64,
    /// Label Bottlerocket nodes without the opt-in label; needs the component auto-label
    #[arg(long, env = "AUTO_LABEL", hide = true, default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub auto_label: bool,
    /// Seconds between two checks that webhook and policies are enforced
    #[arg(long, env = "CHECK_INTERVAL_SECONDS", hide = true, default_value = "60", value_parser = value_parser!(u64).range(1..=3600))]
    pub check_interval_seconds: u64,
    /// Folder with the sources of gates: the mounted Secret brupop-gate-sources
    #[arg(
        long,
        env = "GATE_SOURCES",
        hide = true,
        default_value = "/etc/brupop/gate-sources"
    )]
    pub gate_sources: PathBuf,
    /// Seconds between two queries of a gate
    #[arg(long, env = "GATE_INTERVAL_SECONDS", hide = true, default_value = "30", value_parser = value_parser!(u64).range(1..=300))]
    pub gate_interval_seconds: u64,
    /// Address and port for /livez and /readyz
    #[arg(long, env = "HEALTH_ADDRESS", hide = true, default_value = "[::]:8080")]
    pub health_address: SocketAddr,
    /// Address and port for /metrics (TLS)
    #[arg(
        long,
        env = "METRICS_ADDRESS",
        hide = true,
        default_value = "[::]:8444"
    )]
    pub metrics_address: SocketAddr,
    /// Name of the reconciler's pod
    #[arg(long, env = "POD_NAME", hide = true)]
    pub pod_name: Option<String>,
    /// Command to run instead of reconciling
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// A command that runs in place of reconciling.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Prints as JSON what would begin if no pause, window, freeze or gate held it, in which order, and why not the rest; writes nothing
    Plan {
        /// Print what starts now, with all pauses, windows, freezes and gates
        #[arg(long)]
        now: bool,
    },
}

impl Settings {
    /// The policy that these settings make.
    ///
    /// # Errors
    /// What is wrong with the schedule, and what to write instead.
    pub fn policy(&self) -> Result<Policy, String> {
        let expression = &self.scheduler_cron_expression;
        let windows = window::windows(
            expression,
            self.scheduler_time_zone.clone(),
            self.scheduler_window_duration,
        )
        .map_err(|why| format!("SCHEDULER_CRON_EXPRESSION \"{expression}\": {why}"))?;
        let step_durations = StepDurations {
            exclusion: self.exclude_from_lb_wait_time_in_sec,
            drain: self.drain_deadline_seconds,
            verify: self.soak_seconds,
            workloads: self.workloads_deadline_seconds,
        };
        Ok(Policy {
            default_pool: Rules::of_settings(self.max_concurrent_update, windows, step_durations),
            stage: self.stage_deadline_seconds,
            reboot: self.reboot_deadline_seconds,
            settle: self.settle_deadline_seconds,
            back_off_base: self.back_off_base_seconds,
            min_node_age: self.min_node_age_seconds,
            others_cordon: self.cordoned_by_others_seconds,
            auto_label: self.auto_label,
        })
    }
}

fn window(text: &str) -> Result<SignedDuration, String> {
    let week = SignedDuration::from_secs(LONGEST);
    text.parse()
        .ok()
        .filter(|duration: &SignedDuration| duration.is_positive() && *duration <= week)
        .ok_or_else(|| "write hours and minutes up to a week, such as 4h or 90m".to_owned())
}

fn seconds(
    least: i64,
) -> impl Fn(&str) -> Result<SignedDuration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let seconds = text.parse().ok();
        let seconds = seconds.filter(|seconds| (least..=LONGEST).contains(seconds));
        seconds
            .map(SignedDuration::from_secs)
            .ok_or_else(|| format!("write whole seconds from {least} to {LONGEST}, such as 300"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::rows;

    fn parse(more: &[&str]) -> Result<Settings, clap::Error> {
        Settings::try_parse_from(
            ["reconciler", "--pod-name=brupop-reconciler-0"]
                .iter()
                .chain(more),
        )
    }

    #[test]
    fn the_defaults_are_those_of_the_policy() {
        let (set, default) = (parse(&[]).unwrap().policy().unwrap(), Policy::default());
        assert_eq!(format!("{set:?}"), format!("{default:?}"));
    }

    #[test]
    fn a_bad_value_is_named_with_a_remedy() {
        for (bad, variable, hint) in rows! {
            "--max-concurrent-update=0", "MAX_CONCURRENT_UPDATE" => "such as 2";
            "--max-concurrent-update=-1", "MAX_CONCURRENT_UPDATE" => "such as 10%";
            "--max-concurrent-update=101%", "MAX_CONCURRENT_UPDATE" => "100%";
            "--max-concurrent-update=many", "MAX_CONCURRENT_UPDATE" => "unlimited";
            "--max-concurrent-update=", "MAX_CONCURRENT_UPDATE" => "unlimited";
            "--exclude-from-lb-wait-time-in-sec=soon", "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC" => "such as 300";
            "--scheduler-time-zone=Berlin", "SCHEDULER_TIME_ZONE" => "Europe/Berlin";
            "--scheduler-window-duration=0h", "SCHEDULER_WINDOW_DURATION" => "such as 4h";
            "--scheduler-window-duration=4", "SCHEDULER_WINDOW_DURATION" => "such as 4h";
            "--soak-seconds=1m", "SOAK_SECONDS" => "such as 300";
            "--drain-deadline-seconds=0", "DRAIN_DEADLINE_SECONDS" => "from 1";
            "--lease-duration-seconds=1", "LEASE_DURATION_SECONDS" => "3..=300";
        } {
            let sentence = parse(&[bad]).unwrap_err().to_string();
            assert!(
                sentence.contains(variable) && sentence.contains(hint),
                "{bad}: {sentence}"
            );
        }
        for bad in ["* * *", "0 0 25 * * * *", "0 0 3 * * MON"] {
            let settings = parse(&[&format!("--scheduler-cron-expression={bad}")]).unwrap();
            let sentence = settings.policy().unwrap_err();
            assert!(
                sentence.contains("SCHEDULER_CRON_EXPRESSION")
                    && sentence.contains("* * * * * * *")
            );
        }
        assert_eq!(
            Settings::try_parse_from(["reconciler"]).unwrap().pod_name,
            None
        );
    }

    #[test]
    fn the_list_of_settings_is_complete() {
        use clap::CommandFactory as _;
        let command = Settings::command();
        let mut names: Vec<_> = command
            .get_arguments()
            .filter_map(|argument| argument.get_env()?.to_str())
            .collect();
        names.sort_unstable();
        assert_eq!(names, brupop_api::settings::Program::Reconciler.settings());
    }
}
