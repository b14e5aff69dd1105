//! Pods that come back to a cordoned node.

use anyhow::{Result, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::objects::budget;
use brupop_testbed::{Fleet, await_until};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::drains::held::{HOLD, let_go};
use crate::drains::{deploy, evicted_by_us, node};

/// A pod that is evicted does not stay so long.
const STAYS: SignedDuration = SignedDuration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn late_pods_that_tolerate_the_cordon_are_left() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    fleet.pause_node("node-1", true).await?;
    let here = json!({"kubernetes.io/hostname": "node-0"});
    let spec = json!({"nodeSelector": here, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}]});
    deploy(&fleet, "stubborn", 1, &[], spec).await?;
    fleet
        .apply(&[budget("default", "stubborn", "stubborn", &json!(1))])
        .await?;
    // The node is not empty in between, however late the controller of the stubborn pod is.
    let slow = json!({"nodeSelector": here, "terminationGracePeriodSeconds": 600});
    deploy(&fleet, "held", 1, &[HOLD], slow).await?;
    let node_0 = node(&fleet, "node-0").await?;
    fleet.publish(NEW)?;
    fleet
        .until_node("node-0", "it is cordoned", |seen| seen.cordoned)
        .await?;
    let cordoned = Timestamp::now();
    let pods = Api::<Pod>::default_namespaced(fleet.client());
    let stubborn = ListParams::default().labels("app=stubborn");
    await_until("a pod came that is not evicted", async || {
        let stays = |pod: &Pod| {
            let made = pod.creation_timestamp().map_or(Timestamp::MAX, |at| at.0);
            made > cordoned && Timestamp::now().duration_since(made) > STAYS
        };
        let pods = pods.list(&stubborn).await.ok()?.items;
        pods.iter().any(stays).then_some(())
    })
    .await?;
    let_go(&fleet).await?;
    fleet.until_runs("node-0", NEW).await?;
    let said = left_pods(&fleet).await?;
    ensure!(
        said.iter()
            .all(|note| note.starts_with("default/stubborn-")),
        "{said:?}"
    );
    let asked = fleet.control_plane.audit().from_start().read()?;
    let evicted = asked
        .iter()
        .filter(|event| event.code() == 201)
        .filter_map(evicted_by_us)
        .filter(|pod| pod.starts_with("default/stubborn"))
        .count();
    // Each that comes within a minute is evicted after 10 s.
    ensure!((2..=7).contains(&evicted), "{evicted} evictions");
    let after = node(&fleet, "node-0").await?;
    ensure!(
        after.annotations() == node_0.annotations(),
        "{:?}",
        after.annotations()
    );
    fleet.check()
}

/// What the Events `PodsLeft` about the Node say, once there is one.
async fn left_pods(fleet: &Fleet) -> Result<Vec<String>> {
    let events = Api::<Event>::default_namespaced(fleet.client());
    let of_node = ListParams::default().fields("involvedObject.name=node-0,reason=PodsLeft");
    let found = await_until("an Event PodsLeft", async || {
        let found = events.list(&of_node).await.ok()?.items;
        let said: Vec<String> = found
            .into_iter()
            .filter_map(|event| event.message)
            .collect();
        (!said.is_empty()).then_some(said)
    });
    found.await
}
