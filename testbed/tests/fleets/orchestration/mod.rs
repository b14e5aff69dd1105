//! Rogue agents, failures, pauses and windows, on a real API server.

mod hand_edits;
mod labels;
mod pauses;
mod returns;
mod rogue_agent;
mod rogue_reports;
mod undefined;
mod unreachable_webhook;
mod windows;

use anyhow::Result;
use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_testbed::await_until;
use tokio::time::Instant;

/// The nodes that failed to reach a version, and how, by the ledger.
fn failures<'s>(status: &'s BottlerocketFleetStatus, version: &str) -> Vec<(&'s str, &'s str)> {
    let records = status.versions.iter().filter(|it| it.version == version);
    let failures = records.flat_map(|record| &record.failures);
    failures
        .map(|failure| (failure.node.as_str(), failure.reason.as_str()))
        .collect()
}

/// Awaits an instant.
async fn until_it_is(then: Instant) -> Result<()> {
    await_until("a moment", async || (Instant::now() >= then).then_some(())).await
}
