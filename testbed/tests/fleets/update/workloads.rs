//! The watch after an update lasts until the workloads whose pods were evicted are available again.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use serde_json::Value;

use crate::update::exec::exec;
use crate::went_well::assert_kind;

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
    let told: Value = serde_json::from_str(&plan).unwrap_or_default();
    let mut nodes = told["nodes"].as_array().into_iter().flatten();
    let waits = nodes.find(|node| node["reason"] == "WorkloadsUnavailable");
    ensure!(
        went_well && waits.is_some_and(|node| node["next"]["what"] == "running"),
        "{plan}"
    );

    fleet.kubectl("delete quota pods -n shop").await?;
    fleet.until_updated(NEW).await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}
