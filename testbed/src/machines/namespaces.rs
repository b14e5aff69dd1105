//! Namespaces that a program runs in so that nothing of what it starts is left: network, mounts, process ids.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use thiserror::Error;
use tokio::process::Command;

use crate::Sandbox;

/// The tools that machines need, each with its Debian package.
const TOOLS: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("runc", "runc"),
    ("buildah", "buildah"),
];
const NAMESPACES: [&str; 8] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "private",
];
/// Tries the parts of a machine in namespaces that are removed at once.
const TRIAL: &str = "ip link add brupop type bridge && ip link add brupop-0 type veth peer name brupop-1 && nft add table ip brupop";
/// Folders of which each machine has its own.
const HIDDEN: [&str; 3] = ["/var", "/run", "/opt"];
/// The folder of containerd's control groups.
const CONTAINERS: &str = "k8s.io";

/// Reasons why a machine cannot be the ground that others stand on.
#[derive(Debug, Error)]
pub enum Unfit {
    #[error("kubelets and containers need root: sudo env \"PATH=$PATH\" \"HOME=$HOME\" make e2e")]
    NotRoot,
    #[error("not in PATH: {0}; `.ci/tools e2e` installs it")]
    Tools(String),
    #[error("{} is below {below}, of which each machine has its own: choose another place", path.display())]
    Hidden { path: PathBuf, below: &'static str },
    #[error("this machine's kernel makes no namespaces with networks: {0}")]
    Kernel(String),
}

/// Checks that machines can run here, which need these files and folders.
pub async fn check(needed: &[&Path]) -> Result<(), Unfit> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unfit::NotRoot);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing: Vec<String> = TOOLS
        .iter()
        .filter(|(tool, _)| !there(tool))
        .map(|(tool, package)| format!("{tool} (Debian package {package})"))
        .collect();
    if !missing.is_empty() {
        return Err(Unfit::Tools(missing.join(", ")));
    }
    for path in needed {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if let Some(below) = HIDDEN.into_iter().find(|hidden| path.starts_with(hidden)) {
            return Err(Unfit::Hidden { path, below });
        }
    }
    let trial = Command::new("unshare")
        .args(NAMESPACES)
        .args(["bash", "-c", TRIAL])
        .stdin(Stdio::null())
        .output();
    match trial.await {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(Unfit::Kernel(
            String::from_utf8_lossy(&output.stderr)
                .trim_end()
                .to_owned(),
        )),
        Err(error) => Err(Unfit::Kernel(error.to_string())),
    }
}

/// Runs this program once more, with one argument more, as process 1 of its namespaces, and returns how it ended. What
/// it leaves in `TMPDIR` goes with them. Ctrl-C and the death of this process end it.
pub async fn run_inside(argument: &str) -> Result<ExitCode> {
    remove_control_groups();
    let ground = Ground(Sandbox::new()?);
    let status = Command::new("unshare")
        .args(NAMESPACES)
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg(argument)
        .env("TMPDIR", ground.0.dir())
        .process_group(ground.0.group())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("unshare cannot be run")?;
    match status.code().map(u8::try_from) {
        Some(Ok(code)) => Ok(ExitCode::from(code)),
        _ => bail!("ended by signal {}", status.signal().unwrap_or_default()),
    }
}

/// Takes away what namespaces do not, also when a signal ends the wait for them.
struct Ground(Sandbox);

impl Drop for Ground {
    fn drop(&mut self) {
        self.0.end();
        // The kernel ends the last processes a moment after the first.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !remove_control_groups() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Removes the empty control groups that killed containers leave. Returns whether none is left; one in which something runs
/// cannot be removed.
fn remove_control_groups() -> bool {
    let controllers = std::fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten();
    let roots = controllers.map(|entry| entry.path().join(CONTAINERS));
    let roots: Vec<PathBuf> = roots
        .chain([Path::new("/sys/fs/cgroup").join(CONTAINERS)])
        .collect();
    for root in &roots {
        for container in std::fs::read_dir(root).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(container.path());
        }
        let _ = std::fs::remove_dir(root);
    }
    !roots.iter().any(|root| root.exists())
}
