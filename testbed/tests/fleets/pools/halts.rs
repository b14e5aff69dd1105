//! Workloads that do not come back halt a version in their pool, and nowhere else.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use serde_json::json;

use super::{apply, condition, fleet, of_tier, until_pool, wait_until_updated};

/// Runs the command at the end of this sentence.
async fn run_command(fleet: &Fleet, sentence: &str) -> Result<()> {
    let (_, command) = sentence.split_once("; to go on: kubectl ").context("no command")?;
    let (command, patch) = command.split_once(" '").context("no patch")?;
    let patch = patch.strip_suffix('\'').context("no end of the patch")?;
    fleet.control_plane.kubectl(command.split(' ').chain([patch])).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_holds_its_pool_and_no_other() -> Result<()> {
    let mut fleet = fleet(&["web", "web", "db"], &[("BACK_OFF_BASE_SECONDS", "1")]).await?;
    fleet.deploy("cart", 3, "3").await?;
    // No pod comes in place of one that is evicted.
    fleet.limit_pods(0).await?;
    let soak = json!({"soak": {"readyFor": "0s", "workloadsTimeout": "2s"}});
    apply(&fleet, "web", &of_tier("web", &soak)).await?;
    let unchecked = json!({"soak": {"readyFor": "0s", "workloadsTimeout": "0s"}, "paused": true});
    apply(&fleet, "db", &of_tier("db", &unchecked)).await?;
    until_pool(&fleet, "web", "has its nodes", |status| status.counts.nodes == 2).await?;
    fleet.publish(NEW)?;

    let web = until_pool(&fleet, "web", "is halted", |status| {
        condition(status, "Halted") == Some(("True".into(), "VersionHaltedInPool".into()))
    });
    let web = web.await?;
    ensure!(web.halts.len() == 1 && web.halts[0].version == NEW, "{web:?}");
    let (failed, other) =
        if fleet.seen("node-0")?.runs(NEW) { ("node-0", "node-1") } else { ("node-1", "node-0") };
    ensure!(fleet.seen(failed)?.runs(NEW) && fleet.seen(other)?.runs(OLD));
    fleet.until_waits(other, "VersionHaltedInPool").await?;
    let status = fleet.ledger().get("fleet").await?.status.context("no status")?;
    ensure!(status.halted.is_none_or(|halted| halted.is_empty()), "the whole fleet is halted");

    // The other pool goes on.
    apply(&fleet, "db", &of_tier("db", &json!({"soak": {"readyFor": "0s", "workloadsTimeout": "0s"}})))
        .await?;
    fleet.until_runs("node-2", NEW).await?;
    ensure!(fleet.seen(other)?.runs(OLD), "{other} has begun");

    // A pool that is made again is halted still; a person who has mended the workload lifts the halt.
    super::delete(&fleet, "web").await?;
    apply(&fleet, "web", &of_tier("web", &soak)).await?;
    fleet.until_waits(other, "VersionHaltedInPool").await?;
    fleet.kubectl("delete quota pods -n shop").await?;
    let halted = until_pool(&fleet, "web", "is halted", |status| !status.halts.is_empty()).await?;
    let sentence = halted.conditions.iter().find(|it| it.type_ == "Halted").context("no condition")?;
    ensure!(
        sentence.message.starts_with(&format!("{NEW}: it failed on {failed} (WorkloadsUnavailable)")),
        "{}",
        sentence.message
    );
    run_command(&fleet, &sentence.message).await?;
    fleet.until_runs(other, NEW).await?;
    wait_until_updated(&fleet, "web").await?;
    until_pool(&fleet, "web", "is halted no more", |status| status.halts.is_empty()).await?;
    fleet.check()
}
