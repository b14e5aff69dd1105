//! A roll-out that goes well: what is seen of it, and what holds it back.

use anyhow::{Context as _, Result, ensure};
use brupop_api::conditions::IDLE;
use brupop_api::names::{DEFAULT_POOL, FLEET};
use brupop_testbed::Fleet;
use brupop_testbed::audit::Event;
use brupop_testbed::await_until;
use brupop_testbed::documents::{OPERATIONS, README, blocks, read};
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::scrape::{READER, Scraper};

use crate::update::exec::exec;
use crate::update::{assert_kind, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_updated_within_its_limit() -> Result<()> {
    let mut fleet = fleet(4, &[("MAX_CONCURRENT_UPDATE", "50%")]).await?;
    fleet.deploy("cart", 8, "2").await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    assert_kind(&fleet, 2)?;

    let status = fleet.until_no_slot_is_taken().await?;
    ensure!(status.versions[NEW].succeeded == 4, "{status:?}");
    for number in 0..4 {
        fleet.assert_node_is_clean(&format!("node-{number}")).await?;
    }
    // Why a node does not move is said after the slot is given back.
    let columns = await_until("the columns tell that it is done", async || {
        let columns = fleet.kubectl(&format!("get brs -n {NAMESPACE} brs-node-0 -o wide")).await.ok()?;
        columns.contains("NoUpdate").then_some(columns)
    })
    .await?;
    for column in ["STATE", "TARGET VERSION", "CRASH COUNT", "POOL", "REASON", NEW, DEFAULT_POOL] {
        ensure!(columns.contains(column), "{columns}");
    }
    for namespace in [NAMESPACE, "default"] {
        let events = fleet.kubectl(&format!("get events -n {namespace}")).await?;
        for word in ["UpdateStarted", "Updated"] {
            ensure!(events.contains(word), "{word} in {namespace}: {events}");
        }
    }
    metrics_agree(&fleet, 4).await?;
    documented_commands_run(&fleet).await?;
    fleet.check()
}

/// What the documents tell people to type for a running cluster does run.
async fn documented_commands_run(fleet: &Fleet) -> Result<()> {
    let documents = [read(README)?, read(OPERATIONS)?].join("\n");
    let commands: Vec<&str> = blocks(&documents, "sh")
        .into_iter()
        .flat_map(str::lines)
        // What installs and uninstalls has a path in it, and the plugin has a test of its own.
        .filter(|line| line.starts_with("kubectl ") && !line.contains(" -k kustomize/"))
        .filter(|line| !line.starts_with("kubectl brupop "))
        .collect();
    ensure!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        if let Some((_, program)) = command.split_once(" -- /brupop-reconciler ") {
            let (said, went_well) = exec(fleet, &program.split(' ').collect::<Vec<_>>()).await?;
            ensure!(went_well, "{command}: {said}");
            continue;
        }
        if command.starts_with("kubectl taint ") {
            // kubectl takes away only what is there.
            kubectl(fleet, command.trim_end_matches('-')).await?;
        }
        kubectl(fleet, command).await?;
    }
    // Among them are those that put a node back into service by hand.
    fleet.assert_node_is_clean("node-0").await
}

async fn kubectl(fleet: &Fleet, command: &str) -> Result<()> {
    let words = command.split(' ').skip(1).map(|word| word.trim_matches('\''));
    fleet.control_plane.kubectl(words).await.with_context(|| command.to_owned()).map(drop)
}

