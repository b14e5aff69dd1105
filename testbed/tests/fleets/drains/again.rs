//! Drains that a budget blocks: nodes are held back for a while, and then tried.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::objects::budget;
use brupop_testbed::{Fleet, await_until};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::drains::{deploy, evicted_by_us, marker};

#[tokio::test(flavor = "multi_thread")]
async fn drain_that_a_budget_blocks_disturbs_others_once() -> Result<()> {
    // A third of this belongs to the pod that the budget blocks.
    let patience = [
        ("DRAIN_DEADLINE_SECONDS", "9"),
        ("BACK_OFF_BASE_SECONDS", "1"),
    ];
    let mut fleet = Fleet::quick(2, &patience).await?;
    fleet.pause_node("node-1", true).await?;
    fleet.deploy("cart", 2, "0").await?;
    // A neighbour without a budget, which comes back whenever the node does.
    let on_node_0 = json!({"nodeSelector": {"kubernetes.io/hostname": "node-0"}, "terminationGracePeriodSeconds": 0});
    deploy(&fleet, "mail", 1, &[], on_node_0).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.publish(NEW)?;
    fleet
        .until_node("node-0", "waits for the budget", |seen| {
            seen.reason == "BudgetAllowsNone"
        })
        .await?;
    let said = fleet.progressing("node-0").await?.message;
    ensure!(
        said.contains("shop/cart allows no disruption") && said.contains("so change the budget"),
        "{said}"
    );
    ensure!(
        !fleet
            .history()
            .has_seen("node-0", |seen| seen.cordoned || seen.target.is_some()),
        "it has a slot"
    );

    let failed = async |count: u64| {
        await_until(format!("its drain has failed {count} times"), async || {
            fleet
                .failures("node-0")
                .await
                .ok()?
                .filter(|failures| failures.count >= count)
        })
        .await
    };
    let failures = failed(2).await?;
    ensure!(failures.reason == "DrainBlocked", "{failures:?}");
    let message = failures.message;
    ensure!(
        message.contains("shop/cart-") && message.contains("disruption budget"),
        "{message}"
    );
    fleet
        .until_node("node-0", "it is back in service", |seen| {
            !seen.is_unavailable()
        })
        .await?;
    let evicted: Vec<String> = audit
        .read()?
        .iter()
        .filter(|event| event.code() == 201)
        .filter_map(evicted_by_us)
        .filter(|pod| pod.starts_with("default/mail-"))
        .collect();
    ensure!(
        evicted.len() == 1,
        "mail was disturbed by each drain: {evicted:?}"
    );

    fleet.allow_unavailable("cart", 1).await?;
    fleet.pause_node("node-1", false).await?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}

