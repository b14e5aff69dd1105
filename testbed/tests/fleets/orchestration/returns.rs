//! Failure and return: what falls back, fails, stays away or is not Ready, each in its own way on one fleet.
//!
//! Every node has a release of its own, so that each release's record tells of one story.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::MonitoringUpdate;
use brupop_api::shadow::LastFailure;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::OLD;
use brupop_testbed::fleet::Records as _;
use brupop_testbed::host::{Command, Durations, Faults};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use tokio::time::Instant;

use crate::orchestration::{failures, until_it_is};

const SOAK: Duration = Duration::from_secs(8);
/// All that is said of a first failure is read before the second attempt.
const BACK_OFF: Duration = Duration::from_secs(15);
/// Times of Nodes and Pods are whole seconds.
const SECOND: Duration = Duration::from_secs(1);

const ENV: [(&str, &str); 5] = [
    ("MAX_CONCURRENT_UPDATE", "unlimited"),
    ("SOAK_SECONDS", "8"),
    ("SETTLE_DEADLINE_SECONDS", "12"),
    ("REBOOT_DEADLINE_SECONDS", "12"),
    ("BACK_OFF_BASE_SECONDS", "15"),
];

#[tokio::test(flavor = "multi_thread")]
async fn failing_nodes_recover_and_still_count() -> Result<()> {
    let mut fleet = Fleet::quick(5, &ENV).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 2}}))
        .await?;
    let slow = Durations {
        reboot: Duration::from_secs(25),
        ..Durations::default()
    };
    fleet.join(5, slow).await?;
    fleet.until_runs("node-5", OLD).await?;
    fleet.hosts[0].set_faults(Faults {
        falls_back_on_boot: true,
        ..Faults::default()
    });
    fleet.hosts[1].set_faults(Faults::failing(Command::Prepare, "no space left on device"));
    for (number, host) in fleet.hosts.iter().enumerate() {
        host.publish(&release(number))?;
    }
    tokio::try_join!(
        falls_back_twice_and_waits_in_between(&fleet),
        fails_before_its_reboot_and_is_tried_again(&fleet),
        is_not_ready_for_a_moment_of_its_soak(&fleet),
        loses_its_agent_in_its_soak(&fleet),
        is_not_ready_any_more(&fleet),
        stays_away_for_too_long(&fleet),
    )?;
    machines_that_are_replaced_are_not_forgotten(&mut fleet).await?;
    fleet.check()
}

/// The release of this node's own.
fn release(number: usize) -> String {
    format!("1.20.{number}")
}

/// The failures that stand in a shadow's spec.
async fn noted(fleet: &Fleet, node: &str) -> Result<LastFailure> {
    fleet.failures(node).await?.context("no failure is noted")
}

/// So much later than this time of the wall clock.
fn after(text: &str, wait: Duration) -> Result<Instant> {
    let ago = jiff::Timestamp::now().duration_since(text.parse()?);
    Ok(Instant::now() - ago.unsigned_abs() + wait)
}

/// The old version is back: named so wherever people look, and not tried again at once. A node counts once.
async fn falls_back_twice_and_waits_in_between(fleet: &Fleet) -> Result<()> {
    fleet
        .until_node("node-0", "waits", |seen| {
            seen.reason == "BackingOff" && seen.runs(OLD)
        })
        .await?;
    let first = noted(fleet, "node-0").await?;
    ensure!(
        (first.count, first.reason.as_str()) == (1, "FellBack"),
        "{first:?}"
    );
    let status = fleet
        .shadows()
        .get("brs-node-0")
        .await?
        .status
        .unwrap_or_default();
    let says = status
        .message
        .as_deref()
        .is_some_and(|message| message.contains("fell back to 1.19.4"));
    ensure!(says && status.crash_count == Some(1), "{status:?}");
    let condition = fleet.progressing("node-0").await?;
    ensure!(
        condition.message.contains("(FellBack: the host came back"),
        "{condition:?}"
    );
    fleet
        .until_ledger("node-0 fell back", |status| {
            failures(status, &release(0)) == [("node-0", "FellBack")]
        })
        .await?;
    fleet
        .wait_for_event(
            "node-0",
            "UpdateAborted",
            "a version other than the wanted one",
        )
        .await?;
    fleet
        .until_node("node-0", "is tried again", |seen| {
            seen.crashes == 2 && seen.runs(OLD)
        })
        .await?;
    let updates = fleet.history().updates("node-0");
    ensure!(
        updates.len() == 2 && updates[1].0 >= after(&first.at, BACK_OFF)?,
        "{updates:?}, {first:?}"
    );
    let second = noted(fleet, "node-0").await?;
    ensure!(
        (second.count, second.reason.as_str()) == (2, "FellBack"),
        "{second:?}"
    );
    let status = fleet
        .until_ledger("its slot is given back", |status| {
            !status.slots.contains_key("brs-node-0")
        })
        .await?;
    ensure!(
        failures(&status, &release(0)) == [("node-0", "FellBack")],
        "{status:?}"
    );
    ensure!(
        status.record(&release(0)).halted_at.is_none(),
        "one node is not two: {status:?}"
    );
    Ok(())
}

