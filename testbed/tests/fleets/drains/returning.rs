//! Pods that come back to a cordoned node.

use anyhow::{Context as _, Result, ensure};
use brupop_api::names;
use brupop_testbed::fleet::NEW;
use brupop_testbed::objects::budget;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, await_until};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::drains::held::{HOLD, let_go};
use crate::drains::{deploy, evicted_by_us, node, own_pods};

/// A pod that is evicted does not stay so long.
const STAYS: SignedDuration = SignedDuration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn late_pods_that_tolerate_the_cordon_are_left() -> Result<()> {
    let mut fleet = Fleet::quick(2, &[]).await?;
    // The drain of the leader's node would end with another leader, which begins with a list of its own.
    let leaders_node = leaders_node(&fleet).await?;
    fleet.pause_node(&leaders_node, true).await?;
    let name = if leaders_node == "node-0" {
        "node-1"
    } else {
        "node-0"
    };
    let here = json!({"kubernetes.io/hostname": name});
    let spec = json!({"nodeSelector": here, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}]});
    deploy(&fleet, "stubborn", 1, &[], spec).await?;
    fleet
        .apply(&[budget("default", "stubborn", "stubborn", &json!(1))])
        .await?;
    // The node is not empty in between, however late the controller of the stubborn pod is.
    let slow = json!({"nodeSelector": here, "terminationGracePeriodSeconds": 600});
    deploy(&fleet, "held", 1, &[HOLD], slow).await?;
    let before = node(&fleet, name).await?;
    fleet.publish(NEW)?;
    fleet
        .until_node(name, "it is cordoned", |seen| seen.cordoned)
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
    fleet.until_runs(name, NEW).await?;
    fleet
        .wait_for_event(name, "PodsLeft", "default/stubborn-")
        .await?;
    let asked = fleet.control_plane.audit().from_start().read()?;
    let evicted = asked
        .iter()
        .filter(|event| event.code() == 201)
        .filter_map(evicted_by_us)
        .filter(|pod| pod.starts_with("default/stubborn"))
        .count();
    // Each that comes within a minute is evicted after 10 s.
    ensure!((2..=7).contains(&evicted), "{evicted} evictions");
    let after = node(&fleet, name).await?;
    ensure!(
        after.annotations() == before.annotations(),
        "{:?}",
        after.annotations()
    );
    fleet.check()
}

/// The node that runs the leader.
async fn leaders_node(fleet: &Fleet) -> Result<String> {
    let leases = Api::<Lease>::namespaced(fleet.client(), NAMESPACE);
    let spec = leases.get(names::LEASE).await?.spec;
    let holder = spec
        .and_then(|spec| spec.holder_identity)
        .context("nobody leads")?;
    own_pods(fleet).await?.remove(&holder).context(holder)
}
