//! Lies, time, failure and windows: what a fleet does when somebody does not play along, on a real API server.
//!
//! Most of these tests wait for deadlines, so two fleets run at once.

mod liar;
mod lies;
mod pauses;
mod returns;
mod undefined;
mod windows;

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_api::conditions::Condition;
use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_testbed::history::Seen;
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{Fleet, FleetOptions, await_until};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_mins(2);
static TWO_AT_A_TIME: Semaphore = Semaphore::const_new(2);

/// A fleet with the patience of a test.
async fn fleet(nodes: usize, env: &[(&str, &str)]) -> Result<(SemaphorePermit<'static>, Fleet)> {
    let turn = TWO_AT_A_TIME.acquire().await?;
    Ok((turn, Fleet::start(&FleetOptions::quick(nodes, env), |_| ()).await?))
}

/// What is known of this node now.
fn seen(fleet: &Fleet, node: &str) -> Result<Seen> {
    let history = fleet.history();
    let seen = history.now().find(|(name, _)| *name == node).map(|(_, seen)| seen.clone());
    seen.with_context(|| format!("{node} is not known"))
}

/// Awaits something of one node.
async fn until(fleet: &Fleet, what: &str, node: &str, so: impl Fn(&Seen) -> bool) -> Result<()> {
    let is = |history: &brupop_testbed::history::History| {
        history.now().any(|(name, seen)| name == node && so(seen))
    };
    fleet.until(&format!("{node}: {what}"), DEADLINE, is).await
}

/// Idle, in service, on this version.
fn runs(seen: &Seen, version: &str) -> bool {
    seen.is_idle() && !seen.is_unavailable() && seen.version.as_deref() == Some(version)
}

/// Awaits something of the ledger.
async fn ledger(
    fleet: &Fleet,
    what: &str,
    so: impl Fn(&BottlerocketFleetStatus) -> bool,
) -> Result<BottlerocketFleetStatus> {
    let api = fleet.ledger();
    let waited = await_until(format!("the ledger: {what}"), DEADLINE, async || {
        api.get("fleet").await.ok()?.status.filter(|status| so(status))
    });
    match waited.await {
        Ok(status) => Ok(status),
        Err(elapsed) => {
            Err(elapsed).with_context(|| format!("{:?}", fleet.history().now().collect::<Vec<_>>()))
        }
    }
}

/// The nodes that failed to reach a version, and how, by the ledger.
fn failures<'s>(status: &'s BottlerocketFleetStatus, version: &str) -> Vec<(&'s str, &'s str)> {
    let record = status.versions.get(version);
    let failures = record.into_iter().flat_map(|record| &record.failures);
    failures.map(|failure| (failure.node.as_str(), failure.reason.as_str())).collect()
}

/// The condition that says why a node moves or not.
async fn progressing(fleet: &Fleet, node: &str) -> Result<Condition> {
    let shadow = fleet.shadows().get(&format!("brs-{node}")).await?;
    let conditions = shadow.status.unwrap_or_default().conditions;
    conditions.into_iter().find(|condition| condition.type_ == "Progressing").context("no condition")
}

/// Awaits an Event about this node, with these words in its note.
async fn told(fleet: &Fleet, node: &str, reason: &str, words: &str) -> Result<Event> {
    let events = Api::<Event>::all(fleet.client());
    let is = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event
                .regarding
                .as_ref()
                .and_then(|about| about.name.as_deref())
                .is_some_and(|name| name == node || name == format!("brs-{node}"))
            && event.note.as_deref().is_some_and(|note| note.contains(words))
    };
    let found = await_until(format!("{reason} ({words}) is told of {node}"), DEADLINE, async || {
        events.list(&ListParams::default()).await.ok()?.items.into_iter().find(|event| is(event))
    });
    Ok(found.await?)
}

/// Awaits that the leader's metrics have this line.
async fn measured(fleet: &Fleet, line: &str) -> Result<()> {
    let scraper = Scraper::start(&fleet.control_plane, Some(READER)).await?;
    let found = await_until(format!("{line} is scraped"), DEADLINE, async || {
        for process in fleet.processes("reconciler") {
            let text = scraper.scrape(&process).await.unwrap_or_default();
            if text.lines().any(|found| found == line) {
                return Some(());
            }
        }
        None
    });
    Ok(found.await?)
}

/// Awaits an instant.
async fn until_it_is(then: Instant) -> Result<()> {
    Ok(await_until("a moment", DEADLINE, async || (Instant::now() >= then).then_some(())).await?)
}

/// `kubectl annotate node`: `key=value`, or `key-`.
async fn annotate(fleet: &Fleet, node: &str, annotation: &str) -> Result<()> {
    fleet.control_plane.kubectl(["annotate", "node", node, "--overwrite", annotation]).await.map(drop)
}
