//! What `kubectl get brs -w` shows of an update.

use anyhow::{Result, ensure};
use brupop_testbed::FleetOptions;
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::Seen;

use crate::update::{DEADLINE, fleet_of};

const STEPS: [&str; 5] = ["Staging", "Draining", "Rebooting", "Monitoring", "NoUpdate"];

/// Each step by its word, in order and once. Where one has ended before its word was written, the next one's is.
#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_an_update_is_told_once() -> Result<()> {
    let mut options = FleetOptions::quick(4, &[("MAX_CONCURRENT_UPDATE", "2")]);
    for (name, value) in &mut options.env {
        if name == "SOAK_SECONDS" {
            "1".clone_into(value);
        }
    }
    let mut fleet = fleet_of(&options).await?;
    fleet.deploy("cart", 8, "2").await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW, DEADLINE).await?;
    let all_told = |node: &Seen| node.is_idle() && node.reason == "NoUpdate";
    fleet
        .until("each row says so", DEADLINE, |history| history.now().all(|(_, node)| all_told(node)))
        .await?;
    let history = fleet.history();
    let mut words = 0;
    for (node, _) in history.now() {
        let mut told: Vec<&str> = vec![];
        // Until its first step is told, the row says what the node has waited for.
        let steps = history.past(node).iter().skip_while(|(_, seen)| !STEPS[..4].contains(&&*seen.reason));
        for (_, seen) in steps {
            if told.last() != Some(&seen.reason.as_str()) {
                told.push(&seen.reason);
            }
        }
        let mut steps = STEPS.iter();
        ensure!(told.iter().all(|word| steps.any(|step| step == word)), "{node}: {told:?}");
        words += told.len();
    }
    ensure!(words >= 4 * STEPS.len() - 2, "{words} of {}: too many steps are not told", 4 * STEPS.len());
    drop(history);
    fleet.check()
}
