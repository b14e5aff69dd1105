//! What the document tells people to type, run as it is written.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::binaries::control_plane_binaries;
use tokio::process::Command;
use tokio::time::timeout;

use crate::DEADLINE;
use crate::exec::exec;

const DOCUMENT: &str = include_str!("../../../docs/from-upstream.md");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../");

/// The blocks of commands under this heading, in their order.
pub(crate) fn blocks(heading: &str) -> Result<Vec<&'static str>> {
    let title = format!("\n## {heading}\n");
    let (_, section) = DOCUMENT.split_once(&title).with_context(|| format!("nothing under {heading}"))?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let blocks: Vec<_> =
        section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    ensure!(!blocks.is_empty(), "no commands under {heading}");
    Ok(blocks)
}

/// Runs a block at the root of the repository, as an administrator would; what it said is returned.
pub(crate) async fn run(fleet: &Fleet, block: &str) -> Result<String> {
    let mut said = String::new();
    let mut lines = Vec::new();
    for line in block.lines() {
        // There is no kubelet to ask for this.
        if let Some((_, program)) = line.split_once(" -- /brupop-reconciler ") {
            said += &shell(fleet, &lines.join("\n")).await?;
            lines.clear();
            let (text, went_well) = exec(fleet, &program.split(' ').collect::<Vec<_>>()).await?;
            ensure!(went_well, "{line}: {text}");
            said += &text;
        } else {
            lines.push(line);
        }
    }
    Ok(said + &shell(fleet, &lines.join("\n")).await?)
}

async fn shell(fleet: &Fleet, script: &str) -> Result<String> {
    let kubectl = control_plane_binaries().await?;
    let path = std::env::join_paths(
        [kubectl].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(Path::new(REPOSITORY))
        .env_clear()
        .env("PATH", path)
        .env("HOME", fleet.control_plane.dir())
        .env("KUBECONFIG", fleet.control_plane.kubeconfig())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(DEADLINE, output).await.with_context(|| format!("it does not end: {script}"))??;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}\n{said}");
    Ok(said)
}
