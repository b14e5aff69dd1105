//! The leader is killed right after each kind of write; the next one goes on from the objects.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::DEADLINE;
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use tokio::time::timeout;

use crate::leaders::by_hand::Prepared;
use crate::leaders::fleet;
use crate::leaders::written::{Writes, Written};
use crate::went_well::went_well;

const LIMIT: usize = 2;
const SETTINGS: [(&str, &str); 3] = [
    ("MAX_CONCURRENT_UPDATE", "2"),
    ("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "1"),
    ("LEASE_DURATION_SECONDS", "3"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_may_crash_after_any_write() -> Result<()> {
    let mut fleet = fleet(4, &[]).await?;
    // When an eviction's caller dies, the API server may have charged the budget and not deleted the pod: for two minutes
    // the budget takes that pod for gone. Here there is room for that.
    fleet.deploy("cart", 8, "8").await?;
    fleet
        .kubectl(&format!("-n {NAMESPACE} delete pdb brupop-webhook"))
        .await?;
    fleet.publish(NEW)?;
    let first = fleet.term().await?;
    let mut writes = Writes::of(&fleet).await?;
    // Under one name, as a container that is started again: its Lease need not run out.
    let mut leader = Prepared::new(&fleet, "leader", &SETTINGS)
        .await?
        .start(&fleet)?;
    let mut leaders = 1;
    // The leaders so far were killed after these: at once, or before their signal came.
    let mut crashed_after: Vec<Written> = vec![];
    for written in Written::ALL {
        if crashed_after.contains(&written) {
            continue;
        }
        let next = Prepared::new(&fleet, "leader", &SETTINGS).await?;
        until(&mut writes, written).await?;
        leader.signal(Signal::KILL)?;
        leader.wait().await?;
        leader = next.start(&fleet)?;
        leaders += 1;
        // It leads before it is killed in its turn. What is seen until then is what the one before came to.
        crashed_after.extend(until(&mut writes, Written::Term).await?);
    }
    let updated = fleet.until_updated(NEW).await;
    updated.with_context(|| fleet.control_plane.log("leader"))?;
    went_well(&fleet, LIMIT).await?;
    // Each of them led; one that could not renew its Lease in time has done so twice.
    let terms = fleet.term().await? - first;
    ensure!(terms >= leaders, "{leaders} leaders began {terms} terms");
    println!(
        "{leaders} leaders for {} kinds of writes, {terms} terms",
        Written::ALL.len()
    );
    fleet.check()
}

/// Awaits the next write of this kind; returns all that were seen until then.
async fn until(writes: &mut Writes, wanted: Written) -> Result<Vec<Written>> {
    let written = timeout(DEADLINE, writes.next(wanted)).await;
    written.with_context(|| format!("waited for {wanted:?}"))?
}
