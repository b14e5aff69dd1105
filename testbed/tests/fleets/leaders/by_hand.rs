//! A reconciler that a test starts and ends itself: no kubelet waits before it is started again.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use brupop_api::names::{LEASE, RECONCILER_ACCOUNT};
use brupop_testbed::audit::Event;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::sandbox::{Process, Signal};
use brupop_testbed::{Bearer, Fleet};
use tokio::process::Command;

/// The shipped program with a token of its own, by which the audit log tells it from others.
pub struct ByHand {
    process: Process,
    bearer: Bearer,
}

/// All that a reconciler needs to start.
pub struct Prepared {
    name: String,
    command: Command,
    bearer: Bearer,
}

impl Prepared {
    /// `name` stands for the pod's: the Lease is held under it.
    pub async fn new(fleet: &Fleet, name: &str, settings: &[(&str, &str)]) -> Result<Self> {
        let plane = &fleet.control_plane;
        let token = plane.token(NAMESPACE, RECONCILER_ACCOUNT).await?;
        let bearer = Bearer::of(plane, &token, NAMESPACE).await?;
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).to_string();
        let mut command = Command::new(binaries(&["brupop-reconciler"])?.join("brupop-reconciler"));
        command
            .env_clear()
            .envs(bearer.variables())
            .env("POD_NAME", name)
            .env("HEALTH_ADDRESS", &any_port)
            .env("METRICS_ADDRESS", &any_port)
            .env("MIN_NODE_AGE_SECONDS", "0")
            .env("SOAK_SECONDS", "0")
            .envs(settings.iter().copied());
        Ok(Self {
            name: name.to_owned(),
            command,
            bearer,
        })
    }

    pub fn start(self, fleet: &Fleet) -> Result<ByHand> {
        let process = fleet
            .control_plane
            .sandbox()
            .spawn(&self.name, self.command)?;
        Ok(ByHand {
            process,
            bearer: self.bearer,
        })
    }
}

impl ByHand {
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Awaits its end.
    pub async fn wait(&mut self) -> Result<()> {
        self.process.wait().await.map(drop)
    }

    /// Awaits that it competes for the Lease: all else is known to it by then.
    pub async fn competes(&self, fleet: &Fleet) -> Result<()> {
        let watches = |event: &Event| {
            self.asked(event) && event.verb == "watch" && event.object.resource == "leases"
        };
        let what = format!("a watch of the Lease {LEASE} by {}", self.process.name());
        fleet
            .control_plane
            .audit()
            .from_start()
            .wait_for(&what, watches)
            .await?;
        Ok(())
    }

    /// Was this a request of its own?
    pub fn asked(&self, event: &Event) -> bool {
        self.bearer.asked(event)
    }
}
