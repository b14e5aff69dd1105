//! Hosts download the update while they wait for their turn.

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};

use crate::update::assert_kind;

/// A fleet that is paused downloads nothing ahead once its nodes say so, so they wait for a window that is shut.
const WINDOW: &str = "SCHEDULER_CRON_EXPRESSION";

#[tokio::test(flavor = "multi_thread")]
async fn a_prefetched_update_is_downloaded_only_once() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("PREFETCH", "true")]).await?;
    fleet.configure(&[(WINDOW, "0 0 0 1 1 * 2099")]).await?;
    fleet.publish(NEW)?;
    fleet
        .until("both have it while they wait for their turn", |history| {
            history.now().all(|(_, seen)| {
                seen.runs(OLD)
                    && seen.staged.as_deref() == Some(NEW)
                    && seen.reason == "OutsideWindow"
            })
        })
        .await?;
    ensure!(
        calls(&fleet, "prepare-update") == [1, 1],
        "{:?} downloads",
        calls(&fleet, "prepare-update")
    );
    ensure!(
        calls(&fleet, "activate-update") == [0, 0],
        "activated before their turn"
    );

    fleet.configure(&[(WINDOW, "* * * * * * *")]).await?;
    fleet.until_updated(NEW).await?;
    ensure!(
        calls(&fleet, "prepare-update") == [1, 1],
        "{:?} downloads",
        calls(&fleet, "prepare-update")
    );
    ensure!(
        calls(&fleet, "activate-update") == [1, 1],
        "{:?}",
        calls(&fleet, "activate-update")
    );
    assert_kind(&fleet, 1)?;
    fleet.check()
}

/// How often each host was asked for this.
fn calls(fleet: &Fleet, action: &str) -> Vec<usize> {
    fleet.hosts.iter().map(|host| host.count(action)).collect()
}
