//! Somebody writes into a status what the reconciler can overwrite, or cannot: it does not write the same for ever.

use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_api::crds::SLOTS_MAX;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use tokio::time::Instant;

/// Beside what must be written, conditions may settle.
const MOST_WRITES: usize = 10;
const QUIET: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_edited_status_is_repaired_or_left() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[("MAX_CONCURRENT_UPDATE", "unlimited")]).await?;
    await_until("the condition of node-0", async || {
        fleet.progressing("node-0").await.ok()
    })
    .await?;
    let mut audit = fleet.control_plane.audit().from_now();
    for (object, patch) in [
        (
            "brf/fleet",
            r#"{"status":{"haltedVersions":["1.0.0"],"unavailableLimit":7}}"#,
        ),
        // Server-side apply removes no condition that another manager has put there.
        (
            "brs/brs-node-0",
            r#"{"status":{"conditions":[{"type":"Overdue","status":"True","reason":"ByHand","message":"by hand",
                "lastTransitionTime":"2026-11-21T04:00:00Z"}]}}"#,
        ),
    ] {
        let edit = [
            "-n",
            NAMESPACE,
            "patch",
            object,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        ];
        fleet.control_plane.kubectl(edit).await?;
    }
    fleet
        .until_ledger("what does not belong there is gone", |status| {
            status.halted_versions.is_none() && status.counts.unavailable_limit == SLOTS_MAX
        })
        .await?;
    fleet
        .wait_for_metrics(
            "reconciler",
            &[r#"brupop_writes_total{object="shadow-status",result="unchanged"} 1"#],
        )
        .await?;

    let (mut writes, mut quiet_since) = (0, Instant::now());
    await_until("no write for a while", async || {
        for event in audit.read().ok()? {
            let about = |resource, name| event.is_about(resource, name);
            if event.is_by("brupop-reconciler")
                && event.is_write()
                && (about("bottlerocketfleets", "fleet")
                    || about("bottlerocketshadows", "brs-node-0"))
            {
                (writes, quiet_since) = (writes + 1, Instant::now());
            }
        }
        (writes > MOST_WRITES || quiet_since.elapsed() >= QUIET).then_some(())
    })
    .await?;
    ensure!((3..=MOST_WRITES).contains(&writes), "{writes} writes");
    println!("{writes} writes");
    fleet.check()
}
