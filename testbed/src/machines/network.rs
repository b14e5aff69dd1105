//! The network between the control plane and the machines: one bridge, one address each, a range of addresses for the
//! pods of each machine.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::process::Command;

use super::files::proxy_configuration;
use crate::ControlPlane;
use crate::control_plane::SERVICE_RANGE;
use crate::sandbox::Process;

/// The address of the API server.
pub const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The bridge that all machines are plugged into.
pub(super) const BRIDGE: &str = "brupop";

/// Address of the machine of this number.
pub(super) fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + number)
}

/// Addresses of the pods on the machine of this number.
pub(super) fn pods(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

/// The network; it is there as long as the namespace in which it was made.
#[derive(Debug)]
pub struct Network {
    proxy: Option<Process>,
}

impl Network {
    /// Makes the bridge, with routes to the pods of this many machines. Nothing of the kind may be there yet: call it in a
    /// network namespace of your own.
    pub async fn make(machines: u8) -> Result<Self> {
        ip("link set lo up").await?;
        ip(&format!("link add {BRIDGE} type bridge")).await?;
        ip(&format!("address add {CONTROL_PLANE}/24 dev {BRIDGE}")).await?;
        ip(&format!("link set {BRIDGE} up")).await?;
        for number in 0..machines {
            ip(&format!(
                "route add {} via {}",
                pods(number),
                address(number)
            ))
            .await?;
        }
        // What goes to a Service is translated on its way out, so there must be a way out.
        ip(&format!("route add {SERVICE_RANGE} dev {BRIDGE}")).await?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("ip_forward")?;
        Ok(Self { proxy: None })
    }

    /// Lets the control plane reach Services, by a kube-proxy that takes itself for that of this node.
    pub fn reach_services(
        &mut self,
        control_plane: &ControlPlane,
        programs: &std::path::Path,
        node: &str,
    ) -> Result<()> {
        let dir = control_plane.dir();
        let kubeconfig = dir.join("kube-proxy.kubeconfig");
        control_plane.kubeconfig_of_user(&kubeconfig, "system:kube-proxy", None)?;
        let configuration = dir.join("kube-proxy.json");
        std::fs::write(
            &configuration,
            proxy_configuration(&kubeconfig, node).to_string(),
        )?;
        let mut command = Command::new(programs.join("kube-proxy"));
        command.arg("--config").arg(&configuration);
        self.proxy = Some(control_plane.sandbox().spawn("kube-proxy", command)?);
        Ok(())
    }

    /// Fails if the control plane's kube-proxy has ended.
    pub fn check(&mut self) -> Result<()> {
        self.proxy.as_mut().map_or(Ok(()), Process::check)
    }
}

async fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .await
        .context("ip cannot be run")?;
    ensure!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns what the bridge plug-in of a machine is told (CNI).
pub(super) fn pod_network(number: u8) -> serde_json::Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": "/var/lib/cni",
                    "ranges": [[{"subnet": pods(number)}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "loopback"},
        ],
    })
}
