//! Leaders that end, freeze, crash and disagree: the shipped reconciler on a real control plane, started and ended here.
//!
//! One fleet at a time: each takes both cores of a small machine.

mod by_hand;
mod crashes;
mod disagreement;
mod hand_over;
mod written;

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions, await_until};
use tokio::sync::{Mutex, MutexGuard};

const DEADLINE: Duration = Duration::from_mins(2);
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A fleet whose own reconcilers have made the shadows and are gone.
async fn fleet(nodes: usize, env: &[(&str, &str)]) -> Result<(MutexGuard<'static, ()>, Fleet)> {
    let alone = ONE_AT_A_TIME.lock().await;
    let fleet = Fleet::start(&FleetOptions::quick(nodes, env), |_| ()).await?;
    let scale = ["-n", NAMESPACE, "scale", "deployment", "brupop-reconciler", "--replicas=0"];
    fleet.control_plane.kubectl(scale).await?;
    await_until("the end of the fleet's own reconcilers", DEADLINE, async || {
        fleet.processes("reconciler").is_empty().then_some(())
    })
    .await?;
    Ok((alone, fleet))
}
