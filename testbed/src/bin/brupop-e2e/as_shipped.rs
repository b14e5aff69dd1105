//! Confinement, limits and probes are in force, as the manifests have them.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::machines::processes::{Confined, running};
use serde_json::Value;

use crate::cluster::Cluster;

/// Program, the object that describes its pods, and its supplementary groups.
const PROGRAMS: [(&str, &str, &[u32]); 3] = [
    ("/brupop-agent", "daemonset/brupop-agent", &[274]),
    ("/brupop-reconciler", "deployment/brupop-reconciler", &[]),
    ("/brupop-webhook", "deployment/brupop-webhook", &[]),
];
/// As distroless images have it.
const NOBODY: u32 = 65532;

pub async fn see(cluster: &Cluster, plugin: &Path) -> Result<()> {
    println!("-- what the kernel says of the containers' processes");
    for (program, object, groups) in PROGRAMS {
        let limit = "-o=jsonpath={.spec.template.spec.containers[0].resources.limits.memory}";
        let limit = cluster.kubectl(&format!("get {object} {limit}")).await?;
        let limit = mebibytes(&limit)?;
        let processes = running(program)?;
        ensure!(processes.len() == 2, "{program}: {processes:?}");
        for process in &processes {
            check(program, process, groups, limit)?;
        }
        let resident = processes
            .iter()
            .map(|process| process.resident)
            .max()
            .unwrap_or(0);
        println!(
            "   {program}: uid {NOBODY}, groups {groups:?}, no capabilities, no new privileges, seccomp, read-only \
             root, {:.1} of {} MiB",
            float(resident),
            limit >> 20
        );
    }
    let counts = "-o=jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let restarts = cluster.kubectl(&format!("get pods {counts}")).await?;
    ensure!(
        restarts.split_whitespace().all(|count| count == "0"),
        "containers were restarted: {restarts}"
    );

    let exec = "exec deploy/brupop-reconciler -- /brupop-reconciler plan";
    println!("-- kubectl {exec}");
    let plan = cluster.kubectl(exec).await?;
    ensure!(
        cluster
            .machines
            .iter()
            .all(|machine| plan.contains(machine.name())),
        "no plan: {plan}"
    );
    println!("{}", indented(&plan));
    plan_by_plugin(cluster, plugin).await?;
    let log = cluster
        .kubectl("logs deploy/brupop-webhook --tail=3")
        .await?;
    ensure!(!log.is_empty(), "the webhook has no log");
    println!("-- kubectl logs deploy/brupop-webhook\n{}", indented(&log));
    Ok(())
}

/// The plugin finds the pod that leads, and speaks with the program in it over a WebSocket.
async fn plan_by_plugin(cluster: &Cluster, plugin: &Path) -> Result<()> {
    println!("-- kubectl brupop plan -o json");
    let plan = cluster
        .control_plane
        .run_plugin(plugin, &["plan", "-o", "json"])
        .await?;
    let plan: Value = serde_json::from_str(&plan)?;
    let nodes = plan["nodes"].as_array().context("no nodes")?;
    let planned = |name: &str| nodes.iter().any(|node| node["node"] == name);
    ensure!(
        cluster
            .machines
            .iter()
            .all(|machine| planned(machine.name())),
        "no plan: {plan}"
    );
    println!("   {} nodes, limit {}", nodes.len(), plan["limit"]);
    Ok(())
}

fn check(program: &str, process: &Confined, groups: &[u32], limit: u64) -> Result<()> {
    // The kubelet adds the pod's own group, if it has one.
    let own: Vec<u32> = process
        .groups
        .iter()
        .copied()
        .filter(|&group| group != NOBODY)
        .collect();
    ensure!(
        process.uid == NOBODY && own == groups,
        "{program}: {process:?}"
    );
    ensure!(
        process.capabilities == 0,
        "{program} has capabilities: {process:?}"
    );
    ensure!(
        process.no_new_privileges && process.seccomp && process.read_only_root,
        "{program}: {process:?}"
    );
    ensure!(
        process.memory_limit == Some(limit),
        "{program} is not limited to {limit} bytes: {process:?}"
    );
    Ok(())
}

/// A quantity such as `48Mi`, in bytes.
fn mebibytes(quantity: &str) -> Result<u64> {
    let number = quantity
        .strip_suffix("Mi")
        .with_context(|| format!("not in Mi: {quantity:?}"))?;
    Ok(number.parse::<u64>()? << 20)
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn float(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("   {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
