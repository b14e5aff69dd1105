//! Tests of opting in, by hand as docs/install.md says or by the reconciler; and of nodes that are left out.

use crate::documents::{blocks, read};
use anyhow::{Context as _, Result, ensure};
use brupop_api::names::{LEFT_OUT, UPDATER_INTERFACE_LABEL as LABEL, UPDATER_INTERFACE_VERSION};
use brupop_testbed::Fleet;
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::operator::{apply_overlay, throw_away_overlay};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn auto_label_respects_existing_labels() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[]).await?;
    bare(&fleet, "node-0").await?;
    fleet
        .kubectl(&format!("label node node-1 --overwrite {LABEL}={LEFT_OUT}"))
        .await?;
    bare(&fleet, "node-2").await?;
    let another =
        Patch::Merge(json!({"status": {"nodeInfo": {"osImage": "Debian GNU/Linux 13 (trixie)"}}}));
    Api::<Node>::all(fleet.client())
        .patch_status("node-2", &PatchParams::default(), &another)
        .await?;
    for node in ["node-0", "node-1", "node-2"] {
        fleet
            .until_node(node, "is left alone", |seen| !seen.has_shadow)
            .await?;
    }

    as_the_document_has_it(&fleet).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    without_the_right_it_says_so(&fleet).await?;
    with_it_the_node_is_labelled_and_updated(&fleet).await?;

    others_are_left_alone(&fleet, &mut audit).await?;
    let table = fleet
        .paste("make --no-print-directory get-nodes-status")
        .await?;
    let [head, row] = table.lines().collect::<Vec<_>>()[..] else {
        anyhow::bail!("{table}")
    };
    let words = |line: &str| {
        line.split("  ")
            .map(|word| word.trim().to_owned())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
    };
    ensure!(
        words(head)
            == [
                "NODE", "OS IMAGE", "KUBELET", "CORDONED", "STATE", "VERSION", "TARGET", "REASON"
            ],
        "{head}"
    );
    let image = fleet.hosts[0].pretty_name();
    ensure!(image.contains(NEW), "{image}");
    ensure!(
        words(row)
            == [
                "node-0", &image, "v1.36.3", "no", "Idle", NEW, "-", "NoUpdate"
            ],
        "{row}"
    );
    fleet.check()
}

/// Nobody says anything of this node any more.
async fn bare(fleet: &Fleet, node: &str) -> Result<()> {
    fleet
        .kubectl(&format!("label node {node} {LABEL}-"))
        .await
        .map(drop)
}

/// The label of each node.
async fn labels(fleet: &Fleet) -> Result<[Option<String>; 3]> {
    let api = Api::<Node>::all(fleet.client());
    let label = async |name: &str| anyhow::Ok(api.get(name).await?.labels().get(LABEL).cloned());
    Ok([
        label("node-0").await?,
        label("node-1").await?,
        label("node-2").await?,
    ])
}

/// Only node-0 is opted in.
async fn only_the_first_is_in(fleet: &Fleet) -> Result<()> {
    let found = labels(fleet).await?;
    let expected = [
        Some(UPDATER_INTERFACE_VERSION.to_owned()),
        Some(LEFT_OUT.to_owned()),
        None,
    ];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

/// The command that labels all Bottlerocket nodes labels them, and no others.
async fn as_the_document_has_it(fleet: &Fleet) -> Result<()> {
    let install = read("docs/install.md")?;
    let mut blocks = blocks(&install, "sh").into_iter();
    let command = blocks
        .find(|block| block.starts_with("for node in "))
        .context("no such command")?;
    fleet
        .paste(&format!("set -euo pipefail\n{command}"))
        .await?;
    only_the_first_is_in(fleet).await?;
    fleet.until_waits("node-0", "NoUpdate").await?;
    bare(fleet, "node-0").await?;
    fleet
        .until_node("node-0", "is left alone again", |seen| !seen.has_shadow)
        .await
}

/// A patch of this Node by the reconciler that was meant.
fn patches(event: &Event, node: &str) -> bool {
    event.verb == "patch"
        && event.is_about("nodes", node)
        && event.is_by("brupop-reconciler")
        && !event.is_dry_run()
}

async fn without_the_right_it_says_so(fleet: &Fleet) -> Result<()> {
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.configure(&[("AUTO_LABEL", "true")]).await?;
    fleet
        .wait_for_event(
            "node-0",
            "NotOptedIn",
            "apply an overlay with the component auto-label",
        )
        .await?;
    let refused = audit.wait_for("a refusal", |event| patches(event, "node-0"));
    ensure!(refused.await?.code() == 403);
    ensure!(labels(fleet).await?[0].is_none(), "it was labelled");
    Ok(())
}

async fn with_it_the_node_is_labelled_and_updated(fleet: &Fleet) -> Result<()> {
    let overlay = json!({
        "resources": ["kustomize/overlays/default"], "components": ["kustomize/components/auto-label"],
    });
    apply_overlay(
        &fleet.control_plane,
        throw_away_overlay(&fleet.control_plane, "auto-label", overlay)?,
    )
    .await?;
    fleet
        .wait_for_event(
            "node-0",
            "OptedIn",
            &format!("{LABEL}={LEFT_OUT} --overwrite"),
        )
        .await?;
    only_the_first_is_in(fleet).await?;
    // The leader may have to leave node-0 when that is emptied, and what it counted goes with it.
    fleet
        .wait_for_metrics(
            "reconciler",
            &[r#"brupop_writes_total{object="node",result="written"} 1"#],
        )
        .await?;
    fleet.publish(NEW)?;
    fleet
        .until_node("node-0", "is updated", |seen| {
            seen.runs(NEW) && seen.reason == "NoUpdate"
        })
        .await
}

/// Nobody has even asked for it.
async fn others_are_left_alone(fleet: &Fleet, audit: &mut AuditReader) -> Result<()> {
    let events = audit.read()?;
    for (node, host) in [("node-1", &fleet.hosts[1]), ("node-2", &fleet.hosts[2])] {
        ensure!(
            !events.iter().any(|event| patches(event, node)),
            "{node} was written to"
        );
        ensure!(!fleet.seen(node)?.has_shadow, "{node} has a shadow");
        ensure!(host.pretty_name().contains(OLD), "{node} was updated");
    }
    only_the_first_is_in(fleet).await
}
