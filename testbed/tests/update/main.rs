//! Whole updates: the shipped programs and manifests on a real control plane, with simulated hosts.
//!
//! One fleet at a time: each takes both cores of a small machine.

mod kills;
mod passed_over;
mod quiet;
mod recovery;
mod roll_out;
mod trouble;
mod workloads;

use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::history::Seen;
use brupop_testbed::host::Durations;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::{Fleet, FleetOptions};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

const DEADLINE: Duration = Duration::from_mins(2);
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The shipped configuration, with the patience of a test.
fn quick() -> Vec<(String, String)> {
    [
        ("SOAK_SECONDS", "0"),
        ("REFRESH_INTERVAL", "1s"),
        ("START_JITTER", "0s"),
        ("POLL_INTERVAL", "20ms"),
        ("LEASE_DURATION_SECONDS", "3"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn with(mut env: Vec<(String, String)>, name: &str, value: &str) -> Vec<(String, String)> {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.to_owned()));
    env
}

/// A fleet of hosts on which a command takes `moment`, and a reboot 600 ms.
async fn fleet_with_moments_of(
    moment: Duration,
    nodes: usize,
    env: Vec<(String, String)>,
) -> Result<(MutexGuard<'static, ()>, Fleet)> {
    let alone = ONE_AT_A_TIME.lock().await;
    let durations = Durations {
        refresh: Duration::from_millis(50),
        prepare: moment,
        activate: moment,
        deactivate: moment,
        reboot: Duration::from_millis(600),
    };
    Ok((alone, Fleet::start(&FleetOptions { nodes, env, durations }, |_| ()).await?))
}

async fn fleet(nodes: usize, env: Vec<(String, String)>) -> Result<(MutexGuard<'static, ()>, Fleet)> {
    fleet_with_moments_of(Duration::from_millis(200), nodes, env).await
}

/// Every node was rebooted exactly once, and never more of them were away than allowed.
fn assert_kind(fleet: &Fleet, limit: usize) -> Result<()> {
    let history = fleet.history();
    for (node, outcome) in history.outcomes() {
        ensure!(outcome.boots == 2, "{node} was rebooted {} times", outcome.boots - 1);
    }
    ensure!(history.most_unavailable() <= limit, "{} nodes were away at once", history.most_unavailable());
    Ok(())
}

/// What is known of this node now.
fn seen(fleet: &Fleet, node: &str) -> Result<Seen> {
    let history = fleet.history();
    let seen = history.now().find(|(name, _)| *name == node).map(|(_, seen)| seen.clone());
    seen.with_context(|| format!("{node} is not known"))
}

/// The reconciler's program, run by a person who may do everything.
async fn reconciler(fleet: &Fleet, arguments: &[&str]) -> Result<Output> {
    let program = binaries(&["brupop-reconciler"])?.join("brupop-reconciler");
    let output = Command::new(program)
        .args(arguments)
        .args(["-n", NAMESPACE])
        .env_clear()
        .env("KUBECONFIG", fleet.control_plane.kubeconfig())
        .env("CANARY_INTERVAL_SECONDS", "5")
        .env("MIN_NODE_AGE_SECONDS", "0")
        .kill_on_drop(true)
        .output()
        .await?;
    Ok(output)
}
