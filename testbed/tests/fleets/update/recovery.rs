//! The webhook is dead in mid-update: what has begun comes back into service, and nothing else begins.

use anyhow::{Result, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate};
use brupop_api::conditions::{ADMISSION_ENFORCED, ConditionStatus};
use brupop_api::names::{FLEET, UPDATING_TAINT};
use brupop_testbed::Fleet;
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Faults;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use crate::went_well::assert_kind;

#[tokio::test(flavor = "multi_thread")]
async fn rebooting_nodes_recover_while_the_webhook_is_down() -> Result<()> {
    let env = [
        ("MAX_CONCURRENT_UPDATE", "2"),
        ("REBOOT_REPEAT_INTERVAL", "1s"),
        ("CHECK_INTERVAL_SECONDS", "2"),
        ("LINGER_SECONDS", "0"),
    ];
    let mut fleet = Fleet::quick(2, &env).await?;
    fleet.set_faults(&Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    fleet.pause_node("node-1", true).await?;
    fleet.publish(NEW)?;
    fleet
        .until_node("node-0", "waits for its reboot", |seen| {
            let asked = fleet.hosts[0].count("reboot") > 0;
            seen.goal == RebootedIntoUpdate && seen.cordoned && seen.drained && asked
        })
        .await?;
    ensure!(is_tainted(&fleet).await?, "pods may come to node-0");

    fleet.scale("webhook", 0).await?;
    until_admission_is(&fleet, ConditionStatus::False).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.set_faults(&Faults::default());
    // Its agent cannot report that it runs the new version.
    fleet
        .until_node("node-0", "is back in service", |seen| {
            !seen.is_unavailable()
                && seen.goal == RebootedIntoUpdate
                && seen.version.as_deref() == Some(OLD)
        })
        .await?;
    ensure!(!is_tainted(&fleet).await?, "pods are kept away from node-0");
    let is_refused = |event: &Event| {
        event.is_by("brupop-agent")
            && event.is_about("bottlerocketshadows", "brs-node-0")
            && event.code() == 500
            && event.message().contains("failed calling webhook")
    };
    audit.wait_for("a report is refused", is_refused).await?;

    fleet.pause_node("node-1", false).await?;
    let lines = [
        "brupop_admission_enforced 0",
        r#"brupop_nodes_reason{reason="AdmissionNotEnforced"} 1"#,
    ];
    fleet.wait_for_metrics("reconciler", &lines).await?;
    let slots = fleet.ledger().get(FLEET).await?.status.unwrap_or_default();
    ensure!(slots.slots.keys().eq(["brs-node-0"]), "{slots:?}");
    let begun = fleet.history().has_seen("node-1", |seen| {
        seen.goal != Idle || seen.cordoned || seen.marked
    });
    ensure!(!begun, "node-1 has begun: {:?}", fleet.seen("node-1")?);

    fleet.scale("webhook", 2).await?;
    fleet.until_updated(NEW).await?;
    until_admission_is(&fleet, ConditionStatus::True).await?;
    assert_kind(&fleet, 2)?;
    fleet.check()
}

/// Is node-0 tainted by us? Its marker may stay: it says whose pods were evicted.
async fn is_tainted(fleet: &Fleet) -> Result<bool> {
    let node = Api::<Node>::all(fleet.client()).get("node-0").await?;
    let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    Ok(taints.iter().any(|taint| taint.key == UPDATING_TAINT))
}

/// The reconciler's finding, as it stands on the fleet.
async fn until_admission_is(fleet: &Fleet, is: ConditionStatus) -> Result<()> {
    fleet
        .until_ledger(&format!("{ADMISSION_ENFORCED} is {is:?}"), |status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|found| found.type_ == ADMISSION_ENFORCED && found.status == is)
        })
        .await
        .map(drop)
}
