//! When updates may start, with real processes: a closed window, one node by hand, and a window that opens.

use anyhow::{Result, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate};
use brupop_api::names::UPDATE_NOW_ANNOTATION;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::NEW;
use brupop_testbed::host::Faults;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;

const WINDOW: &str = "SCHEDULER_CRON_EXPRESSION";

#[tokio::test(flavor = "multi_thread")]
async fn updates_start_only_in_their_window() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[("REBOOT_REPEAT_INTERVAL", "1s")]).await?;
    fleet.configure(&[(WINDOW, "0 0 0 1 1 * 2099")]).await?;
    fleet.publish(NEW)?;
    for node in ["node-0", "node-1", "node-2"] {
        fleet.until_waits(node, "OutsideWindow").await?;
        let said = fleet.progressing(node).await?.message;
        ensure!(said.contains("it opens at 2099-01-01T00:00:00Z"), "{said}");
    }
    fleet
        .wait_for_metrics(
            "reconciler",
            &[r#"brupop_nodes_reason{reason="OutsideWindow"} 3"#],
        )
        .await?;

    // A person asks for this one, and gets this one; a leader that begins meanwhile starts no other.
    fleet.hosts[1].set_faults(Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    fleet
        .annotate("node-1", &format!("{UPDATE_NOW_ANNOTATION}=true"))
        .await?;
    fleet
        .until_node("node-1", "is to reboot", |seen| {
            seen.goal == RebootedIntoUpdate
        })
        .await?;
    fleet.configure(&[]).await?;
    fleet.hosts[1].set_faults(Faults::default());
    fleet.until_runs("node-1", NEW).await?;
    fleet.until_no_slot_is_taken().await?;
    let node = Api::<Node>::all(fleet.client()).get("node-1").await?;
    let is_requested = node.annotations().contains_key(UPDATE_NOW_ANNOTATION);
    ensure!(!is_requested, "the request ends with its update");
    for node in ["node-0", "node-2"] {
        ensure!(
            !fleet.history().has_seen(node, |seen| seen.goal != Idle),
            "{node} has begun outside the window"
        );
    }
    fleet.configure(&[(WINDOW, "* * * * * * *")]).await?;
    fleet.until_updated(NEW).await?;
    fleet.check()
}