/// A database operator keeps its primary by a budget that allows none, and moves it as soon as the primary's node is
/// unschedulable.
#[tokio::test(flavor = "multi_thread")]
async fn primary_that_moves_at_the_cordon_is_drained_as_by_kubectl() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("DRAIN_DEADLINE_SECONDS", "60")]).await?;
    fleet.pause_node("node-1", true).await?;
    let spread = json!({"terminationGracePeriodSeconds": 0, "affinity": {"podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}}]}}});
    deploy(&fleet, "db", 2, &[], spread).await?;
    let mut primary = budget("default", "primary", "db", &json!(0));
    primary["spec"]["selector"]["matchLabels"]["role"] = json!("primary");
    fleet.apply(&[primary]).await?;
    set_primary(&fleet, "node-0").await?;
    let (pods, nodes) = (
        Api::<Pod>::default_namespaced(fleet.client()),
        Api::<Node>::all(fleet.client()),
    );
    tokio::select! {
        drained = drain_twice(&fleet) => drained?,
        () = fail_over(&pods, &nodes) => {},
    }
    ensure!(fleet.failures("node-0").await?.is_none(), "it has failed");
    ensure!(fleet.seen("node-1")?.runs(OLD), "it was paused");
    fleet.check()
}

/// Drains the primary's node by `kubectl drain`, and then by an update.
async fn drain_twice(fleet: &Fleet) -> Result<()> {
    let began = Instant::now();
    fleet
        .kubectl(
            "drain node-0 --ignore-daemonsets --delete-emptydir-data --force --pod-selector=app=db",
        )
        .await?;
    let by_hand = began.elapsed();
    fleet.kubectl("uncordon node-0").await?;
    // Both of its pods are on the other node now.
    fleet.kubectl("delete pods -l app=db").await?;
    fleet.until_rolled_out("default", "db").await?;
    set_primary(fleet, "node-0").await?;

    fleet.publish(NEW)?;
    fleet
        .until_node("node-0", "waits for the budget", |seen| {
            seen.reason == "BudgetAllowsNone"
        })
        .await?;
    fleet
        .until_node("node-0", "it is cordoned", |seen| seen.cordoned)
        .await?;
    let cordoned = marker(fleet, "node-0")
        .await?
        .and_then(|marker| marker.cordoned_at)
        .context("no cordon")?;
    fleet
        .until_node("node-0", "it is drained", |seen| seen.drained)
        .await?;
    let by_us = Timestamp::now().duration_since(cordoned.parse()?);
    println!("kubectl drain took {by_hand:?}, and our drain {by_us:?} from the cordon");
    ensure!(
        by_us.unsigned_abs() < by_hand + Duration::from_secs(20),
        "{by_us:?}, by hand {by_hand:?}"
    );
    fleet.until_runs("node-0", NEW).await
}

/// Makes a pod of the database on this node the primary, once there is one, and all others replicas.
async fn set_primary(fleet: &Fleet, node: &str) -> Result<()> {
    let pods = Api::<Pod>::default_namespaced(fleet.client());
    await_until(format!("the primary is on {node}"), async || {
        elect(&pods, |on| on == node).await.then_some(())
    })
    .await
}

/// Labels the first pod of the database on such a node as the primary. Returns whether there is one.
async fn elect(pods: &Api<Pod>, is_fit: impl Fn(&str) -> bool) -> bool {
    let all = pods
        .list(&ListParams::default().labels("app=db"))
        .await
        .map(|pods| pods.items)
        .unwrap_or_default();
    let node = |pod: &Pod| {
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default()
    };
    let stays = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && is_fit(&node(pod));
    let Some(chosen) = all.iter().find(stays).map(Pod::name_any) else {
        return false;
    };
    for pod in all.iter().map(Pod::name_any) {
        let role = (pod == chosen).then_some("primary");
        let patch = Patch::Merge(json!({"metadata": {"labels": {"role": role}}}));
        if pods
            .patch(&pod, &PatchParams::default(), &patch)
            .await
            .is_err()
            && pod == chosen
        {
            return false;
        }
    }
    true
}

/// Moves the primary to another node whenever its own is unschedulable, for ever.
async fn fail_over(pods: &Api<Pod>, nodes: &Api<Node>) {
    let is_cordoned =
        |node: &&Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    loop {
        let cordoned = await_until("a node is unschedulable", async || {
            nodes
                .list(&ListParams::default())
                .await
                .ok()?
                .items
                .iter()
                .find(is_cordoned)
                .map(Node::name_any)
        });
        let Ok(cordoned) = cordoned.await else {
            continue;
        };
        let fit = |on: &str| !on.is_empty() && on != cordoned;
        let _ = await_until("the primary has moved", async || {
            elect(pods, fit).await.then_some(())
        })
        .await;
    }
}

/// Evictions are answered with 500 as long as the policy engine is away.
#[tokio::test(flavor = "multi_thread")]
async fn outage_of_a_policy_engine_delays_a_drain_and_fails_none() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    fleet.deploy("cart", 2, "1").await?;
    let away = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "engine"}, "webhooks": [{"name": "engine.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}]}]});
    fleet.apply(&[away]).await?;
    fleet.publish(NEW)?;
    await_until("a drain names the engine", async || {
        for node in ["node-0", "node-1"] {
            let found = fleet.progressing(node).await.ok()?;
            if found.reason == "Draining" && found.message.contains("engine.example.com") {
                return Some(());
            }
        }
        None
    })
    .await?;
    fleet
        .kubectl("delete validatingwebhookconfiguration engine")
        .await?;
    fleet.until_updated(NEW).await?;
    for node in ["node-0", "node-1"] {
        ensure!(fleet.failures(node).await?.is_none(), "{node} has failed");
    }
    fleet.check()
}
