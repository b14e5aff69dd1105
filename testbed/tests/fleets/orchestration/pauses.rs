//! People hold a fleet back, and a node: what has begun is finished, or given up where they say so.

use anyhow::{Context as _, Result, ensure};
use brupop_api::conditions::IDLE;
use brupop_api::names::FLEET;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::Records as _;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::operator::NAMESPACE;

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_lets_running_updates_finish() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "5")]).await?;
    fleet.deploy("cart", 2, "1").await?;
    fleet.publish(NEW)?;
    // The budget allows none from then on, so the drain lasts until the test allows it.
    fleet.hold_next_drain("cart").await?;
    let first = drains(&fleet, &["node-0", "node-1"]).await?;
    let second = if first == "node-0" {
        "node-1"
    } else {
        "node-0"
    };

    // One that is paused in mid-update is put back as it was. The fleet is paused, so nobody takes its place.
    fleet.pause(true).await?;
    fleet
        .until_node(second, "is held back", |seen| seen.reason == "FleetPaused")
        .await?;
    ensure!(
        fleet.seen(&first)?.reason == "Draining",
        "the pause has stopped what had begun"
    );
    fleet.pause_node(&first, true).await?;
    fleet.until_runs(&first, OLD).await?;
    fleet
        .wait_for_event(&first, "UpdateAborted", "a person paused this node")
        .await?;
    fleet.until_no_slot_is_taken().await?;
    fleet.assert_node_is_clean(&first).await?;
    ensure!(
        fleet.failures(&first).await?.is_none(),
        "that is no failure"
    );
    ensure!(
        !fleet.history().has_seen(second, begun),
        "{second} has begun although the fleet is paused"
    );

    // The fleet goes on, and is paused again in mid-update: that one is finished, and no other begins.
    fleet.allow_unavailable("cart", 2).await?;
    fleet.pause(false).await?;
    fleet.hold_next_drain("cart").await?;
    ensure!(drains(&fleet, &[second]).await? == second);
    fleet.pause(true).await?;
    fleet.pause_node(&first, false).await?;
    the_fleet_is_idle_once_the_drain_is_over(&fleet).await?;
    fleet
        .until_node(second, "is finished", |seen| {
            seen.runs(NEW) && seen.reason == "NoUpdate"
        })
        .await?;
    fleet.until_waits(&first, "FleetPaused").await?;
    ensure!(
        fleet.history().outcomes()[&first].boots == 1,
        "{first} was rebooted"
    );
    // `kubectl wait` takes no condition for an answer that is about an earlier spec.
    fleet.pause(false).await?;
    fleet.until_updated(NEW).await?;
    for condition in ["Ready", "Stalled=false", "AdmissionEnforced", "Idle"] {
        fleet
            .control_plane
            .wait_for_condition(condition, &["brf/fleet", "-n", NAMESPACE])
            .await?;
    }
    fleet.check()
}

/// Anyone who pauses the fleet in mid-drain and waits for its condition `Idle` waits for the end of that update.
async fn the_fleet_is_idle_once_the_drain_is_over(fleet: &Fleet) -> Result<()> {
    let too_early = fleet.wait_until_idle("5s").await;
    let why = too_early
        .err()
        .context("the fleet is called idle in mid-drain")?
        .to_string();
    ensure!(why.contains("timed out"), "{why}");
    let status = async || fleet.ledger().get(FLEET).await?.status.context("no status");
    let conditions = status().await?.conditions;
    let idle = conditions.into_iter().find(|it| it.type_ == IDLE);
    let idle = idle.context("no condition Idle")?.message;
    ensure!(idle.starts_with("1 node is being updated"), "{idle}");
    fleet.allow_unavailable("cart", 3).await?;
    fleet.wait_until_idle("4m").await?;
    let status = status().await?;
    ensure!(
        status.slots.is_empty() && status.record(NEW).succeeded == 1,
        "{status:?}"
    );
    Ok(())
}

fn begun(seen: &Seen) -> bool {
    seen.goal != brupop_api::State::Idle || seen.cordoned || seen.marked
}

/// Awaits that one of these is cordoned and being drained.
async fn drains(fleet: &Fleet, nodes: &[&str]) -> Result<String> {
    let draining = |seen: &Seen| seen.cordoned && seen.marked && seen.reason == "Draining";
    brupop_testbed::await_until("a node is drained", async || {
        let history = fleet.history();
        let found = history
            .now()
            .find(|(node, seen)| nodes.contains(node) && draining(seen));
        found.map(|(node, _)| node.to_owned())
    })
    .await
}
