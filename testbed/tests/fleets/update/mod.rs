//! Whole updates: the shipped programs and manifests on a real control plane, with simulated hosts.

pub mod exec;
mod other_operator;
mod passed_over;
mod quiet;
mod recovery;
mod roll_out;
mod workloads;

use anyhow::{Result, ensure};
use brupop_testbed::Fleet;

/// Every node was rebooted exactly once, and never more of them were away than allowed.
fn assert_kind(fleet: &Fleet, limit: usize) -> Result<()> {
    let history = fleet.history();
    for (node, outcome) in history.outcomes() {
        ensure!(
            outcome.boots == 2,
            "{node} was rebooted {} times",
            outcome.boots - 1
        );
    }
    ensure!(
        history.most_unavailable() <= limit,
        "{} nodes were away at once",
        history.most_unavailable()
    );
    Ok(())
}
