//! A new release: both machines are updated, one after the other, and nobody is hurt.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::HostPower;
use brupop_testbed::machines::processes::running;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::as_shipped::indented;
use crate::cluster::Cluster;
use crate::shop::Shop;

const DEADLINE: Duration = Duration::from_mins(8);

pub async fn see(cluster: &mut Cluster) -> Result<()> {
    let shop = std::sync::Arc::new(Shop::open(cluster).await?);
    let mut reboots = JoinSet::new();
    for machine in &cluster.machines {
        reboots.spawn(pods_at_reboot(
            machine.name().to_owned(),
            machine.host().power(),
            shop.clone(),
        ));
    }
    let before = running("/brupop-agent")?;
    // New machines are not Ready for a moment, all at once.
    let began = Instant::now();

    println!(
        "-- Bottlerocket {NEW} is out, every host runs {OLD}; nodes so young are updated when a person asks for it:"
    );
    let ask = "annotate node --all brupop.bottlerocket.aws/update-now=true";
    println!("   kubectl {ask}");
    cluster.kubectl(ask).await?;
    cluster
        .until("every machine runs the new version", DEADLINE, |history| {
            history.now().count() > 0 && history.now().all(|(_, seen)| seen.runs(NEW))
        })
        .await?;

    println!("{}", indented(&cluster.kubectl("get brs").await?));
    while let Some(seen) = reboots.join_next().await {
        let (machine, pods) = seen??;
        println!("   {machine}: {pods} pods of the shop were on it when its host went down");
        ensure!(pods == 0, "{machine} was rebooted undrained");
    }
    shop.judge()?;
    judge(cluster, began).await?;
    let after = running("/brupop-agent")?;
    ensure!(
        after
            .iter()
            .all(|agent| before.iter().all(|old| old.pid != agent.pid)),
        "an agent outlived the reboot of its node"
    );
    Ok(())
}

/// Waits until the host goes down. Returns the number of the shop's pods at that time.
async fn pods_at_reboot(
    machine: String,
    mut power: tokio::sync::watch::Receiver<HostPower>,
    shop: std::sync::Arc<Shop>,
) -> Result<(String, usize)> {
    power
        .wait_for(|power| *power == HostPower::Down)
        .await
        .context("the host is gone")?;
    let pods = shop.pods_on(&machine).await?;
    Ok((machine, pods))
}

async fn judge(cluster: &Cluster, began: Instant) -> Result<()> {
    for (node, outcome) in cluster.history().outcomes() {
        let took = outcome.duration.context("no end")?.as_secs();
        println!(
            "   {node}: {OLD} -> {NEW} in {took} s, of which {} s of drain",
            outcome.drain.as_secs()
        );
        ensure!(
            outcome.boots == 2,
            "{node} was rebooted {} times",
            outcome.boots - 1
        );
        ensure!(
            outcome.to.as_deref() == Some(NEW),
            "{node} runs {:?}",
            outcome.to
        );
    }
    let slots = cluster.history().most_slots();
    let away = cluster.history().most_unavailable_since(began);
    ensure!(
        slots == 1 && away <= 1,
        "{slots} slots were taken and {away} nodes away at once"
    );
    // What the kubelet itself has read of its machine.
    for machine in &cluster.machines {
        let node = Api::<Node>::all(cluster.client())
            .get(machine.name())
            .await?;
        let info = node
            .status
            .and_then(|status| status.node_info)
            .context("no facts of the node")?;
        let host = machine.host();
        ensure!(
            info.boot_id == host.boot_id() && info.os_image == host.pretty_name(),
            "{}: {info:?}",
            machine.name()
        );
        println!(
            "   {}: {}, boot {}, {}",
            machine.name(),
            info.os_image,
            info.boot_id,
            info.container_runtime_version
        );
    }
    Ok(())
}
