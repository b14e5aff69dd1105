//! One machine, boot after boot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::files::{
    containerd_configuration, kubelet_configuration, os_release, proxy_configuration,
};
use super::images::Images;
use super::network::{self, BRIDGE, CONTROL_PLANE};
use crate::ControlPlane;
use crate::host::{Durations, Host, HostOptions, HostPower};
use crate::sandbox::{Process, Sandbox, Signal};

const INIT: &str = include_str!("init.sh");
/// The group that may use the socket of Bottlerocket's API.
const SOCKET_GROUP: u32 = 274;
/// The host's files in `/run`; all others are removed at each boot.
const OF_THE_HOST: [&str; 2] = ["api.sock", "boot-id"];

/// A machine. Its host decides when it reboots; dropping it, or the control plane, ends it.
#[derive(Debug)]
pub struct Machine {
    name: String,
    host: Host,
    life: JoinHandle<Result<()>>,
}

struct Disk {
    dir: PathBuf,
    name: String,
    number: u8,
    programs: PathBuf,
    labels: String,
}

impl Machine {
    /// Switches on the machine `node-<number>`, whose host runs this version. Its kubelet registers it with these labels.
    pub fn start(
        control_plane: &ControlPlane,
        images: &Images,
        number: u8,
        labels: &str,
        version: &str,
        durations: Durations,
    ) -> Result<Self> {
        let name = format!("node-{number}");
        let dir = control_plane.dir().join(&name);
        for folder in ["run", "var/lib", "var/log", "var/tmp", "cni", "images"] {
            std::fs::create_dir_all(dir.join(folder))?;
        }
        std::os::unix::fs::symlink("/run", dir.join("var/run"))?;
        control_plane.kubeconfig_of_user(
            &dir.join("kubeconfig"),
            &format!("system:node:{name}"),
            Some("system:nodes"),
        )?;
        let proxy = dir.join("kube-proxy.kubeconfig");
        control_plane.kubeconfig_of_user(&proxy, "system:kube-proxy", None)?;
        let write = |file: &str, text: String| {
            std::fs::write(dir.join(file), text).with_context(|| format!("{file} of {name}"))
        };
        let authority = &control_plane.server().certificate_authority;
        write(
            "kubelet.json",
            kubelet_configuration(network::address(number), authority).to_string(),
        )?;
        write(
            "kube-proxy.json",
            proxy_configuration(&proxy, &name).to_string(),
        )?;
        write(
            "containerd.toml",
            containerd_configuration(&dir, images.programs(), Images::SANDBOX),
        )?;
        write(
            "cni/pods.conflist",
            network::pod_network(number).to_string(),
        )?;
        images.link(&dir.join("images"))?;

        let host = Host::start(HostOptions {
            socket: dir.join("run/api.sock"),
            socket_group: Some(SOCKET_GROUP),
            version: version.to_owned(),
            variant: "aws-k8s-1.36".to_owned(),
            boot_id_file: dir.join("run/boot-id"),
            durations,
        })?;
        let disk = Disk {
            dir,
            name: name.clone(),
            number,
            programs: images.programs().to_owned(),
            labels: labels.to_owned(),
        };
        let life = tokio::spawn(live(disk, control_plane.shared().sandbox, host.power()));
        Ok(Self { name, host, life })
    }

    /// Its name, and that of its Node.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Fails if it has ended, other than by a reboot of its host.
    pub async fn check(&mut self) -> Result<()> {
        if self.life.is_finished() {
            (&mut self.life).await.context("a machine")??;
            bail!("{} has ended", self.name);
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.life.abort();
    }
}

/// Follows the host's power until one of the machine's programs ends by itself.
async fn live(
    disk: Disk,
    sandbox: Arc<Sandbox>,
    mut power: watch::Receiver<HostPower>,
) -> Result<()> {
    loop {
        let now = power.borrow_and_update().clone();
        let mut running = match now {
            HostPower::Up { pretty_name, .. } => Some(disk.boot(&sandbox, &pretty_name)?),
            HostPower::Down => None,
        };
        let ended = async {
            match &mut running {
                Some(process) => process.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = ended => bail!("{} has ended: {}; see {}", disk.name, status?, disk.dir.display()),
            changed = power.changed() => changed.context("the host is gone")?,
        }
        if let Some(process) = &mut running {
            process.signal(Signal::KILL)?;
            process.wait().await?;
        }
    }
}

impl Disk {
    fn boot(&self, sandbox: &Sandbox, pretty_name: &str) -> Result<Process> {
        empty(&self.dir.join("run"))?;
        std::fs::write(self.dir.join("os-release"), os_release(pretty_name))?;
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--pid",
                "--uts",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["--propagation", "private", "bash", "-c", INIT, "init"])
            .env("MACHINE", &self.dir)
            .env("NAME", &self.name)
            .env("LINK", format!("brupop-{}", self.number))
            .env("BRIDGE", BRIDGE)
            .env("ADDRESS", network::address(self.number).to_string())
            .env("GATEWAY", CONTROL_PLANE.to_string())
            .env("LABELS", &self.labels)
            .env(
                "PATH",
                format!(
                    "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    self.programs.display()
                ),
            );
        sandbox.spawn(&self.name, command)
    }
}

/// Removes what the last boot left in `/run`.
fn empty(run: &Path) -> Result<()> {
    for entry in std::fs::read_dir(run)? {
        let path = entry?.path();
        if OF_THE_HOST.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(&path)?;
        } else {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
