//! Settings of the agent, read at start from flags or environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use jiff::SignedDuration;

/// Carries out the updates of one Bottlerocket host by its API, and reports in the status of the node's shadow.
///
/// The token of its pod names the node. Write durations as 500ms, 30s, 10m or 1h30m.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-agent", version)]
pub struct Options {
    /// Path of the socket of Bottlerocket's API
    #[arg(
        long,
        env = "BOTTLEROCKET_API_SOCKET",
        hide = true,
        value_name = "BOTTLEROCKET_API_SOCKET",
        default_value = "/run/api.sock"
    )]
    pub socket: PathBuf,
    /// File with the id of the current boot
    #[arg(
        long,
        env = "BOOT_ID_FILE",
        hide = true,
        default_value = "/proc/sys/kernel/random/boot_id",
        value_name = "PATH"
    )]
    pub boot_id_file: PathBuf,
    /// Interval at which an idle host looks for updates; varies by a tenth
    #[arg(long, env = "REFRESH_INTERVAL", default_value = "10m", value_parser = between::<1_000, DAY>)]
    pub refresh_interval: Duration,
    /// Longest wait before the first look for updates
    #[arg(long, env = "START_JITTER", hide = true, default_value = "30s", value_parser = between::<0, DAY>)]
    pub start_jitter: Duration,
    /// Interval at which the host is asked while an attempt or a command runs
    #[arg(long, env = "POLL_INTERVAL", hide = true, default_value = "2s", value_parser = between::<10, MINUTE>)]
    pub poll_interval: Duration,
    /// Longest wait for an answer of Bottlerocket's API
    #[arg(long, env = "HOST_TIMEOUT", hide = true, default_value = "10s", value_parser = between::<100, HOST_TIMEOUT_MAX>)]
    pub host_timeout: Duration,
    /// Interval at which a reboot that does not happen is requested again
    #[arg(long, env = "REBOOT_REPEAT_INTERVAL", hide = true, default_value = "1m", value_parser = between::<1_000, DAY>)]
    pub reboot_repeat_interval: Duration,
    /// Time for which the host may refuse or not answer before the update is given up
    #[arg(long, env = "REFUSED_DEADLINE", hide = true, default_value = "5m", value_parser = between::<0, DAY>)]
    pub refused_deadline: Duration,
    /// Download the chosen update while the node waits for its turn
    #[arg(
        long,
        env = "PREFETCH",
        default_value_t = false,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub prefetch: bool,
}

// Bounds of durations, in milliseconds.
/// A turn asks the host three times, and must end before the watchdog's minute.
const HOST_TIMEOUT_MAX: u64 = 10_000;
const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// A duration within bounds, which are in milliseconds.
fn between<const MIN: u64, const MAX: u64>(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(MIN), Duration::from_millis(MAX));
    let parsed: Result<SignedDuration, _> = text.trim().parse();
    match parsed
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
    {
        Some(duration) if (least..=most).contains(&duration) => Ok(duration),
        Some(_) => Err(format!(
            "write a duration between {} and {}",
            name(least),
            name(most)
        )),
        None => Err("write a number with its unit, such as 500ms, 30s, 10m or 1h30m".to_owned()),
    }
}

fn name(duration: Duration) -> String {
    SignedDuration::try_from(duration)
        .map_or_else(|_| format!("{duration:?}"), |signed| format!("{signed:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["brupop-agent"], arguments].concat())
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (bad, hint) in [
            ("--refresh-interval=5", "such as 500ms, 30s, 10m or 1h30m"),
            ("--refresh-interval=soon", "such as 500ms"),
            ("--refresh-interval=-1s", "such as 500ms"),
            ("--refresh-interval=0s", "between 1s and 24h"),
            ("--refresh-interval=25h", "between 1s and 24h"),
            ("--poll-interval=2m", "between 10ms and 1m"),
            ("--host-timeout=11s", "between 100ms and 10s"),
        ] {
            let sentence = parse(&[bad]).unwrap_err().to_string();
            let variable = bad
                .split('=')
                .next()
                .unwrap()
                .trim_start_matches('-')
                .replace('-', "_")
                .to_uppercase();
            assert!(
                sentence.contains(hint) && sentence.contains(&variable),
                "{bad}: {sentence}"
            );
        }
    }

    #[test]
    fn the_list_of_settings_is_complete() {
        use clap::CommandFactory as _;
        let command = Options::command();
        let mut names: Vec<_> = command
            .get_arguments()
            .filter_map(|argument| argument.get_env()?.to_str())
            .collect();
        names.sort_unstable();
        assert_eq!(names, brupop_api::settings::Program::Agent.settings());
    }
}