/// What Prometheus would scrape is what the objects say.
async fn metrics_agree(fleet: &Fleet, nodes: usize) -> Result<()> {
    let scraper = Scraper::start(&fleet.control_plane, Some(READER)).await?;
    let leads =
        |text: &&String| text.lines().any(|line| line.starts_with("brupop_leader") && line.ends_with(" 1"));
    let texts = await_until("one reconciler leads", async || {
        let texts = scraped(fleet, &scraper, "reconciler").await.ok()?;
        (texts.iter().filter(leads).count() == 1).then_some(texts)
    })
    .await?;
    for text in texts {
        let versions = format!(r#"brupop_hosts_version{{bottlerocket_version="{NEW}"}} {nodes}"#);
        let states = format!(r#"brupop_hosts_state{{state="Idle"}} {nodes}"#);
        ensure!(text.contains(&versions) && text.contains(&states), "{text}");
    }
    let mut reviewed = false;
    for text in scraped(fleet, &scraper, "webhook").await? {
        ensure!(text.contains("brupop_webhook_certificate_expiry"), "{text}");
        reviewed |= text.contains("brupop_webhook_reviews_total");
    }
    ensure!(reviewed, "no webhook has counted a review");
    Ok(())
}

/// What all processes of this component tell. Their pods may have moved a moment ago.
async fn scraped(fleet: &Fleet, scraper: &Scraper, component: &str) -> Result<Vec<String>> {
    let all = await_until(format!("every {component} is scraped"), async || {
        let mut texts = vec![];
        for process in fleet.processes(component) {
            texts.push(scraper.scrape(&process).await.ok()?);
        }
        (!texts.is_empty()).then_some(texts)
    });
    all.await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_delays_a_drain_and_idle_waits() -> Result<()> {
    let mut fleet = fleet(3, &[("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "5")]).await?;
    fleet.deploy("cart", 6, "1").await?;
    fleet.publish(NEW)?;
    // One more of its pods is away then, so that the budget allows none, and will again.
    fleet.hold_next_drain("cart").await?;
    fleet
        .until("one node is cordoned and waits for the budget", |history| {
            history.now().any(|(_, seen)| seen.cordoned && seen.marked && seen.reason == "Draining")
        })
        .await?;
    // The refusals are seen: the drain asks again and is told again.
    let mut audit = fleet.control_plane.audit().from_now();
    let refused = |event: &Event| {
        event.code() == 429
            && event.object_ref.as_ref().is_some_and(|object| object.subresource == "eviction")
    };
    for _ in 0..2 {
        audit.wait_for("an eviction refused by the budget", refused).await?;
    }
    ensure!(
        fleet.history().outcomes().values().all(|outcome| outcome.boots == 1),
        "a node was rebooted undrained"
    );
    ensure!(fleet.history().most_unavailable() == 1);

    the_fleet_is_idle_once_the_drain_is_over(&fleet).await?;
    fleet.pause(false).await?;
    fleet.until_updated(NEW).await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}

/// Anyone who pauses the fleet in mid-drain and waits for its condition `Idle` waits for the end of that update.
async fn the_fleet_is_idle_once_the_drain_is_over(fleet: &Fleet) -> Result<()> {
    fleet.pause(true).await?;
    let too_early = fleet.wait_until_idle("5s").await;
    let why = too_early.err().context("the fleet is called idle in mid-drain")?.to_string();
    ensure!(why.contains("timed out"), "{why}");
    let conditions = fleet.ledger().get(FLEET).await?.status.unwrap_or_default().conditions;
    let idle = conditions.into_iter().find(|it| it.type_ == IDLE).context("no condition Idle")?;
    ensure!(idle.message.starts_with("1 node is being updated"), "{idle:?}");
    fleet.allow_unavailable("cart", 3).await?;
    fleet.wait_until_idle("2m").await?;
    let status = fleet.ledger().get(FLEET).await?.status.unwrap_or_default();
    ensure!(status.slots.is_empty() && status.versions[NEW].succeeded == 1, "{status:?}");
    for number in 0..3 {
        fleet.assert_node_is_clean(&format!("node-{number}")).await?;
    }
    let updated = fleet.history().now().filter(|(_, seen)| seen.version.as_deref() == Some(NEW)).count();
    ensure!(updated == 1, "{updated} nodes were updated");
    Ok(())
}
