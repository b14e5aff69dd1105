//! Objects that the API server takes and that its clients cannot read: one of them costs itself, and what is in it stands
//! in no log.

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;
use brupop_testbed::fleet::NEW;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

/// Kubernetes takes this time, and serves it as one of the year 10000.
const FAR: &str = "9999-12-31T23:59:59-23:59";
const SECRET: &str = "hunter2-is-nobodys-business";

/// `kubectl patch --type=json`: a tenant who may edit the object sets a time in it.
async fn set_time(fleet: &Fleet, kind: &str, name: &str) -> Result<()> {
    let pointer = "/metadata/managedFields/0/time";
    let patch = format!(r#"[{{"op":"replace","path":"{pointer}","value":"{FAR}"}}]"#);
    let args = [
        "patch",
        kind,
        "-n",
        "shop",
        name,
        "--type=json",
        "-p",
        &patch,
    ];
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
        set_time(&fleet, "pod", &pod.name_any()).await?;
    }
    set_time(&fleet, "pdb", "cart").await?;
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
