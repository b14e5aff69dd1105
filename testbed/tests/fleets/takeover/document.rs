//! What the document tells people to type, run as it is written.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::binaries::control_plane_binaries;
use brupop_testbed::documents::{self, MIGRATING, read, section};
use brupop_testbed::{DEADLINE, Fleet};
use tokio::process::Command;
use tokio::time::timeout;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../");

/// The blocks of commands under this heading, in their order.
pub(crate) fn blocks(heading: &str) -> Result<Vec<&'static str>> {
    let document: &'static str = read(MIGRATING)?.leak();
    let blocks = documents::blocks(section(document, &format!("## {heading}"))?, "sh");
    ensure!(!blocks.is_empty(), "no commands under {heading}");
    Ok(blocks)
}

/// Runs a block at the root of the repository, as an administrator would; what it said is returned.
pub(crate) async fn run(fleet: &Fleet, block: &str) -> Result<String> {
    let (said, went_well) = shell(fleet, &fleet.control_plane.kubeconfig(), block).await?;
    ensure!(went_well, "{block}\n{said}");
    Ok(said)
}

/// What is said when this is typed by anyone who has this kubeconfig, and whether it went well. A plain shell, which goes on
/// after what fails: the document has to see to it that nothing comes of that.
pub(crate) async fn shell(fleet: &Fleet, kubeconfig: &Path, script: &str) -> Result<(String, bool)> {
    let kubectl = control_plane_binaries().await?;
    let path = std::env::join_paths(
        [kubectl].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let output = Command::new("bash")
        .args(["-c", script])
        .current_dir(Path::new(REPOSITORY))
        .env_clear()
        .env("PATH", path)
        .env("HOME", fleet.control_plane.dir())
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(DEADLINE, output).await.with_context(|| format!("it does not end: {script}"))??;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((said, output.status.success()))
}
