//! Hosts whose search for updates fails, again and again: that is said once, and found.

use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::host::{Answer, Call, Command, Faults};
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{Fleet, FleetOptions, await_until};
use jiff::Timestamp;

/// Looks that are watched once the first failure is said.
const LOOKS: usize = 4;
const GAUGE: &str = "brupop_nodes_reason{reason=\"RefreshFailed\"} 1";

/// Who wrote the status of this shadow since then. What a watch shows may be logged later.
fn writers(events: &[Event], since: Timestamp) -> Vec<String> {
    let of_status = |event: &&Event| {
        let it = event.object.name == "brs-node-0" && event.object.subresource == "status";
        let later = event.request_received_timestamp >= since;
        it && later && event.verb == "patch" && !event.is_dry_run()
    };
    let account = |event: &Event| event.user.username.rsplit(':').next().map(str::to_owned);
    let mut accounts: Vec<String> = events
        .iter()
        .filter(of_status)
        .filter_map(account)
        .collect();
    accounts.sort_unstable();
    accounts
}

/// Counts how often the gauge is seen to be away until it is so.
async fn away_until(fleet: &Fleet, what: &str, so: impl Fn() -> bool) -> Result<usize> {
    let scraper = Scraper::start(&fleet.control_plane, Some(READER)).await?;
    let reconcilers = fleet.processes("reconciler");
    let mut away = 0;
    await_until(what, async || {
        // The one that leads tells.
        let mut found = false;
        for reconciler in &reconcilers {
            found |= scraper
                .scrape(reconciler)
                .await
                .ok()?
                .lines()
                .any(|line| line == GAUGE);
        }
        away += usize::from(!found);
        so().then_some(())
    })
    .await?;
    Ok(away)
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_failing_refreshes_are_reported_once() -> Result<()> {
    let mut options = FleetOptions::quick(1, &[("PREFETCH", "true")]);
    options.durations.refresh = Duration::from_secs(2);
    let mut fleet = Fleet::start(&options).await?;
    fleet.publish(NEW)?;
    fleet.pause(true).await?;
    fleet
        .until_node("node-0", "it waits", |seen| seen.reason == "FleetPaused")
        .await?;

    let fails = Faults::failing(Command::Refresh, "no route");
    let (since, mut audit) = (Timestamp::now(), fleet.control_plane.audit().from_now());
    fleet.hosts[0].set_faults(fails.clone());
    fleet
        .until_node("node-0", "it says so", |seen| {
            seen.reason == "RefreshFailed"
        })
        .await?;
    fleet.wait_for_metrics("reconciler", &[GAUGE]).await?;
    let until = fleet.hosts[0].count("refresh-updates") + LOOKS;
    let away = away_until(&fleet, "some more looks", || {
        fleet.hosts[0].count("refresh-updates") >= until
    })
    .await?;
    let once = ["brupop-agent", "brupop-reconciler"];
    let wrote = writers(&audit.read()?, since);
    ensure!(
        away == 0 && wrote == once,
        "the gauge was away {away} times; {wrote:?} wrote"
    );

    // The host's API is away for a while: one problem takes the place of the other.
    let silent = Faults {
        answers: [(Call::Status, Answer::Refused("no memory".into()))].into(),
        ..fails.clone()
    };
    fleet.hosts[0].set_faults(silent);
    let says = async |words: &str| {
        fleet
            .progressing("node-0")
            .await
            .is_ok_and(|it| it.message.contains(words))
    };
    await_until("it says that, too", async || {
        says("no memory").await.then_some(())
    })
    .await?;
    let wrote = writers(&audit.read()?, since);
    ensure!(wrote == once, "{wrote:?} wrote");
    fleet.hosts[0].set_faults(fails);
    await_until("the first problem again", async || {
        says("no route").await.then_some(())
    })
    .await?;
    let until = fleet.hosts[0].count("refresh-updates") + 2;
    let away = away_until(&fleet, "two more looks", || {
        fleet.hosts[0].count("refresh-updates") >= until
    })
    .await?;
    let wrote = writers(&audit.read()?, since);
    ensure!(
        away == 0 && wrote == once,
        "the gauge was away {away} times; {wrote:?} wrote"
    );

    fleet.hosts[0].set_faults(Faults::default());
    fleet
        .until_node("node-0", "it looks again", |seen| {
            seen.reason == "FleetPaused"
        })
        .await?;
    ensure!(
        fleet
            .shadows()
            .get("brs-node-0")
            .await?
            .status
            .is_some_and(|status| status.message.is_none())
    );
    fleet.check()
}
