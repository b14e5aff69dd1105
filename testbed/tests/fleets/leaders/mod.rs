//! Leaders that end, freeze, crash and disagree: the shipped reconciler on a real control plane, started and ended here.

mod by_hand;
mod crashes;
mod disagreement;
mod hand_over;
mod written;

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions, await_until};

const DEADLINE: Duration = Duration::from_mins(2);

/// A fleet whose own reconcilers have made the shadows and are gone.
async fn fleet(nodes: usize, env: &[(&str, &str)]) -> Result<Fleet> {
    let fleet = Fleet::start(&FleetOptions::quick(nodes, env), |_| ()).await?;
    let scale = ["-n", NAMESPACE, "scale", "deployment", "brupop-reconciler", "--replicas=0"];
    fleet.control_plane.kubectl(scale).await?;
    await_until("the end of the fleet's own reconcilers", DEADLINE, async || {
        fleet.processes("reconciler").is_empty().then_some(())
    })
    .await?;
    Ok(fleet)
}
