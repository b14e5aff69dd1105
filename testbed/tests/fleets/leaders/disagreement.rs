//! Two reconcilers that believe to lead.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{DEADLINE, Fleet};
use tokio::time::timeout;

use crate::leaders::by_hand::Prepared;
use crate::leaders::fleet;
use crate::leaders::written::{Writes, Written};
use crate::went_well::went_well;

const LIMIT: usize = 2;
const SETTINGS: [(&str, &str); 2] = [
    ("MAX_CONCURRENT_UPDATE", "2"),
    ("LEASE_DURATION_SECONDS", "3"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_leader_writes_nothing() -> Result<()> {
    let mut fleet = fleet(3, &[]).await?;
    fleet.deploy("cart", 6, "3").await?;
    let before = fleet.term().await?;
    let frozen = Prepared::new(&fleet, "frozen", &SETTINGS)
        .await?
        .start(&fleet)?;
    let before = fleet.next_term(before).await?;
    let heir = Prepared::new(&fleet, "heir", &SETTINGS)
        .await?
        .start(&fleet)?;
    heir.competes(&fleet).await?;
    let mut writes = Writes::of(&fleet).await?;
    fleet.publish(NEW)?;
    timeout(DEADLINE, writes.next(Written::Evicted))
        .await
        .context("no eviction")??;
    frozen.signal(Signal::STOP)?;
    fleet.next_term(before).await?;
    // The heir is in mid-update, too, when the other one finds out.
    timeout(DEADLINE, writes.next(Written::Granted))
        .await
        .context("no grant")??;
    frozen.signal(Signal::CONT)?;
    let updated = fleet.until_updated(NEW).await;
    updated.with_context(|| fleet.control_plane.log("heir"))?;
    went_well(&fleet, LIMIT).await?;

    let written = written(&fleet)?;
    let reign = written
        .iter()
        .position(|event| heir.asked(event))
        .context("the heir wrote nothing")?;
    let late: Vec<_> = written[reign..]
        .iter()
        .filter(|event| frozen.asked(event))
        .collect();
    ensure!(late.is_empty(), "{late:#?}");
    ensure!(
        written[..reign].iter().any(|event| frozen.asked(event)),
        "the frozen one wrote nothing"
    );
    fleet.check()
}

/// Under one name both hold the Lease, renew it, and believe to lead: nothing but the ledger's term and the tests of the
/// writes keeps them apart.
#[tokio::test(flavor = "multi_thread")]
async fn two_concurrent_leaders_stay_within_the_limit() -> Result<()> {
    let mut fleet = fleet(4, &[]).await?;
    fleet.deploy("cart", 8, "4").await?;
    fleet.publish(NEW)?;
    let twins = [
        Prepared::new(&fleet, "twin", &SETTINGS)
            .await?
            .start(&fleet)?,
        Prepared::new(&fleet, "twin", &SETTINGS)
            .await?
            .start(&fleet)?,
    ];
    let updated = fleet.until_updated(NEW).await;
    updated.with_context(|| fleet.control_plane.log("twin"))?;
    went_well(&fleet, LIMIT).await?;
    let written = written(&fleet)?;
    for twin in &twins {
        let terms = written
            .iter()
            .filter(|event| twin.asked(event) && begins_a_term(event))
            .count();
        ensure!(terms > 1, "it began to lead {terms} times");
    }
    fleet.check()
}

/// What was written, in the order of the answers: no Leases, no Events, nothing for the sake of the answer only.
fn written(fleet: &Fleet) -> Result<Vec<Event>> {
    let mut events = fleet.control_plane.audit().from_start().read()?;
    events.retain(|event| {
        event.is_write()
            && (200..300).contains(&event.code())
            && ["bottlerocketfleets", "bottlerocketshadows", "nodes", "pods"]
                .contains(&event.object.resource.as_str())
    });
    Ok(events)
}

fn begins_a_term(event: &Event) -> bool {
    let patch = event
        .request_object
        .as_ref()
        .and_then(|patch| patch.as_array())
        .into_iter()
        .flatten();
    event.is_about("bottlerocketfleets", "fleet")
        && patch
            .clone()
            .any(|operation| operation["path"] == "/status/term" && operation["op"] != "test")
}
