//! The kernel's figures of a process: its memory and its time on a core.

use std::time::Duration;

use anyhow::{Context as _, Result};
use procfs::process::Process;

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
        let process = Process::new(i32::try_from(pid)?)?;
        let status = process.status()?;
        let mebibytes = |kibibytes: Option<u64>| {
            let kibibytes = u32::try_from(kibibytes.context("no memory")?)?;
            anyhow::Ok(f64::from(kibibytes) / 1024.0)
        };
        // Of threads that have ended nothing is known any more; ours last as long as their process.
        let mut nanoseconds = 0;
        for thread in process.tasks()? {
            nanoseconds += thread?.schedstat()?.sum_exec_runtime;
        }
        Ok(Self {
            resident: mebibytes(status.vmrss)?,
            peak: mebibytes(status.vmhwm)?,
            cpu: Duration::from_nanos(nanoseconds),
        })
    }
}
