//! The reconciler's process, and what the kernel knows of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::ControlPlane;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::sandbox::{Process, Signal};
use tokio::process::Command;
use tokio::time::timeout;

/// Ticks of the clock in /proc, per second: a constant of Linux' interface.
const TICKS: f64 = 100.0;

/// A reconciler with the token of its account, outside of any pod.
pub struct Reconciler {
    process: Process,
    pid: u32,
    /// When it was started.
    pub since: Instant,
}

impl Reconciler {
    /// Starts one: as shipped, but that it has one slot and watches nobody after an update.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start(control_plane: &ControlPlane) -> Result<Self> {
        let program = binaries(&["brupop-reconciler"])?.join("brupop-reconciler");
        let arguments = ["create", "token", "brupop-reconciler", "-n", NAMESPACE];
        let token = control_plane.kubectl(arguments).await?;
        let (token_file, kubeconfig) =
            (control_plane.dir().join("reconciler.token"), control_plane.dir().join("reconciler.kubeconfig"));
        std::fs::write(&token_file, token.trim())?;
        control_plane.kubeconfig_with_token_file(&kubeconfig, &token_file, NAMESPACE)?;
        let mut command = Command::new(program);
        command.env_clear().env("KUBECONFIG", kubeconfig).envs([
            ("POD_NAME", "bench-scale"),
            ("HEALTH_ADDRESS", "127.0.0.1:0"),
            ("METRICS_ADDRESS", "127.0.0.1:0"),
            ("MAX_CONCURRENT_UPDATE", "1"),
            ("MIN_NODE_AGE_SECONDS", "0"),
            ("SOAK_SECONDS", "0"),
        ]);
        let since = Instant::now();
        let process = control_plane.sandbox().spawn("reconciler", command)?;
        let pid = process.id().context("no process")?;
        Ok(Self { process, pid, since })
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Tells it to end, and waits for that.
    ///
    /// # Errors
    /// It does not end in time, or not well.
    pub async fn end(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = timeout(Duration::from_secs(30), self.process.wait()).await??;
        ensure!(status.success(), "the reconciler ended with {status}: {}", self.process.tail());
        Ok(())
    }

    /// Resident memory in MiB: now, and at most so far.
    ///
    /// # Errors
    /// The process has ended.
    pub fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).context("no such line")?;
            let kib: f64 = line.split_whitespace().next().context("no number")?.parse()?;
            anyhow::Ok(kib / 1024.0)
        };
        Ok((of("VmRSS:")?, of("VmHWM:")?))
    }

    /// Seconds that it has kept a core busy so far.
    ///
    /// # Errors
    /// The process has ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let (_, rest) = stat.rsplit_once(')').context("no name")?;
        // utime and stime are the 14th and 15th field; the name is the second.
        let ticks: Vec<f64> =
            rest.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<f64>() / TICKS)
    }
}
