//! The reconciler's process.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::ControlPlane;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::sandbox::{Process, Signal};
use brupop_testbed::usage::Usage;
use tokio::process::Command;
use tokio::time::timeout;

/// A reconciler with the token of its account, outside of any pod.
pub struct Reconciler {
    process: Process,
    pid: u32,
    pub since: Instant,
}

impl Reconciler {
    /// Starts one: as shipped, but that it has this limit and watches nobody after an update.
    pub async fn start(control_plane: &ControlPlane, limit: &str) -> Result<Self> {
        let program = binaries(&["brupop-reconciler"])?.join("brupop-reconciler");
        let arguments = ["create", "token", "brupop-reconciler", "-n", NAMESPACE];
        let token = control_plane.kubectl(arguments).await?;
        let folder = control_plane.dir().join("reconciler");
        let pod = control_plane
            .server()
            .write_service_account(&folder, token.trim(), NAMESPACE)?;
        let mut command = Command::new(program);
        command.env_clear().envs(pod).envs([
            ("POD_NAME", "bench"),
            ("HEALTH_ADDRESS", "127.0.0.1:0"),
            ("METRICS_ADDRESS", "127.0.0.1:0"),
            ("MAX_CONCURRENT_UPDATE", limit),
            ("MIN_NODE_AGE_SECONDS", "0"),
            ("SOAK_SECONDS", "0"),
        ]);
        let since = Instant::now();
        let process = control_plane.sandbox().spawn("reconciler", command)?;
        let pid = process.id().context("no process")?;
        Ok(Self {
            process,
            pid,
            since,
        })
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Tells it to end, and waits for that.
    pub async fn end(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = timeout(Duration::from_secs(30), self.process.wait()).await??;
        ensure!(
            status.success(),
            "the reconciler ended with {status}: {}",
            self.process.tail()
        );
        Ok(())
    }

    /// Returns what the kernel knows of it.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }
}