/// Nothing is drained or rebooted for it, the host's own words are passed on, and it goes well the next time.
async fn fails_before_its_reboot_and_is_tried_again(fleet: &Fleet) -> Result<()> {
    fleet
        .until_node("node-1", "waits", |seen| {
            seen.reason == "BackingOff" && seen.runs(OLD)
        })
        .await?;
    let shadow = fleet.shadows().get("brs-node-1").await?;
    let status = shadow.status.unwrap_or_default();
    let says = status
        .message
        .as_deref()
        .is_some_and(|message| message.contains("no space left on device"));
    ensure!(says && status.crash_count == Some(1), "{status:?}");
    let first = noted(fleet, "node-1").await?;
    ensure!(
        (first.count, first.reason.as_str()) == (1, "StepFailed"),
        "{first:?}"
    );
    fleet.hosts[1].set_faults(Faults::default());
    fleet
        .until_node("node-1", "is updated", |seen| {
            seen.runs(&release(1)) && seen.crashes == 0
        })
        .await?;
    let outcome = fleet.history().outcomes()["node-1"].clone();
    let updates = fleet.history().updates("node-1");
    ensure!(
        outcome.boots == 2 && updates.len() == 2,
        "{outcome:?}, {updates:?}"
    );
    ensure!(
        updates[1].0 >= after(&first.at, BACK_OFF)?,
        "{updates:?}, {first:?}"
    );
    let status = fleet
        .until_ledger("node-1 succeeded", |status| {
            status
                .versions
                .iter()
                .any(|it| it.version == release(1) && it.succeeded > 0)
        })
        .await?;
    ensure!(
        failures(&status, &release(1)).is_empty() && status.record(&release(1)).succeeded == 1,
        "{status:?}"
    );
    Ok(())
}

/// Awaits the middle of a node's soak.
async fn soaks(fleet: &Fleet, node: &str) -> Result<()> {
    fleet
        .until_node(node, "is watched", |seen| {
            (seen.goal, seen.reached) == (MonitoringUpdate, Some(MonitoringUpdate))
        })
        .await?;
    until_it_is(Instant::now() + SOAK / 2).await?;
    ensure!(
        fleet.seen(node)?.goal == MonitoringUpdate,
        "{node}: its soak was too short"
    );
    Ok(())
}

/// The soak that was interrupted until `again`, or later, begins again, and the update is a success.
async fn soaks_anew(fleet: &Fleet, number: usize, again: Instant) -> Result<()> {
    let node = &format!("node-{number}");
    fleet.until_runs(node, &release(number)).await?;
    let updates = fleet.history().updates(node);
    let ended = updates
        .first()
        .and_then(|(_, ended)| *ended)
        .context("it has not ended")?;
    ensure!(
        updates.len() == 1 && ended >= again + SOAK - SECOND,
        "{:?} after it was well again",
        ended - again
    );
    let status = fleet
        .until_ledger(&format!("{node} succeeded"), |status| {
            status
                .versions
                .iter()
                .any(|it| it.version == release(number) && it.succeeded > 0)
        })
        .await?;
    ensure!(status.record(&release(number)).succeeded == 1, "{status:?}");
    Ok(())
}

async fn is_not_ready_for_a_moment_of_its_soak(fleet: &Fleet) -> Result<()> {
    soaks(fleet, "node-2").await?;
    fleet.report_ready("node-2", false).await?;
    fleet
        .until_node("node-2", "is not Ready", |seen| !seen.ready)
        .await?;
    let again = Instant::now();
    fleet.report_ready("node-2", true).await?;
    soaks_anew(fleet, 2, again).await
}

async fn loses_its_agent_in_its_soak(fleet: &Fleet) -> Result<()> {
    soaks(fleet, "node-3").await?;
    let agent = fleet.agent("node-3")?;
    let again = Instant::now();
    fleet.kubelets.signal(NAMESPACE, &agent.pod, Signal::KILL);
    soaks_anew(fleet, 3, again).await
}

