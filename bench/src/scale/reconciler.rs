//! The reconciler's process, and what it asks of the API server, by its audit log.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::sandbox::{Process, Signal};
use brupop_testbed::usage::Usage;
use brupop_testbed::{ControlPlane, await_within};
use tokio::process::Command;
use tokio::time::timeout;

/// Nothing more is to come when nothing came for so long.
const SETTLED: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_mins(10);

/// Writes of the reconciler's account, without its Lease and its dry runs.
pub struct Asked {
    reader: AuditReader,
    /// Number of these writes.
    pub writes: usize,
    /// Number of writes of shadows' specs.
    pub actions: usize,
}

impl Asked {
    /// Counts requests from now on.
    pub fn from_now(control_plane: &ControlPlane) -> Self {
        Self {
            reader: control_plane.audit().from_now(),
            writes: 0,
            actions: 0,
        }
    }

    /// Counts the requests since the last look.
    pub fn read(&mut self) -> Result<()> {
        for event in self.reader.read()?.iter().filter(|event| is_write(event)) {
            let object = &event.object;
            self.writes += 1;
            let is_spec = object.resource == "bottlerocketshadows" && object.subresource.is_empty();
            self.actions += usize::from(is_spec && event.verb == "patch");
        }
        Ok(())
    }

    /// Awaits something of the counts.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        let so = async || {
            self.read().ok()?;
            is_so(self).then_some(())
        };
        await_within(DEADLINE, what, so).await
    }

    /// Awaits that nothing is written any more.
    pub async fn until_settled(&mut self) -> Result<()> {
        let (mut known, mut since) = (self.writes, Instant::now());
        let so = async || {
            self.read().ok()?;
            if self.writes != known {
                (known, since) = (self.writes, Instant::now());
            }
            (since.elapsed() >= SETTLED).then_some(())
        };
        await_within(DEADLINE, "the writes have ended", so).await
    }
}

fn is_write(event: &Event) -> bool {
    event.is_by("brupop-reconciler")
        && event.is_write()
        && !["", "leases"].contains(&event.object.resource.as_str())
        && event.code() / 100 == 2
}

/// A reconciler with the token of its account, outside of any pod.
pub struct Reconciler {
    process: Process,
    /// When the process was started.
    pub since: Instant,
}

impl Reconciler {
    /// Starts one: as shipped, but that it updates all nodes at once.
    pub async fn start(control_plane: &ControlPlane) -> Result<Self> {
        let program = binaries(&["brupop-reconciler"])?.join("brupop-reconciler");
        let token = control_plane.token(NAMESPACE, "brupop-reconciler").await?;
        let folder = control_plane.dir().join("reconciler");
        let server = control_plane.server();
        let pod = server.write_service_account(&folder, &token, NAMESPACE)?;
        let mut command = Command::new(program);
        command.env_clear().envs(pod).envs([
            ("POD_NAME", "bench"),
            ("HEALTH_ADDRESS", "127.0.0.1:0"),
            ("METRICS_ADDRESS", "127.0.0.1:0"),
            ("MAX_CONCURRENT_UPDATE", "unlimited"),
            ("MIN_NODE_AGE_SECONDS", "0"),
        ]);
        let since = Instant::now();
        let process = control_plane.sandbox().spawn("reconciler", command)?;
        Ok(Self { process, since })
    }

    /// Tells it to end, and waits for that.
    pub async fn end(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = timeout(Duration::from_secs(30), self.process.wait()).await??;
        let tail = self.process.tail();
        ensure!(
            status.success(),
            "the reconciler ended with {status}: {tail}"
        );
        Ok(())
    }

    /// Returns what the kernel knows of it.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.id().context("no process")?)
    }
}
