//! The kernel's figures of a process: its memory, its time on a core, and since when it runs.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};

/// Ticks of the clock in /proc, per second: a constant of Linux' interface.
const TICKS: f64 = 100.0;

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Resident memory of the process, in MiB.
    pub resident: f64,
    /// The same, at most so far.
    pub peak: f64,
    /// Time that it has kept a core busy so far.
    pub cpu: Duration,
    /// Number of threads that it has.
    pub threads: usize,
    /// When it was started, to ten milliseconds.
    pub started: Timestamp,
}

impl Usage {
    /// That of the process with this id.
    pub fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).context(path)
        };
        let (status, stat) = (read("status")?, read("stat")?);
        let of = |key: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .context("no such line")?;
            Ok::<f64, anyhow::Error>(
                line.split_whitespace()
                    .next()
                    .context("no number")?
                    .parse()?,
            )
        };
        let (_, rest) = stat.rsplit_once(')').context("no name")?;
        // The name is the second field, and the start the 22nd.
        let began: f64 = rest
            .split_whitespace()
            .nth(19)
            .context("no start")?
            .parse()?;
        let uptime = std::fs::read_to_string("/proc/uptime")?;
        let uptime: f64 = uptime
            .split_whitespace()
            .next()
            .context("no uptime")?
            .parse()?;
        let runs_for = SignedDuration::try_from_secs_f64(uptime - began / TICKS)?;
        Ok(Self {
            resident: of("VmRSS:")? / 1024.0,
            peak: of("VmHWM:")? / 1024.0,
            cpu: cpu(pid)?,
            threads: std::fs::read_dir(format!("/proc/{pid}/task"))?.count(),
            started: Timestamp::now() - runs_for,
        })
    }
}

/// Of threads that have ended nothing is known any more; ours last as long as their process.
fn cpu(pid: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanoseconds += text
            .split_whitespace()
            .next()
            .context("no time")?
            .parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
