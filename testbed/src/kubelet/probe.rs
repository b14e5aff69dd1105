//! Readiness probes of the kind `httpGet`.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::services::read_head;

/// Until a container was ready once, it is asked this often, whatever its period.
const EAGER: Duration = Duration::from_millis(100);

/// A probe as the pod's specification has it.
pub(crate) struct Probe {
    pub port: i32,
    pub path: String,
    pub period: Duration,
    pub timeout: Duration,
    /// Failures in a row after which a container is not ready any more.
    pub failures: u32,
}

impl Probe {
    /// The container's readiness probe, if it has one by HTTP.
    pub(crate) fn readiness(container: &Container) -> Option<Self> {
        let probe = container.readiness_probe.as_ref()?;
        let get = probe.http_get.as_ref()?;
        let port = match &get.port {
            IntOrString::Int(port) => *port,
            IntOrString::String(name) => {
                let mut ports = container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_ref() == Some(name))?;
                named.container_port
            }
        };
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value
                    .and_then(|v| u64::try_from(v).ok())
                    .filter(|&v| v > 0)
                    .unwrap_or(default),
            )
        };
        Some(Self {
            port,
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            failures: probe
                .failure_threshold
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(3),
        })
    }

    /// Time to the next look.
    pub(crate) fn pause(&self, was_ready: bool) -> Duration {
        if was_ready {
            self.period
        } else {
            EAGER.min(self.period)
        }
    }

    pub(crate) async fn ask(&self, address: SocketAddr) -> Result<()> {
        tokio::time::timeout(self.timeout, async {
            let mut stream = TcpStream::connect(address).await?;
            let path = &self.path;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let head = read_head(&mut stream).await?;
            let status = head.split(' ').nth(1).context("no status")?;
            let status: u16 = status.parse()?;
            ensure!((200..400).contains(&status), "status {status}");
            Ok(())
        })
        .await
        .context("no answer in time")?
    }
}
