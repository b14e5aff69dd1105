//! The recipes of docs/pools.md, applied as they are written.

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::Idle;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Faults;
use brupop_testbed::objects::with_file;
use brupop_testbed::operator::NAMESPACE;
use serde_json::json;

use super::{TIER, apply, condition, delete, fleet, of_tier, until_pool, wait, wait_until_updated};
use crate::documents::{blocks, read, section};

/// The document's soak is longer than a test.
const SOAK: (&str, &str) = ("soak: 24h", "soak: 10s");

/// The YAML below this heading, with one thing in place of another.
fn recipe(heading: &str, (from, to): (&str, &str)) -> Result<String> {
    let document = read("docs/pools.md")?;
    let yaml = *blocks(section(&document, &format!("### {heading}"))?, "yaml")
        .first()
        .context("no YAML")?;
    ensure!(yaml.contains(from), "{heading} does not say {from}");
    Ok(yaml.replace(from, to))
}

/// `kubectl apply -f`, and the names of the pools.
async fn follow(fleet: &Fleet, yaml: &str) -> Result<Vec<String>> {
    // As it is written, but for the minute for which each node is watched.
    let yaml = yaml.replace("\nspec:\n", "\nspec:\n  verify: {readyFor: 0s}\n");
    with_file(&fleet.control_plane, &["apply", "-n", NAMESPACE], &yaml).await?;
    let names = yaml
        .lines()
        .filter_map(|line| line.strip_prefix("  name: "));
    let names: Vec<String> = names.map(str::to_owned).collect();
    for name in &names {
        wait(fleet, name, "Ready").await?;
        let seen = until_pool(fleet, name, "is seen", |status| {
            !status.conditions.is_empty()
        })
        .await?;
        ensure!(
            condition(&seen, "Accepted") == Some(("True".into(), "Understood".into())),
            "{name}: {seen:?}"
        );
    }
    Ok(names)
}

/// Holds the nodes that no other pool selects, as the recipe says.
pub(super) async fn hold_the_rest(fleet: &Fleet) -> Result<()> {
    let as_is = ("priority: 0", "priority: 0");
    follow(fleet, &recipe("Hold the rest", as_is)?)
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_goes_first() -> Result<()> {
    let mut fleet = fleet(
        &["canary", "web", "web", "web"],
        &[("BACK_OFF_BASE_SECONDS", "1")],
    )
    .await?;
    follow(&fleet, &recipe("Canary, then the rest", SOAK)?).await?;
    // It does not come up with the new version: nobody else gets it.
    fleet.hosts[0].set_faults(Faults {
        bad_images: [NEW.to_owned()].into(),
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    fleet
        .wait_for_event(
            "node-0",
            "UpdateAborted",
            "the host came back with a version other",
        )
        .await?;
    for node in ["node-1", "node-2", "node-3"] {
        fleet
            .until_node(node, "waits", |seen| seen.reason == "VersionHalted")
            .await?;
    }
    let rest = until_pool(&fleet, "rest", "stalls", |status| {
        condition(status, "Stalled") == Some(("True".into(), "VersionHalted".into()))
    });
    rest.await?;

    // The next release comes up. The rest follows once the canary has run it for the soak.
    let next = "1.20.1";
    fleet.hosts[0].set_faults(Faults::default());
    fleet.publish(next)?;
    fleet.until_waits("node-1", "WaitingForPool").await?;
    let said = fleet.progressing("node-1").await?.message;
    ensure!(said.contains("the pool canary goes first"), "{said}");
    fleet.until_runs("node-0", next).await?;
    let done = fleet.until_ledger("the canary is done", |status| {
        let mut done = status.done_pools.iter();
        done.any(|it| it.pool == "canary" && it.version == next)
    });
    done.await?;
    ensure!(
        !fleet.history().has_seen("node-1", |seen| seen.goal != Idle),
        "node-1 has begun before the soak was over"
    );
    for node in ["node-1", "node-2", "node-3"] {
        fleet.until_runs(node, next).await?;
    }
    wait_until_updated(&fleet, "rest").await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn recipes_do_what_they_say() -> Result<()> {
    let mut fleet = fleet(&["db", "db", "db", "gpu", "shop"], &[]).await?;
    let as_is = ("kind: BottlerocketPool", "kind: BottlerocketPool");
    let names = follow(&fleet, &recipe("Zone by zone, for a database", as_is)?).await?;
    ensure!(names.len() == 3);
    // Nodes are in three zones in turn. So that the order is seen, the first zone cannot be drained at first.
    follow(
        &fleet,
        &recipe("A freeze over the holidays", ("2026-11-20", "2020-11-20"))?,
    )
    .await?;
    for pool in follow(
        &fleet,
        &recipe("GPU nodes at night, in two time zones", as_is)?,
    )
    .await?
    {
        let status = until_pool(&fleet, &pool, "has a window", |status| {
            status.next_window.is_some()
        })
        .await?;
        ensure!(
            status.counts.nodes == u64::from(pool == "gpu-europe"),
            "{pool}: {status:?}"
        );
    }
    apply(
        &fleet,
        "db-a",
        &json!({"paused": true,
        "nodeSelector": {"matchLabels": {TIER: "db", "topology.kubernetes.io/zone": "eu-central-1a"}}}),
    )
    .await?;
    fleet.publish(NEW)?;
    fleet.until_waits("node-0", "PoolPaused").await?;
    for node in ["node-1", "node-2"] {
        fleet.until_waits(node, "WaitingForPool").await?;
    }
    fleet.until_waits("node-4", "Frozen").await?;
    ensure!(
        ["node-0", "node-1", "node-2"]
            .iter()
            .all(|node| fleet.seen(node).is_ok_and(|seen| seen.runs(OLD)))
    );
    follow(
        &fleet,
        &recipe(
            "Zone by zone, for a database",
            ("spec:\n", "spec:\n  paused: false\n"),
        )?,
    )
    .await?;
    for node in ["node-0", "node-1", "node-2"] {
        fleet.until_runs(node, NEW).await?;
    }
    let updates = ["node-0", "node-1", "node-2"].map(|node| fleet.history().updates(node));
    for pair in updates.windows(2) {
        let (before, after) = (
            pair[0].last().context("no update")?,
            pair[1].first().context("no update")?,
        );
        ensure!(
            before.1.is_some_and(|ended| ended < after.0),
            "the zones overlapped"
        );
    }

    // The fix owns all nodes, until it is deleted.
    fleet.until_waits("node-4", "Frozen").await?;
    follow(&fleet, &recipe("A security fix, now", as_is)?).await?;
    wait_until_updated(&fleet, "fix-now").await?;
    fleet.until_runs("node-4", NEW).await?;
    delete(&fleet, "fix-now").await?;
    until_pool(&fleet, "shop", "owns its node again", |status| {
        status.counts.nodes == 1
    })
    .await?;
    apply(&fleet, "other", &of_tier("none", &json!({}))).await?;
    until_pool(&fleet, "other", "has no nodes", |status| {
        condition(status, "Updated") == Some(("Unknown".into(), "NoNodes".into()))
    })
    .await?;
    wait(&fleet, "other", "Ready").await?;
    fleet.check()
}
