//! The kernel's figures of a process: its memory and its time on a core.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Resident memory of the process, in MiB.
    pub resident: f64,
    /// The same, at most so far.
    pub peak: f64,
    /// Time that it has kept a core busy so far.
    pub cpu: Duration,
}

impl Usage {
    /// That of the process with this id.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).context(path)?;
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
        Ok(Self {
            resident: of("VmRSS:")? / 1024.0,
            peak: of("VmHWM:")? / 1024.0,
            cpu: cpu(pid)?,
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
