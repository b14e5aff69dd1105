//! Tests that changes of a pool take effect at once, without a restart.

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::Idle;
use brupop_api::names::{UPDATE_NOW_ANNOTATION, shadow_name};
use brupop_testbed::fleet::{NEW, OLD};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::json;

use super::recipes::hold_the_rest;
use super::{apply, condition, delete, fleet, of_tier, until_pool, wait_until_updated};

/// A window that opens in twelve hours, for one.
fn closed_window() -> (serde_json::Value, Timestamp) {
    let opens = Timestamp::now() + SignedDuration::from_hours(12);
    let at = opens.to_zoned(TimeZone::UTC);
    let schedule = format!("{} {} * * *", at.minute(), at.hour());
    let opens = opens.as_second() / 60 * 60;
    (
        json!([{"schedule": schedule, "duration": "1h"}]),
        Timestamp::from_second(opens).unwrap_or(Timestamp::MIN),
    )
}

/// Three web nodes, two at a time; two databases outside of their window; one node that is held.
#[tokio::test(flavor = "multi_thread")]
async fn pools_are_updated_side_by_side() -> Result<()> {
    let mut fleet = fleet(&["web", "web", "web", "db", "db", "rest"], &[]).await?;
    let (closed, opens) = closed_window();
    apply(
        &fleet,
        "web",
        &of_tier("web", &json!({"maxUnavailable": "67%"})),
    )
    .await?;
    apply(&fleet, "db", &of_tier("db", &json!({"windows": closed}))).await?;
    hold_the_rest(&fleet).await?;
    let web = until_pool(&fleet, "web", "has its nodes", |status| {
        status.counts.nodes == 3
    })
    .await?;
    ensure!(
        web.counts.unavailable_limit == 2
            && condition(&web, "Accepted") == Some(("True".into(), "Understood".into()))
    );
    wait_until_updated(&fleet, "web").await?;

    fleet.publish(NEW)?;
    for node in ["node-0", "node-1", "node-2"] {
        fleet.until_runs(node, NEW).await?;
    }
    wait_until_updated(&fleet, "web").await?;
    for node in ["node-3", "node-4"] {
        fleet.until_waits(node, "OutsideWindow").await?;
    }
    let said = fleet.progressing("node-3").await?.message;
    ensure!(
        said.contains(&format!("it opens at {opens}")),
        "{said}, not {opens}"
    );
    let db = until_pool(&fleet, "db", "waits", |status| {
        status.counts.pending_nodes == 2
    })
    .await?;
    ensure!(
        db.next_window
            .as_ref()
            .is_some_and(|window| window.start == opens.to_string()),
        "{db:?}"
    );
    ensure!(
        condition(&db, "Progressing") == Some(("False".into(), "OutsideWindow".into())),
        "{db:?}"
    );
    ensure!(
        condition(&db, "Updated") == Some(("False".into(), "UpdatesPending".into())),
        "{db:?}"
    );
    ensure!(
        db.versions.len() == 1 && db.versions[0].version == OLD && db.versions[0].nodes == 2,
        "{db:?}"
    );
    fleet.until_waits("node-5", "PoolPaused").await?;
    for (node, pool) in [("node-0", "web"), ("node-3", "db"), ("node-5", "held")] {
        let status = fleet
            .shadows()
            .get(&shadow_name(node))
            .await?
            .status
            .context("no status")?;
        ensure!(
            status.pool.as_deref().unwrap_or_default() == pool,
            "{node}: {status:?}"
        );
    }
    ensure!(
        fleet.history().most_slots_of("web") == 2,
        "{} of web",
        fleet.history().most_slots_of("web")
    );

    // A person asks for one of them, and then opens the window for both.
    fleet
        .annotate("node-3", &format!("{UPDATE_NOW_ANNOTATION}=true"))
        .await?;
    fleet.until_runs("node-3", NEW).await?;
    ensure!(fleet.seen("node-4")?.runs(OLD));
    apply(&fleet, "db", &of_tier("db", &json!({"maxUnavailable": 1}))).await?;
    fleet.until_runs("node-4", NEW).await?;
    wait_until_updated(&fleet, "db").await?;
    ensure!(
        !fleet.history().has_seen("node-5", |seen| seen.goal != Idle),
        "node-5 is held, and has begun"
    );
    delete(&fleet, "held").await?;
    fleet.until_runs("node-5", NEW).await?;
    ensure!(fleet.history().most_slots_of("db") == 1 && fleet.history().most_slots_of("") == 1);
    fleet.check()
}
