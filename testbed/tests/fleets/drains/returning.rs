//! Pods that come back each time that they are evicted.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names;
use brupop_testbed::fleet::NEW;
use brupop_testbed::objects::budget;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::drains::held::{HOLD, let_go};
use crate::drains::{deploy, evicted_by_us, node};

#[tokio::test(flavor = "multi_thread")]
async fn returning_pods_are_left_after_two_evictions() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    fleet.pause_node("node-1", true).await?;
    stubborn(&fleet, 1).await?;
    // The node is not empty before the Event is there, however late the controller of the stubborn pod is.
    let here = json!({"kubernetes.io/hostname": "node-0"});
    let slow = json!({"nodeSelector": here, "terminationGracePeriodSeconds": 600});
    deploy(&fleet, "held", 1, &[HOLD], slow).await?;
    let node_0 = node(&fleet, "node-0").await?;
    fleet.publish(NEW)?;
    let said = events(&fleet, "PodsLeft").await?;
    ensure!(
        matches!(&said[..], [one] if one.contains("apps/v1/ReplicaSet/default/stubborn-")),
        "{said:?}"
    );
    let_go(&fleet).await?;
    fleet.until_runs("node-0", NEW).await?;
    evicted_twice(&fleet, 1).await?;
    let held_off = |seen: &brupop_testbed::history::Seen| seen.cordoned && seen.drained;
    ensure!(fleet.history().has_seen("node-0", held_off));
    let after = node(&fleet, "node-0").await?;
    ensure!(
        after.annotations() == node_0.annotations(),
        "{:?}",
        after.annotations()
    );
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_pods_with_a_budget_abort_the_drain() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    fleet.pause_node("node-1", true).await?;
    // While one of them is gone, the budget keeps the other: the node is never empty, however late its controller is.
    stubborn(&fleet, 2).await?;
    fleet
        .apply(&[budget("default", "stubborn", "stubborn", &json!(1))])
        .await?;
    fleet.publish(NEW)?;
    fleet
        .until_node("node-0", "it backs off", |seen| {
            seen.reason == "BackingOff" && !seen.cordoned
        })
        .await?;
    let failures = fleet.failures("node-0").await?.context("no failure")?;
    ensure!(failures.reason == "PodsComeBack", "{failures:?}");
    evicted_twice(&fleet, 2).await?;
    let node = node(&fleet, "node-0").await?;
    for key in [
        names::DO_NOT_DISRUPT_ANNOTATION,
        names::SCALE_DOWN_DISABLED_ANNOTATION,
    ] {
        ensure!(!node.annotations().contains_key(key), "{key} is left");
    }
    fleet.check()
}

/// A workload whose pods name their node, so nothing keeps them away from it.
async fn stubborn(fleet: &Fleet, replicas: usize) -> Result<()> {
    let on_node_0 = json!({"nodeName": "node-0", "terminationGracePeriodSeconds": 0});
    deploy(fleet, "stubborn", replicas, &[], on_node_0).await
}

/// Each of its pods was evicted twice, by each process that led at most: the next one counts again what was not left yet.
async fn evicted_twice(fleet: &Fleet, replicas: usize) -> Result<()> {
    let leaders = fleet
        .until_ledger("somebody leads", |status| status.term.is_some())
        .await?
        .term;
    let leaders = usize::try_from(leaders.context("nobody leads")?)?;
    let asked = fleet.control_plane.audit().from_start().read()?;
    let evicted = asked
        .iter()
        .filter(|event| event.code() == 201)
        .filter_map(evicted_by_us);
    let evicted: Vec<String> = evicted
        .filter(|pod| pod.starts_with("default/stubborn"))
        .collect();
    ensure!(
        (2..=2 * replicas * leaders).contains(&evicted.len()),
        "{evicted:?} by {leaders}"
    );
    Ok(())
}

/// What the Events of this reason about the Node say, once there is one.
async fn events(fleet: &Fleet, reason: &str) -> Result<Vec<String>> {
    let events = Api::<Event>::default_namespaced(fleet.client());
    let of_node =
        ListParams::default().fields(&format!("involvedObject.name=node-0,reason={reason}"));
    let found = await_until(format!("an Event {reason}"), async || {
        let found = events.list(&of_node).await.ok()?.items;
        let said: Vec<String> = found
            .into_iter()
            .filter_map(|event| event.message)
            .collect();
        (!said.is_empty()).then_some(said)
    });
    found.await
}
