//! Each field of a pool changes while an update of its node runs.

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::{Answer, Call, Command, Faults};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::recipes::hold_the_rest;
use super::{apply, delete, fleet, of_tier, until_pool};

/// A person's change of the pool of a node in mid-update.
enum Change {
    /// Its spec gets these fields, too.
    Spec(Value),
    /// A pool of a higher priority, which is paused, takes the node.
    Overtaken,
    Deleted,
}

impl Change {
    async fn apply(&self, fleet: &Fleet, pool: &str) -> Result<()> {
        match self {
            Self::Spec(fields) => apply(fleet, pool, &of_tier(pool, fields)).await,
            Self::Overtaken => {
                apply(
                    fleet,
                    "above",
                    &of_tier(pool, &json!({"priority": 7, "paused": true})),
                )
                .await
            }
            Self::Deleted => delete(fleet, pool).await,
        }
    }

    async fn undo(&self, fleet: &Fleet, pool: &str) -> Result<()> {
        match self {
            Self::Spec(_) | Self::Deleted => apply(fleet, pool, &of_tier(pool, &json!({}))).await,
            Self::Overtaken => delete(fleet, "above").await,
        }
    }
}

/// While it is held, no host has the new version downloaded.
fn hold_downloads(fleet: &Fleet, hold: bool) {
    let locked = Faults::answer(Call::Action(Command::Prepare), Answer::Locked);
    fleet.set_faults(&if hold {
        locked.clone()
    } else {
        Faults::default()
    });
}

/// One pool for each tier, and the updates of their nodes begin.
async fn begin(fleet: &mut Fleet, tiers: &[&str]) -> Result<()> {
    hold_downloads(fleet, true);
    for tier in tiers {
        apply(fleet, tier, &of_tier(tier, &json!({}))).await?;
    }
    fleet.publish(NEW)?;
    for number in 0..tiers.len() {
        fleet
            .until_node(&format!("node-{number}"), "has begun", |seen| {
                !seen.is_idle()
            })
            .await?;
    }
    Ok(())
}

/// Waits until the reconciler has seen each pool as it is, and so each that is gone.
async fn all_are_seen(fleet: &Fleet) -> Result<()> {
    for pool in super::pools(fleet).list(&ListParams::default()).await? {
        let generation = pool.metadata.generation;
        until_pool(fleet, &pool.name_any(), "is seen", |status| {
            status
                .observed_generation
                .and_then(|seen| i64::try_from(seen).ok())
                >= generation
        })
        .await?;
    }
    Ok(())
}

/// Those that close the pool take the update back before the cordon, which is no failure. Once they are undone, it begins
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn what_closes_a_pool_takes_updates_back() -> Result<()> {
    let (closed, _) = super::steered::closed_window();
    let freeze =
        json!([{"name": "now", "start": "2020-01-01T00:00:00Z", "end": "2120-01-01T00:00:00Z"}]);
    let gate = json!([{"name": "g", "prometheus": {"source": "none", "query": "up"}}]);
    let changes = [
        (
            "paused",
            Change::Spec(json!({"paused": true})),
            "PoolPaused",
        ),
        (
            "windows",
            Change::Spec(json!({"windows": closed})),
            "OutsideWindow",
        ),
        (
            "freezes",
            Change::Spec(json!({"freezes": freeze})),
            "Frozen",
        ),
        (
            "versions",
            Change::Spec(json!({"versions": {"below": NEW}})),
            "VersionNotAllowed",
        ),
        (
            "after",
            Change::Spec(json!({"dependsOn": [{"pool": "nowhere"}]})),
            "WaitingForPool",
        ),
        ("gates", Change::Spec(json!({"gates": gate})), "GateUnknown"),
        ("deleted", Change::Deleted, "PoolPaused"),
        // The last, so that anyone who has seen the new pool has seen the others' changes.
        ("overtaken", Change::Overtaken, "PoolPaused"),
    ];
    let tiers: Vec<&str> = changes.iter().map(|(tier, ..)| *tier).collect();
    let env = [
        // A gate is unknown after two of them and 30 s.
        ("GATE_INTERVAL_SECONDS", "1"),
    ];
    let mut fleet = fleet(&tiers, &env).await?;
    hold_the_rest(&fleet).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 8}}))
        .await?;
    begin(&mut fleet, &tiers).await?;
    for (tier, change, _) in &changes {
        change.apply(&fleet, tier).await?;
    }
    all_are_seen(&fleet).await?;
    hold_downloads(&fleet, false);
    fleet.until_no_slot_is_taken().await?;
    for (number, (tier, _, reason)) in changes.iter().enumerate() {
        let node = format!("node-{number}");
        fleet.until_waits(&node, reason).await?;
        let seen = fleet.seen(&node)?;
        ensure!(seen.runs(OLD) && seen.crashes == 0, "{tier}: {seen:?}");
        ensure!(
            !fleet.history().has_seen(&node, |seen| seen.cordoned),
            "{tier}: it was cordoned"
        );
        let shadow = fleet.shadows().get(&format!("brs-{node}")).await?;
        ensure!(
            shadow.spec.last_failure.is_none(),
            "{tier}: that is no failure: {:?}",
            shadow.spec.last_failure
        );
    }
    let said = fleet.progressing("node-2").await?.message;
    ensure!(
        said.contains("it is over at 2120-01-01T00:00:00Z"),
        "{said}"
    );
    for (tier, change, _) in &changes {
        change.undo(&fleet, tier).await?;
    }
    for number in 0..changes.len() {
        fleet.until_runs(&format!("node-{number}"), NEW).await?;
    }
    fleet.check()
}
