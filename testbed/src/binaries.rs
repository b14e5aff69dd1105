//! The control plane's programs, built once by `testbed/build-control-plane`.

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::Stdio;

/// Builds what is missing (minutes the first time; its progress goes to standard error) and returns the folder with
/// `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubectl` and `kwok`.
///
/// # Errors
/// The build failed; it has said why.
pub async fn control_plane_binaries() -> Result<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/build-control-plane");
    let output = tokio::process::Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{script} cannot be run"))?;
    ensure!(output.status.success(), "{script} failed: {}", output.status);
    let folder = String::from_utf8(output.stdout)?;
    Ok(PathBuf::from(folder.trim_end()))
}
