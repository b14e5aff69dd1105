//! People hold a fleet back, and a node: what has begun is finished, or given up where they say so.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::conditions::IDLE;
use brupop_api::names::FLEET;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::host::Durations;
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

/// In seconds: a node that joins has reported long before.
const MIN_NODE_AGE: i64 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_lets_running_updates_finish() -> Result<()> {
    let mut fleet = Fleet::quick(
        3,
        &[
            ("MIN_NODE_AGE_SECONDS", "30"),
            ("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "5"),
        ],
    )
    .await?;
    fleet.deploy("cart", 3, "1").await?;

    // A node that is paused before its turn is left out.
    fleet.pause_node("node-0", true).await?;
    fleet.publish(NEW)?;
    // The budget allows none from then on, so the drain lasts until the test allows it.
    fleet.hold_next_drain("cart").await?;
    let first = drains(&fleet, &["node-1", "node-2"]).await?;
    let second = if first == "node-1" {
        "node-2"
    } else {
        "node-1"
    };
    fleet
        .until_node("node-0", "is left alone", |seen| {
            seen.reason == "NodePaused" && seen.runs(OLD)
        })
        .await?;
    // Its pods are looked at ahead of its turn.
    fleet
        .until_node(second, "waits for the budget", |seen| {
            seen.reason == "BudgetAllowsNone"
        })
        .await?;

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
    undone(&fleet, &first).await?;
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
    fleet.pause_node("node-0", false).await?;
    the_fleet_is_idle_once_the_drain_is_over(&fleet).await?;
    fleet
        .until_node(second, "is finished", |seen| {
            seen.runs(NEW) && seen.reason == "NoUpdate"
        })
        .await?;
    fleet
        .until_node("node-0", "is held back", |seen| {
            seen.reason == "FleetPaused"
        })
        .await?;
    ensure!(
        !fleet.history().has_seen("node-0", begun),
        "node-0 has begun although the fleet is paused"
    );
    fleet.pause(false).await?;
    fleet.until_runs("node-0", NEW).await?;
    ensure!(
        fleet.history().outcomes()[&first].boots == 1 && fleet.seen(&first)?.runs(OLD),
        "{first} was rebooted"
    );

    a_young_node_is_left_alone_until_it_is_old_enough(&mut fleet).await?;
    what_a_person_wrote_is_said_to_be_observed(&fleet).await?;
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
    let status = fleet
        .ledger()
        .get(FLEET)
        .await?
        .status
        .context("no status")?;
    let idle = status
        .conditions
        .into_iter()
        .find(|it| it.type_ == IDLE)
        .context("no condition Idle")?;
    ensure!(
        idle.message.starts_with("1 node is being updated"),
        "{idle:?}"
    );
    fleet.allow_unavailable("cart", 3).await?;
    fleet.wait_until_idle("4m").await?;
    let status = fleet
        .ledger()
        .get(FLEET)
        .await?
        .status
        .context("no status")?;
    ensure!(
        status.slots.is_empty() && status.versions[NEW].succeeded == 1,
        "{status:?}"
    );
    Ok(())
}

/// `kubectl wait` takes no condition for an answer that is about an earlier spec.
async fn what_a_person_wrote_is_said_to_be_observed(fleet: &Fleet) -> Result<()> {
    let wait = async |condition: &str, object: &str| {
        fleet
            .control_plane
            .wait_for_condition(condition, &[object, "-n", NAMESPACE])
            .await
    };
    let before = fleet
        .ledger()
        .get(FLEET)
        .await?
        .metadata
        .generation
        .context("no generation")?;
    for (later, paused) in [(1, true), (2, false)] {
        // Nothing else changes by it: every node is updated. Paused, the fleet is as ready as before.
        fleet.pause(paused).await?;
        for condition in [
            "Ready",
            "Stalled=false",
            "AdmissionEnforced",
            "Halted=false",
            "Idle",
            "OtherOperator=false",
        ] {
            wait(condition, "brf/fleet").await?;
        }
        let seen = fleet.ledger().get(FLEET).await?;
        let generation = u64::try_from(before + later)?;
        ensure!(seen.metadata.generation == Some(before + later));
        let status = seen.status.context("no status")?;
        let conditions = status
            .conditions
            .iter()
            .map(|condition| condition.observed_generation);
        let observed: Vec<_> = conditions.chain([status.observed_generation]).collect();
        ensure!(
            observed == [Some(generation); 8],
            "{observed:?} of {generation}"
        );
    }
    for node in 0..4 {
        wait("Progressing=false", &format!("brs/brs-node-{node}")).await?;
        let shadow = fleet.shadows().get(&format!("brs-node-{node}")).await?;
        let observed = fleet
            .progressing(&format!("node-{node}"))
            .await?
            .observed_generation;
        ensure!(
            observed.is_some() && observed == shadow.metadata.generation.map(i64::cast_unsigned)
        );
    }
    Ok(())
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
        .until("a node is drained", |history| {
            history
                .now()
                .any(|(node, seen)| nodes.contains(&node) && draining(seen))
        })
        .await?;
    found().context("it drains no more")
}

/// Nothing of an update is left on Node and host, and nothing counts as failed.
async fn undone(fleet: &Fleet, name: &str) -> Result<()> {
    fleet.assert_node_is_clean(name).await?;
    let shadow = fleet.shadows().get(&format!("brs-{name}")).await?;
    ensure!(
        shadow.spec.last_failure.is_none() && shadow.spec.reboot_granted_boot_id.is_none(),
        "{:?}",
        shadow.spec
    );
    let number: usize = name.trim_start_matches("node-").parse()?;
    let calls = fleet.hosts[number].calls();
    let last = calls
        .iter()
        .rfind(|call| call.path.ends_with("activate-update"))
        .context("nothing was activated")?;
    ensure!(
        last.path.ends_with("deactivate-update"),
        "the host would boot {NEW} next"
    );
    Ok(())
}

/// It joins when the others are done, says why it waits, and begins by the clock alone.
async fn a_young_node_is_left_alone_until_it_is_old_enough(fleet: &mut Fleet) -> Result<()> {
    fleet
        .join(
            3,
            Durations {
                reboot: Duration::from_millis(600),
                ..Durations::default()
            },
        )
        .await?;
    fleet.hosts[3].publish(NEW)?;
    fleet
        .until_node("node-3", "is left alone", |seen| {
            seen.reason == "NodeTooYoung"
        })
        .await?;
    ensure!(
        fleet
            .progressing("node-3")
            .await?
            .message
            .contains("MIN_NODE_AGE_SECONDS")
    );
    let node = Api::<Node>::all(fleet.client()).get("node-3").await?;
    let created = node.metadata.creation_timestamp.context("no time")?.0;
    fleet.until_runs("node-3", NEW).await?;
    let started = fleet
        .wait_for_event("node-3", "UpdateStarted", "begins")
        .await?;
    let started = started.event_time.context("no time")?.0;
    let age = started.duration_since(created);
    ensure!(age.as_secs() >= MIN_NODE_AGE, "it was {age:#} old");
    Ok(())
}
