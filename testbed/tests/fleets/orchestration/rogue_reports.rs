//! Agents that report falsely with their own tokens, as far as webhook and policy allow: only their own nodes' updates suffer.

use anyhow::{Result, ensure};
use brupop_api::State::{Idle, MonitoringUpdate, StagedAndPerformedUpdate};
use brupop_api::fleet::VersionRecord;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::Records as _;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Faults;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::orchestration::failures;
use crate::orchestration::rogue_agent::{RogueAgent, freeze};

/// A release that does not exist.
const NONSENSE: &str = "9.9.9";
/// A release that no host comes up with.
const BAD: &str = "1.21.0";

/// The claim of a reboot that is never made keeps its slot; the other three are free for anyone who wants them. Deadlines
/// hold for honest nodes, too.
const ENV: [(&str, &str); 7] = [
    ("MAX_CONCURRENT_UPDATE", "4"),
    ("STAGE_DEADLINE_SECONDS", "15"),
    ("REBOOT_DEADLINE_SECONDS", "15"),
    ("SETTLE_DEADLINE_SECONDS", "10"),
    ("BACK_OFF_BASE_SECONDS", "1"),
    ("SOAK_SECONDS", "1"),
    ("CHECK_INTERVAL_SECONDS", "10"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_rogue_agent_harms_only_its_own_update() -> Result<()> {
    let mut fleet = Fleet::quick(8, &ENV).await?;
    let [fails, succeeds, nonsense, claims, silent] = [
        RogueAgent::replace(&fleet, "node-0").await?,
        RogueAgent::replace(&fleet, "node-1").await?,
        RogueAgent::replace(&fleet, "node-2").await?,
        RogueAgent::replace(&fleet, "node-3").await?,
        RogueAgent::replace(&fleet, "node-4").await?,
    ];
    // All four slots go to rogue agents, and are given back, except for one.
    tokio::try_join!(
        says_it_has_rebooted(&fleet, &succeeds),
        wants_what_does_not_exist(&fleet, &nonsense),
        claims_its_reboot(&fleet, &claims),
        never_answers(&fleet, &silent),
    )?;
    let status = fleet
        .until_ledger("one slot is kept", |status| status.slots.len() == 1)
        .await?;
    ensure!(
        status.slots.contains_key("brs-node-3") && status.versions.iter().all(has_no_outcome),
        "{status:?}"
    );

    // The rest of the fleet goes on meanwhile.
    for host in &fleet.hosts[5..] {
        host.publish(NEW)?;
    }
    tokio::try_join!(
        fails_again_and_again(&fails),
        never_says_idle(&fleet, "node-5"),
        async {
            for node in ["node-6", "node-7"] {
                fleet.until_runs(node, NEW).await?;
            }
            Ok(())
        }
    )?;
    let status = fleet.until_ledger(
        "the slot of the update that nobody ended is given back",
        |status| status.slots.keys().eq(["brs-node-3"]),
    );
    let status = status.await?;
    ensure!(
        status.halted_versions.is_none()
            && status
                .versions
                .iter()
                .all(|record| record.version == NEW || has_no_outcome(record)),
        "{status:?}"
    );
    ensure!(
        status.record(NEW).succeeded == 3 && failures(&status, NEW).is_empty(),
        "{status:?}"
    );
    is_overdue_and_said(&fleet).await?;
    for (node, outcome) in fleet.history().outcomes() {
        let boots = if ["node-5", "node-6", "node-7"].contains(&node.as_str()) {
            2
        } else {
            1
        };
        ensure!(outcome.boots == boots, "{node}: {outcome:?}");
    }
    for node in ["node-0", "node-1", "node-2", "node-4"] {
        ensure!(
            !fleet.seen(node)?.is_unavailable() && !fleet.seen(node)?.marked,
            "{node} is not in service"
        );
    }

    praise_lifts_no_halt(&fleet, &succeeds).await?;
    a_slot_goes_with_its_node(&fleet).await?;
    fleet.check()
}

fn has_no_outcome(record: &VersionRecord) -> bool {
    record.succeeded == 0 && record.failures.is_empty() && record.halted_at.is_none()
}

/// What nobody else can end, a person ends by deleting the Node; its version is not taken for a success.
async fn a_slot_goes_with_its_node(fleet: &Fleet) -> Result<()> {
    Api::<Node>::all(fleet.client())
        .delete("node-3", &DeleteParams::default())
        .await?;
    let status = fleet.until_no_slot_is_taken().await?;
    ensure!(
        failures(&status, NEW).is_empty(),
        "its node was Ready all the time: {status:?}"
    );
    ensure!(
        status.record(NEW).succeeded == 3 && status.record(NEW).halted_at.is_none(),
        "{status:?}"
    );
    Ok(())
}

/// Drained, granted, and then "I run it now" in the old boot. The slot comes free at the deadline of the reboot, and it
/// is no success.
async fn says_it_has_rebooted(fleet: &Fleet, rogue: &RogueAgent) -> Result<()> {
    rogue.stage_update(NEW).await?;
    rogue
        .report(json!({"current_state": "RebootedIntoUpdate", "current_version": NEW}))
        .await?;
    let spec = rogue.wait_for_spec(Idle, 1).await?;
    ensure!(
        spec.last_failure
            .as_ref()
            .is_some_and(|it| it.reason == "DeadlineExceeded"),
        "{spec:?}"
    );
    fleet
        .wait_for_event("node-1", "UpdateAborted", "took longer than it may")
        .await?;
    // Back to the truth, but for the end of its update.
    rogue
        .report(json!({"current_version": OLD, "target_version": null}))
        .await
}

/// Gets a slot, for nobody but the host knows its releases, and takes nobody along. Taken up and never done: the
/// deadline of staging.
async fn wants_what_does_not_exist(fleet: &Fleet, rogue: &RogueAgent) -> Result<()> {
    rogue.report(json!({"target_version": NONSENSE})).await?;
    rogue.wait_for_spec(StagedAndPerformedUpdate, 1).await?;
    rogue.report(json!({"attempt": 1})).await?;
    rogue.wait_for_spec(Idle, 1).await?;
    rogue.report(json!({"target_version": null})).await?;
    fleet
        .wait_for_event("node-2", "UpdateAborted", NONSENSE)
        .await
        .map(drop)
}

/// The one that keeps its slot: its machine may be anywhere. It cannot claim another boot than its own.
async fn claims_its_reboot(fleet: &Fleet, rogue: &RogueAgent) -> Result<()> {
    let granted = rogue.stage_update(NEW).await?;
    let another = "11111111-2222-4333-8444-555555555555";
    rogue
        .assert_refused(
            json!({"reboot_claimed_boot_id": another, "boot_id": another}),
            "agent-claim",
        )
        .await?;
    rogue
        .report(json!({"reboot_claimed_boot_id": granted}))
        .await?;
    fleet
        .until_node("node-3", "is overdue", |seen| {
            seen.reason == "RebootOverdue"
        })
        .await
}

/// Never takes its attempt up: the deadline of what should take moments, twice.
async fn never_answers(fleet: &Fleet, rogue: &RogueAgent) -> Result<()> {
    rogue.report(json!({"target_version": NEW})).await?;
    rogue.wait_for_spec(StagedAndPerformedUpdate, 1).await?;
    let spec = rogue.wait_for_spec(Idle, 1).await?;
    ensure!(
        spec.last_failure
            .as_ref()
            .is_some_and(|it| it.reason == "DeadlineExceeded"),
        "{spec:?}"
    );
    fleet
        .until_ledger("the silent one's slot is given back", |status| {
            !status.slots.contains_key("brs-node-4")
        })
        .await?;
    rogue.report(json!({"target_version": null})).await
}

/// One false failure after the other, each at the attempt that is asked for.
async fn fails_again_and_again(rogue: &RogueAgent) -> Result<()> {
    rogue.report(json!({"target_version": NEW})).await?;
    for attempt in 1..=3_u64 {
        rogue
            .wait_for_spec(StagedAndPerformedUpdate, attempt)
            .await?;
        let message = "no host comes up with this";
        rogue.report(json!({"attempt": attempt, "current_state": "ErrorReset", "crash_count": attempt, "message": message}))
            .await?;
        let spec = rogue.wait_for_spec(Idle, attempt).await?;
        ensure!(
            spec.last_failure
                .as_ref()
                .is_some_and(|it| (it.count, it.reason.as_str()) == (attempt, "StepFailed")),
            "{spec:?}"
        );
        rogue.report(json!({"current_state": "Idle"})).await?;
    }
    rogue.report(json!({"target_version": null})).await
}

/// An honest update, whose agent dies before its end. It counts, for the Node shows it.
async fn never_says_idle(fleet: &Fleet, node: &str) -> Result<()> {
    fleet
        .until_node(node, "is watched", |seen| {
            (seen.goal, seen.reached) == (MonitoringUpdate, Some(MonitoringUpdate))
        })
        .await?;
    freeze(fleet, node)?;
    fleet
        .until_node(node, "is done, and its agent does not say so", |seen| {
            (seen.goal, seen.reached) == (Idle, Some(MonitoringUpdate))
        })
        .await
}

/// In the condition, in an Event and in the metrics; the node stays out of service.
async fn is_overdue_and_said(fleet: &Fleet) -> Result<()> {
    let condition = fleet.progressing("node-3").await?;
    ensure!(
        condition.reason == "RebootOverdue" && condition.message.contains("look at the machine"),
        "{condition:?}"
    );
    fleet
        .wait_for_event("node-3", "RebootOverdue", "look at the machine")
        .await?;
    fleet
        .wait_for_metrics(
            "reconciler",
            &[r#"brupop_nodes_reason{reason="RebootOverdue"} 1"#],
        )
        .await?;
    let seen = fleet.seen("node-3")?;
    ensure!(seen.cordoned && seen.marked && seen.drained, "{seen:?}");
    Ok(())
}

/// A version that is halted stays so, no matter who claims to run it, and the next one that knows of it waits.
async fn praise_lifts_no_halt(fleet: &Fleet, rogue: &RogueAgent) -> Result<()> {
    fleet.hosts[6].set_faults(Faults {
        falls_back_on_boot: true,
        ..Faults::default()
    });
    fleet.hosts[6].publish(BAD)?;
    fleet
        .until_ledger("the bad release is halted", |status| {
            status.halted_versions == Some(vec![BAD.to_owned()])
                && status.slots.keys().eq(["brs-node-3"])
        })
        .await?;
    fleet.hosts[7].publish(BAD)?;
    fleet
        .until_node("node-7", "is not updated to it", |seen| {
            seen.reason == "VersionHalted"
        })
        .await?;
    rogue
        .report(json!({"current_state": "Idle", "current_version": BAD}))
        .await?;
    fleet
        .wait_for_metrics(
            "reconciler",
            &[&format!(
                r#"brupop_hosts_version{{bottlerocket_version="{BAD}"}} 1"#
            )],
        )
        .await?;
    rogue.report(json!({"target_version": NONSENSE})).await?;
    fleet
        .until_node("node-1", "the lie was looked at", |seen| {
            seen.target.as_deref() == Some(NONSENSE)
        })
        .await?;
    let status = fleet
        .ledger()
        .get("fleet")
        .await?
        .status
        .unwrap_or_default();
    let record = status.record(BAD);
    ensure!(
        record.halted_at.is_some() && record.succeeded == 0,
        "{record:?}"
    );
    ensure!(
        failures(&status, BAD) == [("node-6", "FellBack")],
        "{record:?}"
    );
    ensure!(
        fleet.seen("node-7")?.reason == "VersionHalted",
        "{:?}",
        fleet.seen("node-7")?
    );
    Ok(())
}
