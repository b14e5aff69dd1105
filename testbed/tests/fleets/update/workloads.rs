//! The watch after an update lasts until the workloads whose pods were evicted are available again.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::{Fleet, await_until};

use crate::update::assert_kind;
use crate::update::exec::exec;

#[tokio::test(flavor = "multi_thread")]
async fn the_next_node_waits_for_evicted_workloads() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("SOAK_SECONDS", "1")]).await?;
    fleet.deploy("cart", 2, "1").await?;
    // A pod of it that is evicted from now on does not come back. (The operator's own do: no node is closed to them.)
    fleet.limit_pods(0).await?;

    fleet.publish(NEW)?;
    fleet
        .until("the workload is waited for", |history| {
            history.now().any(|(_, seen)| seen.reason == "WorkloadsUnavailable")
        })
        .await?;
    {
        let history = fleet.history();
        let (name, other) =
            history.now().find(|(_, seen)| seen.reason != "WorkloadsUnavailable").context("another node")?;
        ensure!(other.version.as_deref() == Some(OLD) && other.target.is_none(), "{name} began meanwhile");
    }

    // Anyone who asks for the plan is told the same.
    let (plan, went_well) = exec(&fleet, &["plan"]).await?;
    let waits = |line: &&str| line.contains("  running ") && line.contains(" WorkloadsUnavailable ");
    let waits = plan.lines().filter(waits).count();
    ensure!(went_well && waits == 1, "{plan}");

    fleet.kubectl("delete quota pods -n shop").await?;
    fleet.until_updated(NEW).await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}

/// An autoscaler does this all day: more pods are wanted while a node reboots, and there is room for as many as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_scaled_up_is_back_as_it_was() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[("SOAK_SECONDS", "1"), ("WORKLOADS_DEADLINE_SECONDS", "15")]).await?;
    fleet.deploy("cart", 1, "100%").await?;
    let kubectl = async |command: &str| fleet.kubectl(command).await;
    fleet.limit_pods(1).await?;
    fleet.publish(NEW)?;
    fleet.until("the node is empty", |history| history.now().any(|(_, seen)| seen.drained)).await?;
    kubectl("scale deployment cart --replicas=3 -n shop").await?;

    let record = await_until("the update is over", async || {
        let record = fleet.ledger().get("fleet").await.ok()?.status?.versions.get(NEW)?.clone();
        (record.succeeded > 0 || record.halted.is_some()).then_some(record)
    });
    let record = record.await?;
    ensure!(record.succeeded == 1 && record.failures.is_empty(), "{record:?}");
    let cart =
        kubectl("get deployment cart -n shop -o jsonpath={.status.availableReplicas}/{.spec.replicas}")
            .await?;
    ensure!(cart == "1/3", "what was to be seen is not: {cart}");
    fleet.check()
}
