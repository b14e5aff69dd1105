//! Tests of people's changes of nodes before and during their update: what is theirs stays, and what is ours is undone.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::EXCLUDE_FROM_LB_LABEL;
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;

use crate::drains::held::{HOLD, let_go};
use crate::drains::{deploy, node};

const WAIT: &str = "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC";

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operators_own_node_changes_are_undone() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[(WAIT, "2")]).await?;
    for node in ["node-0", "node-1"] {
        fleet.pause_node(node, true).await?;
    }
    fleet.publish(NEW)?;

    theirs_before(&fleet).await.context("node-0")?;
    theirs_meanwhile(&fleet).await.context("node-1")?;
    let away = fleet.history().most_unavailable();
    ensure!(
        away <= 2,
        "beside the one that a person cordoned, {away} nodes were away"
    );
    fleet.check()
}

/// A person had cordoned the node, and taken it out of load balancers: it is updated, and that stays.
async fn theirs_before(fleet: &Fleet) -> Result<()> {
    fleet.kubectl("cordon node-0").await?;
    fleet
        .kubectl(&format!("label node node-0 {EXCLUDE_FROM_LB_LABEL}=mine"))
        .await?;
    let theirs = |seen: &brupop_testbed::history::Seen| seen.cordoned && seen.excluded;
    fleet
        .until_node("node-0", "it is cordoned and excluded", theirs)
        .await?;
    let before = fleet.history().past("node-0").len();
    fleet.pause_node("node-0", false).await?;
    updated(fleet, "node-0").await?;
    let always = fleet.history().past("node-0")[before - 1..]
        .iter()
        .all(|(_, seen)| theirs(seen));
    ensure!(
        always,
        "it was put into service: {:?}",
        fleet.history().past("node-0")
    );
    let node = node(fleet, "node-0").await?;
    ensure!(
        node.labels()[EXCLUDE_FROM_LB_LABEL] == "mine" && !is_tainted(&node),
        "{node:?}"
    );
    Ok(())
}

/// Out of load balancers first, then cordoned. Anyone who uncordons it in mid-drain, or after the grant, is told; it is
/// not rebooted before it is empty again.
async fn theirs_meanwhile(fleet: &Fleet) -> Result<()> {
    // Its pods run on this node or nowhere, and stay until somebody lets go of them.
    let here = json!({"nodeSelector": {"kubernetes.io/hostname": "node-1"}});
    deploy(fleet, "held", 1, &[HOLD], here).await?;
    fleet.pause_node("node-1", false).await?;
    fleet
        .until_node("node-1", "it drains", |seen| {
            seen.reason == "Draining" && seen.cordoned
        })
        .await?;
    let past: Vec<_> = fleet.history().past("node-1").to_vec();
    let first =
        |so: fn(&brupop_testbed::history::Seen) -> bool| past.iter().position(|(_, seen)| so(seen));
    let (excluded, cordoned) = (first(|seen| seen.excluded), first(|seen| seen.cordoned));
    let (excluded, cordoned) = (
        excluded.context("not excluded")?,
        cordoned.context("not cordoned")?,
    );
    ensure!(excluded < cordoned, "{past:?}");
    // In mid-drain.
    uncordon_until_cordoned(fleet).await?;
    let told = fleet.wait_for_event("node-1", "CordonedAgain", "").await?;
    ensure!(told.type_.as_deref() == Some("Warning"), "{told:?}");

    // After the grant, while the agent has not claimed its reboot.
    let agent = fleet.agent("node-1")?;
    fleet.kubelets.signal(NAMESPACE, &agent.pod, Signal::STOP);
    let granted = async || {
        // A pod may have come before the node was cordoned again.
        let_go(fleet).await.ok()?;
        let shadow = fleet.shadows().get("brs-node-1").await.ok()?;
        shadow.spec.reboot_granted_boot_id.map(drop)
    };
    await_until("it is granted", granted).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    let drained = |fleet: &Fleet| {
        fleet
            .seen("node-1")
            .map(|seen| seen.cordoned && seen.drained)
    };
    ensure!(drained(fleet)?, "granted undrained");
    uncordon_until_cordoned(fleet).await?;
    grant_is_taken_back(&mut audit).await?;
    let reboots = || fleet.hosts[1].count("reboot");
    await_until("it is granted again", async || {
        granted().await?;
        drained(fleet).ok()?.then_some(())
    })
    .await?;
    ensure!(reboots() == 0, "it was rebooted");
    fleet.kubelets.signal(NAMESPACE, &agent.pod, Signal::CONT);
    updated(fleet, "node-1").await?;
    ensure!(reboots() == 1, "{} reboots", reboots());
    fleet.assert_node_is_clean("node-1").await
}

fn is_tainted(node: &Node) -> bool {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_ref())
        .into_iter()
        .flatten();
    taints
        .into_iter()
        .any(|taint| taint.key.starts_with("brupop"))
}

async fn updated(fleet: &Fleet, node: &str) -> Result<()> {
    fleet
        .until_node(node, "it is updated", |seen| {
            seen.is_idle() && seen.ready && seen.version.as_deref() == Some(NEW)
        })
        .await
}

/// A person uncordons node-1; returns when it is cordoned again.
async fn uncordon_until_cordoned(fleet: &Fleet) -> Result<()> {
    let before = fleet.history().past("node-1").len();
    fleet.kubectl("uncordon node-1").await?;
    fleet
        .until("it is cordoned again", |history| {
            let since = &history.past("node-1")[before..];
            let free = since.iter().position(|(_, seen)| !seen.cordoned);
            free.is_some_and(|at| since[at..].iter().any(|(_, seen)| seen.cordoned))
        })
        .await
}

/// Awaits that the grant of node-1's reboot is taken back.
async fn grant_is_taken_back(audit: &mut AuditReader) -> Result<()> {
    let removes = |operation: &serde_json::Value| {
        operation["path"] == "/spec/reboot_granted_boot_id" && operation["op"] == "remove"
    };
    let writes = |event: &Event| {
        let body = event
            .request_object
            .as_ref()
            .and_then(|body| body.as_array());
        event.is_about("bottlerocketshadows", "brs-node-1")
            && event.code() == 200
            && body.is_some_and(|body| body.iter().any(removes))
    };
    audit.wait_for("the grant is taken back", writes).await?;
    Ok(())
}
