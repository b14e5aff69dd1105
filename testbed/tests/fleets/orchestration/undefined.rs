//! Somebody deletes the definition of our objects, and with it all shadows. Nobody floods the API server meanwhile, and
//! when it is there again everything goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use brupop_testbed::{Fleet, await_until};
use tokio::time::Instant;

const LOOKED_AT: Duration = Duration::from_secs(5);
/// Of one process in that time: its watch fails and is begun again, later each time.
const MOST_REQUESTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_crd_is_survived_without_flooding_requests() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[("CHECK_INTERVAL_SECONDS", "5")]).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    fleet
        .kubectl("delete crd bottlerocketshadows.brupop.bottlerocket.aws")
        .await?;
    let began = Instant::now();
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    let mut missing = 0;
    await_until("a look at what they ask for", async || {
        for event in audit.read().ok()?.into_iter().filter(is_ours) {
            missing += usize::from(event.code() == 404);
            let pods = event
                .user
                .extra
                .get("authentication.kubernetes.io/pod-name");
            let pod = pods
                .and_then(|pods| pods.first().cloned())
                .unwrap_or(event.user.username);
            *requests.entry(pod).or_default() += 1;
        }
        (began.elapsed() >= LOOKED_AT).then_some(())
    })
    .await?;
    println!("{requests:?}, {missing} of them for what is not there");
    ensure!(missing > 0, "nobody has noticed");
    ensure!(
        requests.values().all(|count| *count <= MOST_REQUESTS),
        "{requests:?}"
    );

    apply_overlay(&fleet.control_plane, "default").await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}

/// By one of our accounts, leases apart: they have a clock of their own.
fn is_ours(event: &Event) -> bool {
    event
        .user
        .username
        .starts_with(&format!("system:serviceaccount:{NAMESPACE}:"))
        && event.object.resource != "leases"
}
