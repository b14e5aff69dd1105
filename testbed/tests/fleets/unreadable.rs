//! Objects that the API server takes and that its clients cannot read: one of them costs itself, and what is in it stands
//! in no log.

use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_api::names::{LEASE, shadow_name};
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::History;
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, FleetOptions, await_until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::api::{Api, GetParams, ListParams, PostParams};
use kube::core::request::Request;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

/// Kubernetes takes this time, and serves it as one of the year 10000.
const FAR: &str = "9999-12-31T23:59:59-23:59";
/// The same as a Lease has it.
const FAR_MICRO: &str = "9999-12-31T23:59:59.000000-23:59";
const SECRET: &str = "hunter2-is-nobodys-business";

/// `kubectl patch --type=json`: somebody who may edit the object sets a time in it.
async fn set_time(fleet: &Fleet, object: &[&str], pointer: &str, time: &str) -> Result<()> {
    let patch = format!(r#"[{{"op":"replace","path":"{pointer}","value":"{time}"}}]"#);
    let args =
        ["patch"]
            .into_iter()
            .chain(object.iter().copied())
            .chain(["--type=json", "-p", &patch]);
    let answer = fleet.control_plane.kubectl(args).await?;
    ensure!(answer.contains("patched"), "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_and_nodes_stop_nobody() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[]).await?;
    let secret = format!("PASSWORD={SECRET}");
    fleet.deploy("cart", 3, "1").await?;
    fleet
        .kubectl(&format!("set env -n shop deployment/cart {secret}"))
        .await?;
    fleet.until_rolled_out("shop", "cart").await?;
    let pods = Api::<Pod>::namespaced(fleet.client(), "shop");
    for pod in pods.list(&ListParams::default()).await? {
        set_time(
            &fleet,
            &["pod", "-n", "shop", &pod.name_any()],
            "/metadata/managedFields/0/time",
            FAR,
        )
        .await?;
    }
    set_time(
        &fleet,
        &["pdb", "-n", "shop", "cart"],
        "/metadata/managedFields/0/time",
        FAR,
    )
    .await?;
    // As a kubelet may write its own Node.
    let odd = r#"{"status":{"conditions":[{"type":"Odd","status":"True","reason":"Odd","message":"",
        "lastHeartbeatTime":"9999-12-31T23:59:59-23:59","lastTransitionTime":"9999-12-31T23:59:59-23:59"}]}}"#;
    fleet
        .control_plane
        .kubectl(["patch", "node", "node-1", "--subresource=status", "-p", odd])
        .await?;
    let boot_id = fleet.hosts[1].boot_id();
    // Anyone who starts now has to list all of that.
    fleet.configure(&[]).await?;
    fleet.publish(NEW)?;
    fleet
        .until("the other nodes are updated", |history| {
            history.now().filter(|(_, seen)| seen.runs(NEW)).count() >= 2
        })
        .await?;
    // The API server takes no change of a Node with such a time. Its update is given up before anything is touched.
    fleet
        .until("the odd node says why", |history| {
            history.now().any(|(node, seen)| {
                node == "node-1"
                    && seen.is_idle()
                    && ["BackingOff", "NodeChangesDenied"].contains(&&*seen.reason)
            })
        })
        .await?;
    ensure!(
        fleet.hosts[1].boot_id() == boot_id,
        "the odd node was rebooted"
    );
    let shadow = fleet.shadows().get("brs-node-1").await?;
    let failure = shadow.spec.last_failure.map(|failures| failures.reason);
    ensure!(
        failure.as_deref() == Some("NodeChangesDenied"),
        "{failure:?}"
    );
    for process in fleet.kubelets.processes() {
        let log = fleet.control_plane.log(&process.pod);
        ensure!(!log.contains(SECRET), "{} logged a secret", process.pod);
    }
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_undone_is_told() -> Result<()> {
    let mut options = FleetOptions::quick(3, &[]);
    options.durations.reboot = Duration::from_secs(4);
    let mut fleet = Fleet::start(&options).await?;
    let note = format!("example.org/note={SECRET}");
    fleet
        .kubectl(&format!("annotate node --all {note}"))
        .await?;
    fleet.publish(NEW)?;
    let rebooting = |history: &History| {
        history
            .now()
            .find(|(_, seen)| seen.reason == "Rebooting")
            .map(|(node, _)| node.to_owned())
    };
    let first = await_until("a node reboots", async || rebooting(&fleet.history())).await?;
    let before = fleet
        .shadows()
        .get(&shadow_name(&first))
        .await?
        .spec
        .reboot_granted_boot_id;
    // Nobody puts the node back into service before its kubelet has written this time.
    fleet.signal("reconciler", Signal::STOP);
    let nodes = Api::<Node>::all(fleet.client());
    let ready = await_until("the node is Ready in its next boot", async || {
        let status = nodes.get(&first).await.ok()?.status?;
        let boot_id = Some(status.node_info.as_ref()?.boot_id.clone());
        let ready =
            |condition: &NodeCondition| condition.type_ == "Ready" && condition.status == "True";
        let at = status.conditions.iter().flatten().position(ready)?;
        (boot_id != before).then_some(at)
    })
    .await?;
    let of_ready = format!("/status/conditions/{ready}/lastTransitionTime");
    set_time(
        &fleet,
        &["node", &first, "--subresource=status"],
        &of_ready,
        FAR,
    )
    .await?;
    fleet.signal("reconciler", Signal::CONT);
    fleet
        .until_node(&first, "says why it stays", |seen| {
            seen.reason == "NodeChangesDenied"
        })
        .await?;
    for PodProcess { pod, .. } in fleet.processes("reconciler") {
        ensure!(
            !fleet.control_plane.log(&pod).contains(SECRET),
            "{pod} logged what stands in the Node"
        );
    }
    set_time(
        &fleet,
        &["node", &first, "--subresource=status"],
        &of_ready,
        "2026-11-26T00:00:00Z",
    )
    .await?;
    fleet
        .until_node(&first, "is updated", |seen| {
            seen.is_idle() && seen.runs(NEW)
        })
        .await?;
    fleet.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_leads_whatever_the_lease_says() -> Result<()> {
    let mut fleet = Fleet::quick(1, &[]).await?;
    let term = fleet.term().await?;
    fleet.scale("reconciler", 0).await?;
    let leases = Request::new(Lease::url_path(&(), Some(NAMESPACE)));
    let mut lease: Value = fleet
        .client()
        .request(leases.get(LEASE, &GetParams::default())?)
        .await?;
    lease["spec"] = json!({"holderIdentity": "nobody", "leaseDurationSeconds": 3, "leaseTransitions": 1,
        "renewTime": FAR_MICRO, "acquireTime": FAR_MICRO});
    lease["metadata"]["finalizers"] = json!(["example.org/never"]);
    lease["metadata"]["annotations"] = json!({"planted": "x"});
    lease["metadata"]["managedFields"][0]["time"] = json!(FAR);
    let odd = leases.replace(LEASE, &PostParams::default(), serde_json::to_vec(&lease)?)?;
    fleet.client().request::<Value>(odd).await?;
    fleet.scale("reconciler", 2).await?;
    fleet.next_term(term).await?;
    let lease = fleet
        .kubectl(&format!("get lease -n {NAMESPACE} {LEASE} -o yaml"))
        .await?;
    ensure!(
        !lease.contains("example.org/never") && !lease.contains("planted"),
        "{lease}"
    );
    fleet.check()
}
