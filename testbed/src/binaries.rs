//! Programs that are built once and kept: the control plane's by `testbed/build-control-plane`, a real
//! node's by `testbed/build-nodes`, our neighbours' by `testbed/build-neighbours`; and others' custom resource definitions, by
//! `testbed/fetch-definitions`.

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::Stdio;

/// Builds what is missing (minutes the first time; its progress goes to standard error) and returns the folder with
/// `etcd`, `etcdutl`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubectl` and `kwok`.
pub async fn control_plane_binaries() -> Result<PathBuf> {
    folder_of(concat!(env!("CARGO_MANIFEST_DIR"), "/build-control-plane")).await
}

/// Builds what is missing (two minutes the first time) and returns the folder with what runs on a real node: `kubelet`,
/// `kube-proxy`, `containerd` with its shim and plug-ins, and the image `pause.oci.tar`.
pub async fn node_programs() -> Result<PathBuf> {
    folder_of(concat!(env!("CARGO_MANIFEST_DIR"), "/build-nodes")).await
}

/// Fetches what is missing (seconds the first time) and returns the folder with the custom resource definitions of
/// cert-manager and prometheus-operator that our components use.
pub async fn others_definitions() -> Result<PathBuf> {
    folder_of(concat!(env!("CARGO_MANIFEST_DIR"), "/fetch-definitions")).await
}

/// Builds what is missing (minutes the first time) and returns the folder with `karpenter`, `flux-apply`, `argocd-diff` and
/// `cert-manager`, their `versions`, and the `definitions` of their resources.
pub async fn neighbours() -> Result<PathBuf> {
    folder_of(concat!(env!("CARGO_MANIFEST_DIR"), "/build-neighbours")).await
}

async fn folder_of(script: &str) -> Result<PathBuf> {
    let output = tokio::process::Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{script} cannot be run"))?;
    ensure!(
        output.status.success(),
        "{script} failed: {}",
        output.status
    );
    let folder = String::from_utf8(output.stdout)?;
    Ok(PathBuf::from(folder.trim_end()))
}
