//! People hold a fleet back, and a node: what has begun is finished, or given up where they say so.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::PAUSE_ANNOTATION;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::host::Durations;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::{annotate, fleet, ledger, progressing, runs, seen, told, until};

/// In seconds.
const MIN_NODE_AGE: i64 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn what_people_pause_stands_still_and_what_has_begun_is_finished() -> Result<()> {
    let (_turn, mut fleet) = fleet(3, &[("MIN_NODE_AGE_SECONDS", "12")]).await?;
    fleet.deploy("cart", 3, "1").await?;
    // The budget allows none now, so a drain lasts until the test allows it.
    fleet.deploy_spare("cart").await?;
    let pause = format!("{PAUSE_ANNOTATION}=true");
    let go_on = format!("{PAUSE_ANNOTATION}-");

    // A node that is paused before its turn is left out.
    annotate(&fleet, "node-0", &pause).await?;
    fleet.publish(NEW)?;
    let first = drains(&fleet, &["node-1", "node-2"]).await?;
    let second = if first == "node-1" { "node-2" } else { "node-1" };
    until(&fleet, "is left alone", "node-0", |seen| seen.reason == "NodePaused" && runs(seen, OLD)).await?;
    until(&fleet, "waits for its turn", second, |seen| seen.reason == "LimitReached").await?;

    // One that is paused in mid-update is put back as it was. The fleet is paused, so nobody takes its place.
    pause_fleet(&fleet, true).await?;
    until(&fleet, "is held back", second, |seen| seen.reason == "FleetPaused").await?;
    ensure!(seen(&fleet, &first)?.reason == "Draining", "the pause has stopped what had begun");
    annotate(&fleet, &first, &pause).await?;
    until(&fleet, "is put back", &first, |seen| runs(seen, OLD)).await?;
    told(&fleet, &first, "UpdateAborted", "a person paused this node").await?;
    ledger(&fleet, "its slot is given back", |status| status.slots.is_empty()).await?;
    undone(&fleet, &first).await?;
    ensure!(!fleet.history().has_seen(second, begun), "{second} has begun although the fleet is paused");

    // The fleet goes on, and is paused again in mid-update: that one is finished, and no other begins.
    pause_fleet(&fleet, false).await?;
    ensure!(drains(&fleet, &[second]).await? == second);
    pause_fleet(&fleet, true).await?;
    annotate(&fleet, "node-0", &go_on).await?;
    fleet.allow_unavailable("cart", 3).await?;
    until(&fleet, "is finished", second, |seen| runs(seen, NEW) && seen.reason == "NoUpdate").await?;
    until(&fleet, "is held back", "node-0", |seen| seen.reason == "FleetPaused").await?;
    ensure!(!fleet.history().has_seen("node-0", begun), "node-0 has begun although the fleet is paused");
    pause_fleet(&fleet, false).await?;
    until(&fleet, "is updated", "node-0", |seen| runs(seen, NEW)).await?;
    ensure!(
        fleet.history().outcomes()[&first].boots == 1 && runs(&seen(&fleet, &first)?, OLD),
        "{first} was rebooted"
    );

    a_young_node_is_left_alone_until_it_is_old_enough(&mut fleet).await?;
    fleet.check()
}

fn begun(seen: &Seen) -> bool {
    seen.goal != brupop_api::State::Idle || seen.cordoned || seen.marked
}

/// Awaits that one of these is cordoned and being drained.
async fn drains(fleet: &Fleet, nodes: &[&str]) -> Result<String> {
    let draining = |seen: &Seen| seen.cordoned && seen.marked && seen.reason == "Draining";
    let found = || {
        let history = fleet.history();
        history
            .now()
            .find(|(node, seen)| nodes.contains(node) && draining(seen))
            .map(|(node, _)| node.to_owned())
    };
    fleet
        .until("a node is drained", crate::DEADLINE, |history| {
            history.now().any(|(node, seen)| nodes.contains(&node) && draining(seen))
        })
        .await?;
    found().context("it drains no more")
}

async fn pause_fleet(fleet: &Fleet, paused: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    fleet.ledger().patch("fleet", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Nothing of an update is left on Node and host, and nothing counts as failed.
async fn undone(fleet: &Fleet, name: &str) -> Result<()> {
    let node = Api::<Node>::all(fleet.client()).get(name).await?;
    let spec = node.spec.unwrap_or_default();
    let ours = spec.taints.iter().flatten().any(|taint| taint.key.starts_with("brupop"));
    ensure!(spec.unschedulable.is_none() && !ours, "{spec:?}");
    let shadow = fleet.shadows().get(&format!("brs-{name}")).await?;
    ensure!(shadow.spec.failures.is_none() && shadow.spec.reboot_from_boot_id.is_none(), "{:?}", shadow.spec);
    let number: usize = name.trim_start_matches("node-").parse()?;
    let calls = fleet.hosts[number].calls();
    let last =
        calls.iter().rfind(|call| call.path.ends_with("activate-update")).context("nothing was activated")?;
    ensure!(last.path.ends_with("deactivate-update"), "the host would boot {NEW} next");
    Ok(())
}

/// It joins when the others are done, says why it waits, and begins by the clock alone.
async fn a_young_node_is_left_alone_until_it_is_old_enough(fleet: &mut Fleet) -> Result<()> {
    fleet.join(3, Durations { reboot: Duration::from_millis(600), ..Durations::default() }).await?;
    fleet.hosts[3].publish(NEW)?;
    until(fleet, "is left alone", "node-3", |seen| seen.reason == "NodeTooYoung").await?;
    ensure!(progressing(fleet, "node-3").await?.message.contains("MIN_NODE_AGE_SECONDS"));
    let node = Api::<Node>::all(fleet.client()).get("node-3").await?;
    let created = node.metadata.creation_timestamp.context("no time")?.0;
    until(fleet, "is updated", "node-3", |seen| runs(seen, NEW)).await?;
    let started = told(fleet, "node-3", "UpdateStarted", "begins").await?;
    let started = started.event_time.context("no time")?.0;
    let age = started.duration_since(created);
    ensure!(age.as_secs() >= MIN_NODE_AGE && age.as_secs() < MIN_NODE_AGE + 5, "it was {age:#} old");
    Ok(())
}
