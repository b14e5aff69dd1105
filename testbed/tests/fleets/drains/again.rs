//! Drains that failed are not begun again while what they failed on is still so, no matter who leads; and hold up no other node.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use brupop_api::shadow::ObstacleKind;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use serde_json::json;

use crate::drains::held::{HOLD, let_go};
use crate::drains::{deploy, evicted_by_us};

/// Shorter than the grace period of the pods. Half a minute after kwok has ended them, something else is said of their finalizers,
/// so the two nodes are drained side by side.
const PATIENCE: [(&str, &str); 3] =
    [("DRAIN_DEADLINE_SECONDS", "10"), ("BACK_OFF_BASE_SECONDS", "1"), ("MAX_CONCURRENT_UPDATE", "2")];

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_take_longer_than_their_drain_are_evicted_once() -> Result<()> {
    let mut fleet = Fleet::quick(3, &PATIENCE).await?;
    // A neighbour that can be evicted at any time, and two pods that are longer about their end than the drain may take.
    let on_node_0 = json!({"nodeSelector": {"kubernetes.io/hostname": "node-0"}});
    deploy(&fleet, "mail", 1, &[], on_node_0).await?;
    let affinity = json!({
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "held"}}},
        ]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-2"]}]},
        ]}},
    });
    let slow = json!({"affinity": affinity, "terminationGracePeriodSeconds": 3600});
    deploy(&fleet, "held", 2, &[HOLD], slow).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.publish(NEW)?;
    fleet
        .until("the third node is updated, and the others say why they are not", |history| {
            history.now().all(|(node, seen)| {
                let (version, reason) =
                    if node == "node-2" { (NEW, "NoUpdate") } else { (OLD, "CannotDrain") };
                seen.is_idle() && seen.version.as_deref() == Some(version) && seen.reason == reason
            })
        })
        .await?;
    for node in ["node-0", "node-1"] {
        let said = fleet.progressing(node).await?.message;
        ensure!(said.contains("3600 s") && said.contains("DRAIN_DEADLINE_SECONDS"), "{node}: {said}");
        let failures = fleet.failures(node).await?;
        let noted = failures.context("no failure")?.obstacle.context("nothing is noted")?;
        ensure!(noted.kind == ObstacleKind::GracePeriod, "{node}: {noted:?}");
        ensure!(!fleet.seen(node)?.is_unavailable(), "{node} is not back in service");
    }

    // The next leader reads it there.
    let before = fleet.term().await?;
    fleet.signal("reconciler", Signal::KILL);
    fleet.next_term(before).await?;
    scale_down(&fleet).await?;
    fleet.until_updated(NEW).await?;
    for node in ["node-0", "node-1"] {
        let attempt = fleet.shadows().get(&format!("brs-{node}")).await?.spec.attempt;
        ensure!(attempt == Some(2), "{node} was tried again meanwhile: {attempt:?}");
    }
    let mut evicted: BTreeMap<String, usize> = BTreeMap::new();
    for pod in audit.read()?.iter().filter(|event| event.code() == 201).filter_map(evicted_by_us) {
        *evicted.entry(pod).or_default() += 1;
    }
    let of_mail = evicted.iter().filter(|(pod, _)| pod.contains("/mail-")).map(|(_, times)| times);
    ensure!(of_mail.sum::<usize>() <= 2, "more often than there were attempts: {evicted:?}");
    fleet.check()
}

/// Nobody wants the pods any more, and nothing keeps them.
async fn scale_down(fleet: &Fleet) -> Result<()> {
    fleet.kubectl("scale deployment held --replicas=0").await?;
    await_until("its pods are gone", async || (let_go(fleet).await.ok()? == 0).then_some(())).await
}
