//! A cluster of one node: the operator runs on the very node that it updates.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::drains::{evicted_by_us, own_pods};

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_cluster_updates_itself() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[]).await?;
    fleet.deploy("cart", 2, "2").await?;
    let ours = own_pods(&fleet).await?;
    ensure!(ours.len() == 4, "{ours:?}");
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;

    let node = Api::<Node>::all(fleet.client()).get("node-0").await?;
    let spec = node.spec.clone().unwrap_or_default();
    ensure!(
        spec.unschedulable.is_none() && spec.taints.is_none(),
        "{spec:?}"
    );
    ensure!(
        fleet
            .history()
            .has_seen("node-0", |seen| seen.cordoned && seen.drained),
        "it was not drained"
    );
    ensure!(fleet.history().outcomes()["node-0"].boots == 2);
    let evicted = came_back_to_node_0(&fleet, &ours).await?;
    ensure!(
        evicted.len() == 2 && evicted.iter().all(|pod| pod.starts_with("shop/cart")),
        "{evicted:?}"
    );
    // The evicted pods run there again.
    let pods = Api::<Pod>::namespaced(fleet.client(), "shop");
    await_until("the workload runs again", async || {
        let pods = pods.list(&ListParams::default()).await.ok()?;
        let back = |pod: &Pod| {
            !evicted.contains(&format!("shop/{}", pod.name_any()))
                && pod
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref())
                    == Some("Running")
        };
        (pods.items.len() == 2 && pods.iter().all(back)).then_some(())
    })
    .await?;
    fleet.check()
}

/// Each of the operator's pods was evicted once, and one like it runs on the same node. Returns the others that were
/// evicted.
async fn came_back_to_node_0(
    fleet: &Fleet,
    ours: &BTreeMap<String, String>,
) -> Result<Vec<String>> {
    let asked = fleet.control_plane.audit().read()?;
    let evicted: Vec<_> = asked
        .iter()
        .filter(|event| event.code() == 201)
        .filter_map(evicted_by_us)
        .collect();
    for pod in ours.keys() {
        let times = evicted
            .iter()
            .filter(|evicted| **evicted == format!("{NAMESPACE}/{pod}"))
            .count();
        ensure!(times == 1, "{pod} was evicted {times} times: {evicted:?}");
    }
    await_until("the operator runs", async || {
        let now = own_pods(fleet).await.ok()?;
        let again = now
            .iter()
            .all(|(pod, node)| !ours.contains_key(pod) && node == "node-0");
        let processes = fleet.kubelets.processes().into_iter();
        let run = processes
            .filter(|process| now.contains_key(&process.pod))
            .count();
        (again && now.len() == ours.len() && run == now.len()).then_some(())
    })
    .await?;
    let prefix = format!("{NAMESPACE}/");
    let (own, others): (Vec<_>, Vec<_>) = evicted
        .into_iter()
        .partition(|pod| pod.starts_with(&prefix));
    ensure!(
        own.len() == ours.len(),
        "what came back was evicted, too: {own:?}"
    );
    Ok(others)
}
