//! Namespaces that a program runs in so that nothing of what it starts is left: network, mounts, process ids.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

use crate::Sandbox;

/// What the machines need of this one, and the Debian package that has it.
const TOOLS: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("runc", "runc"),
    ("buildah", "buildah"),
];
/// For `unshare`.
const NAMESPACES: [&str; 8] =
    ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"];
/// What machines are made of, tried in namespaces that go at once.
const TRIAL: &str = "ip link add brupop type bridge && ip link add brupop-0 type veth peer name brupop-1 && nft add table ip brupop";
/// Where containerd puts the control groups of containers.
const CONTAINERS: &str = "k8s.io";

/// # Errors
/// What is missing on this machine, in a sentence: root, tools, or a kernel that makes namespaces for us.
pub async fn check() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "kubelets and containers need root: run it by sudo");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing: Vec<String> = TOOLS
        .iter()
        .filter(|(tool, _)| !there(tool))
        .map(|(tool, package)| format!("{tool} (Debian package {package})"))
        .collect();
    ensure!(missing.is_empty(), "not in PATH: {}; `make e2e-tools` installs it", missing.join(", "));
    let trial =
        Command::new("unshare").args(NAMESPACES).args(["bash", "-c", TRIAL]).stdin(Stdio::null()).output();
    let output = trial.await.context("unshare cannot be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "this machine makes no namespaces with networks: {}", said.trim_end());
    Ok(())
}

/// Runs this program once more, with one argument more, as process 1 of its namespaces, and returns how it ended. What
/// it leaves in `TMPDIR` goes with them. Ctrl-C and the death of this process end it.
///
/// # Errors
/// The kernel makes no namespaces.
pub async fn run_inside(argument: &str) -> Result<ExitCode> {
    let sandbox = Sandbox::new()?;
    let status = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg(argument)
        .env("TMPDIR", sandbox.dir())
        .process_group(sandbox.group())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("unshare cannot be run")?;
    sandbox.end();
    remove_control_groups();
    match status.code().map(u8::try_from) {
        Some(Ok(code)) => Ok(ExitCode::from(code)),
        _ => bail!("ended by signal {}", status.signal().unwrap_or_default()),
    }
}

/// Containers that were killed leave their control groups, empty. One in which something runs cannot be removed.
fn remove_control_groups() {
    let controllers = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let roots = controllers.map(|entry| entry.path().join(CONTAINERS));
    for root in roots.chain([Path::new("/sys/fs/cgroup").join(CONTAINERS)]) {
        for container in std::fs::read_dir(&root).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(container.path());
        }
        let _ = std::fs::remove_dir(root);
    }
}
