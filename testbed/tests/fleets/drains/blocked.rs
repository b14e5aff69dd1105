//! A drain that a budget holds up: what goes all the same, what people are told, and when it is given up.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::drains::marker;

/// The first is for [`Fleet::hold_next_drain`].
const ENV: [(&str, &str); 2] = [
    ("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "5"),
    ("DRAIN_DEADLINE_SECONDS", "60"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_drain_is_explained_and_times_out() -> Result<()> {
    let mut fleet = Fleet::quick(2, &ENV).await?;
    fleet.pause_node("node-1", true).await?;
    fleet.deploy("cart", 2, "1").await?;
    // Without a budget: one that allows more has others of its namespace asked for again.
    fleet
        .kubectl("create deployment mail --image=none --replicas=2 -n shop")
        .await?;
    await_until("a pod of it is there", async || {
        (!on_node(&fleet, "mail").await.ok()?.is_empty()).then_some(())
    })
    .await?;
    let cart = on_node(&fleet, "cart").await?;
    ensure!(cart.len() == 1, "{cart:?}");
    fleet.publish(NEW)?;
    // One more of its pods is away then, so that the budget allows none, and might again.
    fleet.hold_next_drain("cart").await?;
    fleet
        .until_node("node-0", "it drains", |seen| seen.reason == "Draining")
        .await?;

    // One that is blocked holds up no other for longer than a third of the time.
    await_until("the others are gone", async || {
        on_node(&fleet, "mail").await.ok()?.is_empty().then_some(())
    })
    .await?;
    ensure!(
        on_node(&fleet, "cart").await? == cart,
        "the budget was not kept"
    );
    let words = [&*format!("shop/{}", cart[0]), "disruption budget cart"];
    await_until("it says what blocks it", async || {
        let found = fleet.progressing("node-0").await.ok()?;
        let so = words.iter().all(|word| found.message.contains(word));
        (found.reason == "Draining" && so).then_some(())
    })
    .await?;
    warned(&fleet, "DrainBlocked", "disruption budget cart").await?;

    fleet.until_waits("node-0", "BackingOff").await?;
    let failures = fleet.failures("node-0").await?.context("no failure")?;
    ensure!(failures.reason == "DrainBlocked", "{failures:?}");
    let now = fleet.seen("node-0")?;
    ensure!(
        !now.is_unavailable() && !now.excluded && now.version.as_deref() == Some(OLD),
        "{now:?}"
    );
    ensure!(marker(&fleet, "node-0").await?.is_none() && on_node(&fleet, "cart").await? == cart);
    ensure!(
        fleet.history().outcomes()["node-0"].boots == 1,
        "it was rebooted undrained"
    );
    let words = "a budget did not allow the evictions";
    warned(&fleet, "UpdateAborted", words).await?;
    // The next one may begin, once the budget allows it.
    fleet.allow_unavailable("cart", 2).await?;
    fleet.pause_node("node-1", false).await?;
    fleet
        .until_node("node-1", "its turn has come", |seen| {
            seen.target.as_deref() == Some(NEW)
        })
        .await?;
    fleet.check()
}

/// The pods of this app on node-0 that are not on their way out, by name.
async fn on_node(fleet: &Fleet, app: &str) -> Result<Vec<String>> {
    let params = ListParams::default()
        .labels(&format!("app={app}"))
        .fields("spec.nodeName=node-0");
    let pods = Api::<Pod>::namespaced(fleet.client(), "shop")
        .list(&params)
        .await?;
    let stays = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut names: Vec<_> = stays.map(Pod::name_any).collect();
    names.sort_unstable();
    Ok(names)
}

/// Awaits a warning about the node.
async fn warned(fleet: &Fleet, reason: &str, says: &str) -> Result<()> {
    let event = fleet.wait_for_event("node-0", reason, says).await?;
    ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    Ok(())
}
