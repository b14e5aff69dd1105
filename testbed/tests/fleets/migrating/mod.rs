//! From upstream's operator to ours and back, by the commands of docs/migrating.md.

mod upstream;

use crate::documents::{self, read, section};
use anyhow::{Result, anyhow, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::{NAMESPACE, programs};
use brupop_testbed::{ControlPlane, Fleet, FleetOptions};
use serde_json::json;

const NODES: usize = 2;

/// Our cluster-scoped objects, by a label that all of them have.
const OURS: &str = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
    validatingwebhookconfigurations,flowschemas,prioritylevelconfigurations,priorityclasses,crds,namespaces";
const PART_OF: &str = "app.kubernetes.io/part-of=brupop";

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_lead_from_upstream_and_back() -> Result<()> {
    let mut fleet = with_upstream().await?;
    let [stop, list, shadows, rest, install] = blocks("From upstream")?;
    fleet.paste(stop).await?;
    for (state, listed) in [("MonitoringUpdate", true), ("Idle", false)] {
        upstream::patch_shadow(&fleet, 0, "spec", &json!({"state": state})).await?;
        let said = fleet.paste(list).await?;
        ensure!(
            said.contains("brs-node-0") == listed && !said.contains("brs-node-1"),
            "{state}: {said}"
        );
    }
    for block in [shadows, rest] {
        // It says that it may be run again.
        fleet.paste(block).await?;
        fleet.paste(block).await?;
    }
    let left = upstream::what_is_left(&fleet.control_plane).await?;
    ensure!(left.is_empty(), "{left:?}");

    fleet.paste(install).await?;
    fleet.watch();
    fleet.until_updated(NEW).await?;
    fleet.check()?;

    let [back] = blocks("Back")?;
    fleet.paste(back).await?;
    for node in ["node-0", "node-1"] {
        fleet.assert_node_is_clean(node).await?;
    }
    let left = fleet
        .kubectl(&format!("get {OURS} -o name -l {PART_OF}"))
        .await?;
    ensure!(left.is_empty(), "{left}");

    upstream::install(&fleet.control_plane).await?;
    for number in 0..NODES {
        upstream::make_shadow(&fleet, number).await?;
    }
    fleet
        .control_plane
        .until_rolled_out(NAMESPACE, "daemonset/brupop-agent")
        .await?;
    fleet.control_plane.check()
}

/// A cluster with upstream's operator in it, and with shadows as it leaves them.
async fn with_upstream() -> Result<Fleet> {
    let options = FleetOptions::quick(NODES, &[]);
    let install = async |plane: &ControlPlane, env: &[(&str, &str)]| {
        upstream::install_others(plane).await?;
        upstream::install(plane).await?;
        Ok(programs(env)?
            .into_iter()
            .chain(upstream::programs())
            .collect())
    };
    let mut fleet = Fleet::bare(&options, install).await?;
    for number in 0..NODES {
        fleet.join(number, options.durations).await?;
        upstream::make_shadow(&fleet, number).await?;
    }
    fleet.publish(NEW)?;
    for workload in [
        "deployment/brupop-apiserver",
        "deployment/brupop-controller-deployment",
        "daemonset/brupop-agent",
    ] {
        fleet
            .control_plane
            .until_rolled_out(NAMESPACE, workload)
            .await?;
    }
    Ok(fleet)
}

/// Returns what the document tells people to type under this heading, block by block.
fn blocks<const N: usize>(heading: &str) -> Result<[&'static str; N]> {
    let document: &'static str = read("docs/migrating.md")?.leak();
    let blocks = documents::blocks(section(document, &format!("## {heading}"))?, "sh");
    blocks
        .try_into()
        .map_err(|blocks| anyhow!("other commands under {heading}: {blocks:?}"))
}
