//! The shipped operator on the test bed: its manifests as users apply them, its programs as their pods describe them.

use crate::control_plane::ControlPlane;
use crate::kubelet::Program;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};

/// Namespace of the default overlay.
pub const NAMESPACE: &str = "brupop-bottlerocket-aws";

/// Commands of the containers in `manifests/`, which variables make them listen elsewhere than in a pod of their own,
/// and by which names their containers call those ports.
const LISTENERS: [(&str, &[(&str, &str)]); 3] = [
    ("brupop-agent", &[]),
    ("brupop-reconciler", &[("health", "HEALTH_ADDRESS"), ("metrics", "METRICS_ADDRESS")]),
    (
        "brupop-webhook",
        &[("admission", "ADMISSION_ADDRESS"), ("health", "HEALTH_ADDRESS"), ("metrics", "METRICS_ADDRESS")],
    ),
];

/// The folder with those of the operator's programs that are `wanted`: `BRUPOP_BINARIES`, else where cargo built the program that asks.
///
/// # Errors
/// One of them is not there.
pub fn binaries(wanted: &[&str]) -> Result<PathBuf> {
    let folder = if let Some(folder) = std::env::var_os("BRUPOP_BINARIES") {
        PathBuf::from(folder)
    } else {
        let here = std::env::current_exe()?;
        // Tests are in `deps`, programs beside it.
        let folder = here.parent().context("no folder")?;
        if folder.ends_with("deps") { folder.parent().context("no folder")? } else { folder }.to_owned()
    };
    for name in wanted {
        let binary = folder.join(name);
        ensure!(
            binary.is_file(),
            "there is no {}: run `cargo build --workspace --bins` first, or set BRUPOP_BINARIES",
            binary.display()
        );
    }
    Ok(folder)
}

/// The operator's programs by the commands of its containers. `env` comes after the variables of the pods; all three
/// get it, as they do the shipped configuration.
pub fn programs(binaries: &Path, env: &[(&str, &str)]) -> Vec<(String, Program)> {
    let owned =
        |pairs: &[(&str, &str)]| pairs.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect::<Vec<_>>();
    let program = |(name, ports): (&str, &[(&str, &str)])| {
        let program = Program { binary: binaries.join(name), env: owned(env), ports: owned(ports) };
        (format!("/{name}"), program)
    };
    LISTENERS.map(program).into()
}

/// `kubectl apply -k kustomize/overlays/<overlay>`; what it said is returned.
///
/// # Errors
/// It failed, or it warned.
pub async fn apply_overlay(control_plane: &ControlPlane, overlay: &str) -> Result<String> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../kustomize/overlays")).join(overlay);
    let output = control_plane.kubectl_output(["apply".as_ref(), "-k".as_ref(), path.as_os_str()]).await?;
    let warnings = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && warnings.is_empty(),
        "kubectl apply -k {}: {warnings}",
        path.display()
    );
    Ok(String::from_utf8(output.stdout)?)
}