/// It was in service with its release, and went away: a failure, once that has lasted. It comes back as it is.
async fn is_not_ready_any_more(fleet: &Fleet) -> Result<()> {
    soaks(fleet, "node-4").await?;
    fleet.report_ready("node-4", false).await?;
    let status = fleet
        .until_ledger("node-4 is not Ready", |status| {
            !failures(status, &release(4)).is_empty()
        })
        .await?;
    ensure!(
        failures(&status, &release(4)) == [("node-4", "NotReady")],
        "{status:?}"
    );
    fleet
        .wait_for_event("node-4", "UpdateAborted", "not Ready with the new version")
        .await?;
    // Its slot is free, and it counts among those that are unavailable.
    fleet
        .until_ledger("its slot is given back", |status| {
            !status.slots.contains_key("brs-node-4")
        })
        .await?;
    fleet
        .until_node("node-4", "says so", |seen| seen.reason == "NodeNotReady")
        .await?;
    fleet.report_ready("node-4", true).await?;
    fleet
        .until_node("node-4", "is back", |seen| {
            seen.runs(&release(4)) && seen.reason == "NoUpdate"
        })
        .await
}

/// Slot kept and said; a success all the same when it does come.
async fn stays_away_for_too_long(fleet: &Fleet) -> Result<()> {
    fleet
        .until_node("node-5", "is overdue", |seen| {
            seen.reason == "RebootOverdue"
        })
        .await?;
    let status = fleet
        .until_ledger("node-5 is away", |status| {
            !failures(status, &release(5)).is_empty()
        })
        .await?;
    ensure!(
        failures(&status, &release(5)) == [("node-5", "NotReturned")],
        "{status:?}"
    );
    ensure!(status.slots.contains_key("brs-node-5"), "{status:?}");
    fleet
        .wait_for_event("node-5", "RebootOverdue", "look at the machine")
        .await?;
    fleet.until_runs("node-5", &release(5)).await?;
    let status = fleet
        .until_ledger("node-5 came late", |status| {
            !status.slots.contains_key("brs-node-5")
        })
        .await?;
    let record = status.record(&release(5));
    ensure!(
        record.succeeded == 1 && record.failures.is_empty(),
        "{record:?}"
    );
    Ok(())
}

/// Neither a new machine under the old name nor one under a new name makes the budget forget: the second is one too many.
async fn machines_that_are_replaced_are_not_forgotten(fleet: &mut Fleet) -> Result<()> {
    let uid = |shadow: brupop_api::BottlerocketShadow| shadow.metadata.uid;
    let old = uid(fleet.shadows().get("brs-node-0").await?);
    fleet.replace(0).await?;
    let shadows = fleet.shadows();
    let another = brupop_testbed::await_until("node-0 has fallen back once more", async || {
        let shadow = shadows.get("brs-node-0").await.ok()?;
        let fell_back = shadow
            .spec
            .last_failure
            .as_ref()
            .is_some_and(|failures| failures.reason == "FellBack");
        (shadow.metadata.uid != old && fell_back).then_some(shadow)
    });
    let another = another.await?;
    ensure!(
        another
            .spec
            .last_failure
            .as_ref()
            .is_some_and(|failures| failures.count == 1),
        "{:?}",
        another.spec
    );
    let status = fleet
        .until_ledger("its slot is given back", |status| {
            !status.slots.contains_key("brs-node-0")
        })
        .await?;
    ensure!(
        failures(&status, &release(0)) == [("node-0", "FellBack")],
        "{status:?}"
    );
    ensure!(status.record(&release(0)).halted_at.is_none(), "{status:?}");

    Api::<Node>::all(fleet.client())
        .delete("node-0", &DeleteParams::default())
        .await?;
    fleet.join(6, Durations::default()).await?;
    fleet.hosts[6].set_faults(Faults {
        falls_back_on_boot: true,
        ..Faults::default()
    });
    fleet.hosts[6].publish(&release(0))?;
    let status = fleet
        .until_ledger("it is halted", |status| {
            status.halted_versions == Some(vec![release(0)])
        })
        .await?;
    ensure!(
        failures(&status, &release(0)) == [("node-0", "FellBack"), ("node-6", "FellBack")],
        "{status:?}"
    );
    fleet
        .wait_for_event(
            "fleet",
            "VersionHalted",
            "node-6 (FellBack), node-0 (FellBack)",
        )
        .await?;
    fleet
        .until_node("node-6", "says why it waits", |seen| {
            ["BackingOff", "VersionHalted"].contains(&seen.reason.as_str())
        })
        .await?;
    fleet
        .until_node("node-6", "is not tried again", |seen| {
            seen.reason == "VersionHalted"
        })
        .await?;
    let condition = fleet.progressing("node-6").await?;
    ensure!(
        condition.message.contains("then resume the version"),
        "{condition:?}"
    );
    Ok(())
}
