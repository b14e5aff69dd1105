//! The watch after an update lasts until the workloads whose pods were evicted are available again.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::Records as _;
use brupop_testbed::fleet::{NEW, OLD};

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
            history
                .now()
                .any(|(_, seen)| seen.reason == "WorkloadsUnavailable")
        })
        .await?;
    {
        let history = fleet.history();
        let (name, other) = history
            .now()
            .find(|(_, seen)| seen.reason != "WorkloadsUnavailable")
            .context("another node")?;
        ensure!(
            other.version.as_deref() == Some(OLD) && other.target.is_none(),
            "{name} began meanwhile"
        );
    }

    // Anyone who asks for the plan is told the same.
    let (plan, went_well) = exec(&fleet, &["plan"]).await?;
    let waits =
        |line: &&str| line.contains("  running ") && line.contains(" WorkloadsUnavailable ");
    let waits = plan.lines().filter(waits).count();
    ensure!(went_well && waits == 1, "{plan}");

    fleet.kubectl("delete quota pods -n shop").await?;
    fleet.until_updated(NEW).await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}

/// It is its budget that keeps the next node from being drained, and nothing of it counts against the version.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_ends_without_its_workload_whose_budget_holds_the_next_node() -> Result<()> {
    let mut fleet = Fleet::quick(
        2,
        &[("SOAK_SECONDS", "1"), ("WORKLOADS_DEADLINE_SECONDS", "2")],
    )
    .await?;
    fleet.deploy("cart", 2, "1").await?;
    fleet.limit_pods(0).await?;
    fleet.publish(NEW)?;
    let ends = fleet.until_ledger("the first update ends", |status| {
        status.record(NEW).succeeded == 1
    });
    let status = ends.await?;
    ensure!(
        status.record(NEW).failures.is_empty() && status.record(NEW).halted_at.is_none(),
        "{status:?}"
    );
    let (updated, other) = if fleet.seen("node-0")?.runs(NEW) {
        ("node-0", "node-1")
    } else {
        ("node-1", "node-0")
    };
    fleet
        .wait_for_event(
            updated,
            "UpdatedWithoutWorkloads",
            "has fewer pods available than before",
        )
        .await?;
    fleet.until_waits(other, "BudgetAllowsNone").await?;
    ensure!(fleet.seen(other)?.runs(OLD), "{other} has begun");

    fleet.kubectl("delete quota pods -n shop").await?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}

/// An autoscaler does this all day: more pods are wanted while a node reboots, and there is room for as many as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_scaled_up_is_back_as_it_was() -> Result<()> {
    let mut fleet = Fleet::quick(
        1,
        &[
            ("SOAK_SECONDS", "1"),
            ("WORKLOADS_DEADLINE_SECONDS", "3600"),
        ],
    )
    .await?;
    fleet.deploy("cart", 1, "100%").await?;
    let kubectl = async |command: &str| fleet.kubectl(command).await;
    fleet.limit_pods(1).await?;
    fleet.publish(NEW)?;
    fleet
        .until("the node is empty", |history| {
            history.now().any(|(_, seen)| seen.drained)
        })
        .await?;
    kubectl("scale deployment cart --replicas=3 -n shop").await?;

    // Only the workload's return can have ended it.
    fleet.until_updated(NEW).await?;
    let cart = kubectl(
        "get deployment cart -n shop -o jsonpath={.status.availableReplicas}/{.spec.replicas}",
    )
    .await?;
    ensure!(cart == "1/3", "what was to be seen is not: {cart}");
    fleet.check()
}
