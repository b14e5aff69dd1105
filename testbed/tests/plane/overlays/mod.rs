//! The overlays and components as people apply them: each rendered, held against itself, and taken by a real API server
//! that refuses what it does not know.

mod cases;
mod lifecycle;
mod placement;
mod references;
mod rolls;
mod settings;
mod strict;

use anyhow::{Result, ensure};
use brupop_testbed::ControlPlane;
use brupop_testbed::operator::AGENT_WARNING;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The further warning about a webhook on its host's network.
const HOST_NETWORK_WARNING: &str =
    "Warning: would violate PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true)";

/// kubectl's warning about each object that was applied by the server before.
const PATCHED_BY_ITSELF: &str = "The missing annotation will be patched automatically.";

/// Objects as a file for kubectl: one by one, for of a List it asks no API server whether it knows all the fields.
fn documents(control_plane: &ControlPlane, name: &str, objects: &[Json]) -> Result<PathBuf> {
    let file = control_plane.dir().join(format!("{name}.yaml"));
    let documents: Vec<_> = objects.iter().map(Json::to_string).collect();
    // Older kubectls take a file that begins with `{` for one JSON document.
    std::fs::write(&file, format!("---\n{}", documents.join("\n---\n")))?;
    Ok(file)
}

/// kubectl's output for each object, and the API servers' warnings.
struct Applied {
    said: String,
    warned: BTreeSet<String>,
}

/// `kubectl apply` with these arguments. Warned may be of agents, and of a webhook on its host's network.
async fn apply(
    control_plane: &ControlPlane,
    args: &[&str],
    flag: &str,
    what: &Path,
) -> Result<Applied> {
    let args = ["apply"].iter().chain(args).chain([&flag]).map(OsStr::new);
    let all = args.chain([what.as_os_str()]);
    let output = control_plane.kubectl_output(all).await?;
    let warned: BTreeSet<_> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .map(str::to_owned)
        .collect();
    let known = |line: &String| {
        [AGENT_WARNING, HOST_NETWORK_WARNING].contains(&line.as_str())
            || line.ends_with(PATCHED_BY_ITSELF)
    };
    let said: Vec<_> = warned.iter().map(String::as_str).collect();
    let taken = output.status.success() && warned.iter().all(known);
    ensure!(
        taken,
        "kubectl apply of {}:\n{}",
        what.display(),
        said.join("\n")
    );
    Ok(Applied {
        said: String::from_utf8(output.stdout)?,
        warned,
    })
}
