//! A cluster of one node: the operator runs on the very node that it updates.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::await_until;
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::{DEADLINE, evicted_by_us, fleet, own_pods};

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_updates_itself_and_comes_back_into_service_with_the_operator_on_it() -> Result<()> {
    let (_alone, mut fleet) = fleet(1, &[]).await?;
    fleet.deploy("cart", 2, "2").await?;
    let ours = own_pods(&fleet).await?;
    ensure!(ours.len() == 4, "{ours:?}");
    let restarts = restarts(&fleet);
    fleet.publish(NEW)?;
    fleet.until_updated(NEW, DEADLINE).await?;

    let node = Api::<Node>::all(fleet.client()).get("node-0").await?;
    let spec = node.spec.clone().unwrap_or_default();
    ensure!(spec.unschedulable.is_none() && spec.taints.is_none(), "{spec:?}");
    ensure!(fleet.history().has_seen("node-0", |seen| seen.cordoned && seen.drained), "it was not drained");
    ensure!(fleet.history().outcomes()["node-0"].boots == 2);
    // There was no other node for them: they are the same, started anew with their host.
    ensure!(own_pods(&fleet).await? == ours, "the operator's pods were exchanged");
    await_until("the operator runs", DEADLINE, async || {
        let now = self::restarts(&fleet);
        (now.len() == ours.len() && now.iter().all(|(pod, count)| *count > restarts[pod])).then_some(())
    })
    .await?;
    let evicted = fleet.control_plane.audit().from_start().read()?;
    let evicted: Vec<_> = evicted.iter().filter_map(evicted_by_us).collect();
    ensure!(evicted.len() == 2 && evicted.iter().all(|pod| pod.starts_with("shop/cart")), "{evicted:?}");
    // And what it evicted runs there again.
    let pods = Api::<Pod>::namespaced(fleet.client(), "shop");
    await_until("the workload runs again", DEADLINE, async || {
        let pods = pods.list(&ListParams::default()).await.ok()?;
        let back = |pod: &Pod| {
            !evicted.contains(&format!("shop/{}", pod.name_any()))
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        (pods.items.len() == 2 && pods.iter().all(back)).then_some(())
    })
    .await?;
    fleet.check()
}

/// How often each process of reconciler and webhook was started before.
fn restarts(fleet: &Fleet) -> BTreeMap<String, i32> {
    let processes = fleet.kubelets.processes().into_iter();
    processes
        .filter(|process| process.namespace == NAMESPACE && process.component != "agent")
        .map(|process| (process.pod, process.restarts))
        .collect()
}
