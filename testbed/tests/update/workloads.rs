//! The watch after an update lasts until the workloads whose pods were evicted are available again.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::await_until;
use brupop_testbed::fleet::{NEW, OLD};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::{DEADLINE, assert_kind, fleet, quick, with};

#[tokio::test(flavor = "multi_thread")]
async fn no_further_node_begins_until_evicted_workloads_are_available_again() -> Result<()> {
    let (_alone, mut fleet) = fleet(2, with(quick(), "SOAK_SECONDS", "1")).await?;
    let nodes = Api::<Node>::all(fleet.client());
    let sell = async |value: Option<&str>| -> Result<()> {
        let label = Patch::Merge(json!({"metadata": {"labels": {"sells": value}}}));
        for node in ["node-0", "node-1"] {
            nodes.patch(node, &PatchParams::default(), &label).await?;
        }
        Ok(())
    };
    sell(Some("yes")).await?;
    fleet.deploy("cart", 2, "1").await?;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"sells": "yes"}}}}});
    let deployments = Api::<Deployment>::namespaced(fleet.client(), "shop");
    deployments.patch("cart", &PatchParams::default(), &Patch::Strategic(selector)).await?;
    await_until("all pods of cart are of the new template", DEADLINE, async || {
        let cart = deployments.get("cart").await.ok()?;
        let status = cart.status?;
        let all = [status.replicas, status.updated_replicas, status.available_replicas];
        (status.observed_generation == cart.metadata.generation && all == [Some(2); 3]).then_some(())
    })
    .await?;
    // What is evicted now finds no node to come back to.
    sell(None).await?;

    fleet.publish(NEW)?;
    fleet
        .until("the workload is waited for", DEADLINE, |history| {
            history.now().any(|(_, seen)| seen.reason == "WorkloadsNotBack")
        })
        .await?;
    {
        let history = fleet.history();
        let (name, other) =
            history.now().find(|(_, seen)| seen.reason != "WorkloadsNotBack").context("another node")?;
        ensure!(other.version.as_deref() == Some(OLD) && other.target.is_none(), "{name} began meanwhile");
    }

    sell(Some("yes")).await?;
    fleet.until_updated(NEW, DEADLINE).await?;
    assert_kind(&fleet, 1)?;
    let typical = fleet.ledger().get("fleet").await?.status.and_then(|status| status.typical_seconds);
    ensure!(typical.is_some_and(|seconds| (1..120).contains(&seconds)), "{typical:?}");
    fleet.check()
}
