//! Leaders that end, freeze, crash and disagree: the shipped reconciler on a real control plane, started and ended here.

mod by_hand;
mod crashes;
mod disagreement;
mod hand_over;
mod written;

use anyhow::Result;
use brupop_testbed::Fleet;

/// A fleet whose own reconcilers have made the shadows and are gone.
async fn fleet(nodes: usize, env: &[(&str, &str)]) -> Result<Fleet> {
    let fleet = Fleet::quick(nodes, env).await?;
    fleet.scale("reconciler", 0).await?;
    Ok(fleet)
}
