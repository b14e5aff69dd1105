//! Nodes that no drain could empty are passed over, untouched, and said; others go on. And what `plan` and
//! `drain-to-idle` print of it.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::operator::{apply_overlay, throw_away_overlay};
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value as Json, json};

use crate::{DEADLINE, assert_kind, fleet, quick, reconciler, seen, with};

async fn message(fleet: &Fleet, node: &str) -> Result<String> {
    let shadow = fleet.shadows().get(&format!("brs-{node}")).await?;
    let conditions = shadow.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == "Progressing");
    Ok(found.context("no condition")?.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_pod_that_nothing_brings_back_is_passed_over_until_the_pod_is_gone() -> Result<()> {
    let (_alone, mut fleet) = fleet(2, quick()).await?;
    let pods = Api::<Pod>::namespaced(fleet.client(), "default");
    let debug: Pod = serde_json::from_value(json!({
        "metadata": {"name": "debug"},
        "spec": {"nodeName": "node-0", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}]},
    }))?;
    pods.create(&PostParams::default(), &debug).await?;
    fleet.publish(NEW)?;
    fleet
        .until("the other node is updated, and this one says why it is not", DEADLINE, |history| {
            history.now().all(|(node, seen)| {
                let (version, reason) =
                    if node == "node-0" { (OLD, "CannotBeEmptied") } else { (NEW, "NoUpdate") };
                seen.is_idle() && seen.version.as_deref() == Some(version) && seen.reason == reason
            })
        })
        .await?;
    let said = message(&fleet, "node-0").await?;
    ensure!(said.contains("default/debug has no controller"), "{said}");
    ensure!(seen(&fleet, "node-0")?.target.is_none(), "an update of it was begun");
    pods.delete("debug", &DeleteParams::default()).await?;
    fleet.until_updated(NEW, DEADLINE).await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_never_allows_a_disruption_is_named_before_anything_is_touched() -> Result<()> {
    let (_alone, mut fleet) = fleet(2, quick()).await?;
    fleet.deploy("cart", 2, "0").await?;
    fleet.publish(NEW)?;
    fleet
        .until("both nodes say why they stay", DEADLINE, |history| {
            history.now().all(|(_, seen)| seen.is_idle() && seen.reason == "CannotBeEmptied")
        })
        .await?;
    let said = message(&fleet, "node-0").await?;
    ensure!(said.contains("PodDisruptionBudget shop/cart wants all of its 2 pods"), "{said}");

    let table = reconciler(&fleet, &["plan"]).await?;
    let table = String::from_utf8(table.stdout)?;
    ensure!(
        table.starts_with("0 of 1 in update\n") && table.matches("CannotBeEmptied").count() == 2,
        "{table}"
    );
    println!("{table}");

    let waits = reconciler(&fleet, &["drain-to-idle", "--timeout-seconds", "5"]).await?;
    let (out, err) = (String::from_utf8(waits.stdout)?, String::from_utf8(waits.stderr)?);
    ensure!(!waits.status.success() && out.starts_with("not paused: kubectl patch brf"), "{out}{err}");
    let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    fleet.ledger().patch("fleet", &PatchParams::default(), &pause(true)).await?;
    let waits = reconciler(&fleet, &["drain-to-idle", "--timeout-seconds", "30"]).await?;
    ensure!(waits.status.success() && waits.stdout == b"nothing is left\n", "{waits:?}");

    let plan = reconciler(&fleet, &["plan", "-o", "json"]).await?;
    let plan: Json = serde_json::from_slice(&plan.stdout)?;
    ensure!(plan["nodes"][0]["reason"] == "FleetPaused", "{plan}");
    fleet.ledger().patch("fleet", &PatchParams::default(), &pause(false)).await?;

    fleet.allow_unavailable("cart", 1).await?;
    fleet.until_updated(NEW, DEADLINE).await?;
    let ledger = fleet.ledger();
    await_until("all slots are given back", DEADLINE, async || {
        ledger.get("fleet").await.ok()?.status.filter(|status| status.slots.is_empty())
    })
    .await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_at_the_deadline_is_deleted_where_people_want_that() -> Result<()> {
    let env = with(with(quick(), "DRAIN_ON_DEADLINE", "force"), "DRAIN_DEADLINE_SECONDS", "3");
    let (_alone, mut fleet) = fleet(2, env).await?;
    // The component's overlay, over the one that stands there: the right to delete.
    let forced = json!({
        "resources": ["kustomize/overlays/default"], "components": ["kustomize/components/force-drain"],
    });
    let forced = throw_away_overlay(&fleet.control_plane, "forced", forced)?;
    apply_overlay(&fleet.control_plane, forced).await?;

    let pods = Api::<Pod>::namespaced(fleet.client(), "default");
    for (name, node) in [("debug", "node-0"), ("debug-too", "node-1")] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none"}]},
        }))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    fleet.publish(NEW)?;
    fleet.until_updated(NEW, DEADLINE).await?;
    ensure!(pods.list(&ListParams::default()).await?.items.is_empty(), "they still stand");
    assert_kind(&fleet, 1)?;
    fleet.check()
}
