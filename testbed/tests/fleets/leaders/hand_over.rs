//! How long nobody leads after a leader has ended.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::sandbox::Signal;

use crate::leaders::by_hand::{ByHand, Prepared};
use crate::leaders::fleet;

const LEASE: Duration = Duration::from_secs(15);
/// The Lease has run out, and then come a call for the Lease and one for the ledger, each of which may take a fifth of the
/// lease before it is tried again.
const AFTER_A_CRASH: Duration = Duration::from_secs(21);
/// Long before the Lease would have run out: its holder had renewed it at most a third of its duration ago.
const AFTER_A_FAREWELL: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_takes_over_in_time() -> Result<()> {
    let mut fleet = fleet(1, &[]).await?;
    let before = fleet.term().await?;
    let first = start(&fleet, "first").await?;
    fleet.next_term(before).await?;
    let second = start(&fleet, "second").await?;
    let farewell = hand_over(&fleet, &first, Signal::TERM).await?;
    let _third = start(&fleet, "third").await?;
    let crash = hand_over(&fleet, &second, Signal::KILL).await?;
    println!(
        "nobody led for {farewell:?} after SIGTERM, for {crash:?} after SIGKILL, at a lease of {LEASE:?}"
    );
    ensure!(farewell < AFTER_A_FAREWELL, "{farewell:?} after SIGTERM");
    ensure!(crash < AFTER_A_CRASH, "{crash:?} after SIGKILL");
    fleet.check()
}

async fn start(fleet: &Fleet, name: &str) -> Result<ByHand> {
    let lease = LEASE.as_secs().to_string();
    let reconciler = Prepared::new(fleet, name, &[("LEASE_DURATION_SECONDS", lease.as_str())])
        .await?
        .start(fleet)?;
    reconciler.competes(fleet).await?;
    Ok(reconciler)
}

/// From the signal to the ledger's next term, which every leader writes before anything else.
async fn hand_over(fleet: &Fleet, leader: &ByHand, signal: Signal) -> Result<Duration> {
    let before = fleet.term().await?;
    let began = Instant::now();
    leader.signal(signal)?;
    fleet.next_term(before).await?;
    Ok(began.elapsed())
}
