//! `make demo PREFETCH=true`: the next release is downloaded while the nodes wait for their turn, and a slot is shorter
//! by that.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::History;
use brupop_testbed::median;
use brupop_testbed::operator::{apply_overlay, throw_away_overlay};
use brupop_testbed::run::told;
use brupop_testbed::{Fleet, await_within};
use kube::api::ListParams;
use serde_json::json;

use crate::{kubectl, table};

/// The release that is downloaded ahead.
const NEXT: &str = "1.20.1";
/// A window that stays shut for as long as a demo lasts.
const SHUT: &str = "0 0 0 1 1 * 2099";
const OPEN: &str = "* * * * * * *";

/// Goes on where every node runs [`NEW`], downloaded within its slot; is all of it as it should be?
pub async fn show(fleet: &Fleet, download: Duration, deadline: Duration) -> Result<bool> {
    println!(
        "\n-- the same again with PREFETCH=true, and a window that is shut: an overlay that sets both is applied, and \
         agents and reconcilers roll. (In a fleet that is paused nothing would be downloaded.)"
    );
    roll_out(fleet, "shut", SHUT, deadline).await?;
    println!("-- publishing Bottlerocket {NEXT}");
    fleet.publish(NEXT)?;
    let shadows = fleet.shadows();
    await_within(deadline, "every host has downloaded it", async || {
        let shadows = shadows.list(&ListParams::default()).await.ok()?;
        let ahead = |shadow: &brupop_api::BottlerocketShadow| {
            let staged = shadow.status.as_ref().and_then(|status| status.staged.as_ref());
            staged.is_some_and(|staged| staged.prefetched && staged.version == NEXT)
        };
        shadows.iter().all(ahead).then_some(())
    })
    .await?;
    let columns = "custom-columns=NAME:.metadata.name,RUNS:.status.current_version,STATE:.spec.state,\
                   DOWNLOADED:.status.staged.version";
    kubectl(fleet, &["get", "brs", "-o", columns]).await?;
    let in_service = fleet.history().now().all(|(_, seen)| seen.is_idle() && !seen.is_unavailable());

    println!("-- the window opens");
    roll_out(fleet, "open", OPEN, deadline).await?;
    table::show_until_updated(fleet, NEXT, deadline).await?;

    let without = slot(&fleet.history(), 0).context("no update without PREFETCH")?;
    let with = slot(&fleet.history(), 1).context("no update with PREFETCH")?;
    let seconds = |duration: Duration| format!("{:.2} s", duration.as_secs_f64());
    println!(
        "\na slot of one node, from the first change of its spec to Idle (median; a download takes {}):",
        seconds(download)
    );
    println!("  without PREFETCH, {NEW}: {:>8}", seconds(without));
    println!("  with PREFETCH, {NEXT}:    {:>8}", seconds(with));
    println!("  saved:                   {:>8}", seconds(without.saturating_sub(with)));
    let checks = [
        (in_service, "while it was downloaded every node was in service, and ran what it had run".to_owned()),
        (
            fleet.hosts.iter().all(|host| host.count("prepare-update") == 2),
            "no host downloaded a release twice".to_owned(),
        ),
        (
            with + download.mul_f64(0.7) <= without,
            "a slot with PREFETCH is shorter by most of what a download takes".to_owned(),
        ),
    ];
    Ok(told(&checks))
}

/// Applies an overlay with PREFETCH and this window, and awaits that nothing runs any more that knows another one.
async fn roll_out(fleet: &Fleet, name: &str, window: &str, deadline: Duration) -> Result<()> {
    let set = |map: &str, variable: &str, value: &str| {
        let add = json!([{"op": "add", "path": format!("/data/{variable}"), "value": value}]);
        json!({"target": {"kind": "ConfigMap", "name": map}, "patch": add.to_string()})
    };
    let overlay = json!({
        "resources": ["kustomize/overlays/default"],
        "patches": [
            set("brupop-agent-configuration", "PREFETCH", "true"),
            set("brupop-configuration", "SCHEDULER_CRON_EXPRESSION", window),
        ],
    });
    let reconcilers = || fleet.processes("reconciler").into_iter().map(|process| process.pod);
    let before: Vec<String> = reconcilers().collect();
    let overlay = throw_away_overlay(&fleet.control_plane, name, overlay)?;
    apply_overlay(&fleet.control_plane, overlay).await?;
    for workload in ["daemonset/brupop-agent", "deployment/brupop-reconciler"] {
        kubectl(fleet, &["rollout", "status", workload, "--timeout=120s"]).await?;
    }
    await_within(deadline, "the reconcilers of before are gone", async || {
        reconcilers().all(|pod| !before.contains(&pod)).then_some(())
    })
    .await
}

/// How long the nodes' updates of this number took; the middle one.
fn slot(history: &History, number: usize) -> Option<Duration> {
    let nodes: Vec<String> = history.now().map(|(node, _)| node.to_owned()).collect();
    let duration = |node: &String| {
        let (began, ended) = *history.updates(node).get(number)?;
        Some(ended?.saturating_duration_since(began))
    };
    median(nodes.iter().filter_map(duration))
}
