//! The webhook is dead in mid-update: what has begun comes back into service, and nothing else begins.

use anyhow::{Result, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate};
use brupop_api::conditions::{ADMISSION_ENFORCED, ConditionStatus};
use brupop_api::names::{UPDATING_TAINT, shadow_name};
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Seen;
use brupop_testbed::host::Faults;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use serde_json::json;

use crate::update::assert_kind;

/// In mid-update when the webhook dies.
const REBOOTING: [&str; 3] = ["node-0", "node-1", "node-2"];
/// Held back by people until then.
const WAITING: [&str; 2] = ["node-3", "node-4"];

#[tokio::test(flavor = "multi_thread")]
async fn rebooting_nodes_recover_while_the_webhook_is_down() -> Result<()> {
    let env = [
        ("MAX_CONCURRENT_UPDATE", "unlimited"),
        ("REBOOT_REPEAT_INTERVAL", "1s"),
        ("CHECK_INTERVAL_SECONDS", "2"),
        ("LINGER_SECONDS", "0"),
    ];
    let mut fleet = Fleet::quick(REBOOTING.len() + WAITING.len(), &env).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 8}}))
        .await?;
    fleet.deploy("cart", 5, "3").await?;
    fleet.set_faults(&Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    pause_waiting(&fleet, true).await?;
    fleet.publish(NEW)?;
    three_wait_for_their_reboot(&fleet).await?;

    fleet.scale("webhook", 0).await?;
    until_admission_is(&fleet, ConditionStatus::False).await?;
    let mut audit = fleet.control_plane.audit().from_now();
    fleet.set_faults(&Faults::default());
    fleet
        .until("three nodes are back in service", |history| {
            let back = |seen: &Seen| {
                !seen.is_unavailable()
                    && seen.goal == RebootedIntoUpdate
                    && seen.version.as_deref() == Some(OLD)
            };
            let rebooted = history
                .now()
                .filter(|(node, seen)| REBOOTING.contains(node) && back(seen));
            rebooted.count() == REBOOTING.len()
        })
        .await?;
    for node in REBOOTING {
        ensure!(
            keeps_pods_away(&fleet, node).await? == (false, false),
            "pods are kept away from {node}"
        );
    }
    agents_are_refused(&mut audit).await?;

    pause_waiting(&fleet, false).await?;
    two_are_held_back_for_want_of_admission(&fleet).await?;
    let slots = fleet
        .ledger()
        .get("fleet")
        .await?
        .status
        .unwrap_or_default()
        .slots;
    ensure!(
        slots.keys().eq(REBOOTING.map(shadow_name).iter()),
        "{slots:?}"
    );
    for node in WAITING {
        let begun = fleet.history().has_seen(node, |seen| {
            seen.goal != Idle || seen.cordoned || seen.marked
        });
        ensure!(!begun, "{node} has begun to move: {:?}", fleet.seen(node)?);
    }

    fleet.scale("webhook", 2).await?;
    fleet.until_updated(NEW).await?;
    until_admission_is(&fleet, ConditionStatus::True).await?;
    assert_kind(&fleet, REBOOTING.len())?;
    fleet.check()
}

async fn pause_waiting(fleet: &Fleet, paused: bool) -> Result<()> {
    for node in WAITING {
        fleet.pause_node(node, paused).await?;
    }
    Ok(())
}

/// Drained, tainted, the reboot claimed and asked for, and the hosts do nothing yet.
async fn three_wait_for_their_reboot(fleet: &Fleet) -> Result<()> {
    let asked = |node: &str| {
        let host = REBOOTING
            .iter()
            .position(|name| *name == node)
            .and_then(|n| fleet.hosts.get(n));
        host.is_some_and(|host| host.count("reboot") > 0)
    };
    fleet
        .until("three nodes wait for their reboot", |history| {
            let waiting = |node: &str, seen: &Seen| {
                seen.goal == RebootedIntoUpdate && seen.cordoned && seen.drained && asked(node)
            };
            history
                .now()
                .filter(|(node, seen)| waiting(node, seen))
                .count()
                == REBOOTING.len()
        })
        .await?;
    for node in REBOOTING {
        ensure!(
            keeps_pods_away(fleet, node).await? == (true, true),
            "{node} is not cordoned and tainted"
        );
    }
    Ok(())
}

/// Cordoned, and tainted by us. The marker may stay: it says whose pods were evicted.
async fn keeps_pods_away(fleet: &Fleet, node: &str) -> Result<(bool, bool)> {
    let spec = Api::<Node>::all(fleet.client())
        .get(node)
        .await?
        .spec
        .unwrap_or_default();
    let tainted = spec
        .taints
        .iter()
        .flatten()
        .any(|taint| taint.key == UPDATING_TAINT);
    Ok((spec.unschedulable == Some(true), tainted))
}

/// The reconciler's finding, as it stands on the fleet.
async fn until_admission_is(fleet: &Fleet, status: ConditionStatus) -> Result<()> {
    let ledger = fleet.ledger();
    await_until(format!("{ADMISSION_ENFORCED} is {status:?}"), async || {
        let conditions = ledger.get("fleet").await.ok()?.status?.conditions;
        conditions
            .iter()
            .any(|found| found.type_ == ADMISSION_ENFORCED && found.status == status)
            .then_some(())
    })
    .await
}

/// Their reports since then have met the webhook that is not there.
async fn agents_are_refused(audit: &mut AuditReader) -> Result<()> {
    let mut left = REBOOTING.map(shadow_name).to_vec();
    let refused = |event: &Event| {
        let fails = event.code() == 500 && event.message().contains("failed calling webhook");
        if event.is_by("brupop-agent") && fails {
            left.retain(|shadow| !event.is_about("bottlerocketshadows", shadow));
        }
        left.is_empty()
    };
    audit
        .wait_for("refusals of all three agents", refused)
        .await?;
    Ok(())
}

/// The leader would start them, and says why it does not.
async fn two_are_held_back_for_want_of_admission(fleet: &Fleet) -> Result<()> {
    let lines = [
        "brupop_admission_enforced 0",
        r#"brupop_nodes_reason{reason="AdmissionNotEnforced"} 2"#,
    ];
    fleet.wait_for_metrics("reconciler", &lines).await
}
