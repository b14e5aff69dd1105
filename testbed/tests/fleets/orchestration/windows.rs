//! When updates may start, with real processes: a closed window, one node by hand, a one-shot, a duration.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_api::names::{
    MARKER_ANNOTATION, UPDATE_NOW_ANNOTATION, UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION,
};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::{History, Seen};
use brupop_testbed::host::{Answer, Call, Command, Faults};
use brupop_testbed::{Fleet, await_until};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::orchestration::until_it_is;

const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];
const SECOND: &str = "1.20.1";
const THIRD: &str = "1.20.2";
/// It opens a window long after these tests.
const CLOSED: &str = "0 0 0 1 1 * 2099";
const REST: Duration = Duration::from_secs(4);
/// In seconds: so much time is left from the moment when reconcilers follow a new schedule until it is due.
const MARGIN: i64 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn updates_start_only_in_their_window() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[("REBOOT_REPEAT_INTERVAL", "1s")]).await?;
    fleet
        .change(json!({"failureThreshold": {"unproven": 2}}))
        .await?;
    fleet
        .configure(&[("SCHEDULER_CRON_EXPRESSION", CLOSED)])
        .await?;
    fleet.publish(NEW)?;
    for node in NODES {
        fleet
            .until_node(node, "waits for the window", |seen| {
                seen.reason == "OutsideWindow"
            })
            .await?;
        let said = fleet.progressing(node).await?.message;
        ensure!(said.contains("it opens at 2099-01-01T00:00:00Z"), "{said}");
    }
    fleet
        .wait_for_metrics(
            "reconciler",
            &[r#"brupop_nodes_reason{reason="OutsideWindow"} 3"#],
        )
        .await?;
    one_node_is_updated_now(&fleet).await?;
    what_is_left_is_tidied_up(&fleet).await?;
    a_one_shot_starts_the_whole_fleet(&fleet).await?;
    a_window_closes_while_a_node_is_updated(&fleet).await?;
    fleet.check()
}

/// A person asks for this one, and gets this one; a leader that begins meanwhile starts no other.
async fn one_node_is_updated_now(fleet: &Fleet) -> Result<()> {
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
    fleet
        .wait_for_metrics(
            "reconciler",
            &[&format!(
                r#"brupop_hosts_version{{bottlerocket_version="{NEW}"}} 1"#
            )],
        )
        .await?;
    nobody_else_has_begun(fleet)
}

fn nobody_else_has_begun(fleet: &Fleet) -> Result<()> {
    for node in ["node-0", "node-2"] {
        ensure!(
            !fleet.history().has_seen(node, |seen| seen.goal != Idle),
            "{node} has begun outside the window"
        );
    }
    Ok(())
}

/// A node that leaves loses its shadow and gets another, and a marker that somebody left over is undone.
async fn what_is_left_is_tidied_up(fleet: &Fleet) -> Result<()> {
    let label = async |value: &str| {
        fleet
            .kubectl(&format!(
                "label node node-2 {UPDATER_INTERFACE_LABEL}{value}"
            ))
            .await
    };
    label("-").await?;
    fleet
        .until_node("node-2", "has left, and its shadow with it", |seen| {
            !seen.has_shadow
        })
        .await?;
    label(&format!("={UPDATER_INTERFACE_VERSION}")).await?;

    let marker = json!({
        "shadow_uid": "of-a-shadow-that-is-gone", "attempt": 7, "term": 1,
        "cordoned_at": "2026-11-21T03:00:00Z", "drain_started_at": "2026-11-21T03:00:00Z", "tainted": false,
    });
    let left = Patch::Merge(json!({
        "metadata": {"annotations": {MARKER_ANNOTATION: marker.to_string()}}, "spec": {"unschedulable": true},
    }));
    Api::<Node>::all(fleet.client())
        .patch("node-0", &PatchParams::default(), &left)
        .await?;
    let undone = |seen: &Seen| !seen.marked && !seen.cordoned;
    let left_over = |seen: &Seen| seen.marked && seen.cordoned;
    fleet
        .until("what was left on node-0 is undone", |history| {
            history.has_seen("node-0", left_over)
                && history
                    .now()
                    .any(|(node, seen)| node == "node-0" && undone(seen))
        })
        .await?;
    fleet.until_waits("node-2", "OutsideWindow").await?;
    nobody_else_has_begun(fleet)
}

/// Seconds, minutes and so on of this second: it fires once.
fn once(at: Timestamp) -> String {
    let at = at.to_zoned(TimeZone::UTC);
    format!(
        "{} {} {} {} {} * {}",
        at.second(),
        at.minute(),
        at.hour(),
        at.day(),
        at.month(),
        at.year()
    )
}

/// Sets a schedule that is due this many seconds from now; later ones, if the reconcilers took too long to begin again.
async fn configured(
    fleet: &Fleet,
    waits: [i64; 3],
    schedule: impl Fn(Timestamp) -> Vec<(&'static str, String)>,
) -> Result<Timestamp> {
    for wait in waits {
        let due = Timestamp::now() + SignedDuration::from_secs(wait);
        let due = Timestamp::from_second(due.as_second())?;
        let settings = schedule(due);
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        fleet.configure(&settings).await?;
        if Timestamp::now() + SignedDuration::from_secs(MARGIN) < due {
            return Ok(due);
        }
    }
    bail!("the reconcilers took too long to begin again")
}

/// Nothing before it; after it one after the other, though the moment is over.
async fn a_one_shot_starts_the_whole_fleet(fleet: &Fleet) -> Result<()> {
    fleet.publish(SECOND)?;
    let fires = configured(fleet, [20, 40, 80], |due| {
        vec![("SCHEDULER_CRON_EXPRESSION", once(due))]
    })
    .await?;
    let opens = format!("it opens at {fires}");
    await_until("the next window is said", async || {
        fleet
            .progressing("node-0")
            .await
            .ok()
            .filter(|condition| condition.message.contains(&opens))
    })
    .await?;
    fleet.until_updated(SECOND).await?;
    fleet.until_no_slot_is_taken().await?;
    for node in NODES {
        let started = fleet
            .wait_for_event(node, "UpdateStarted", &format!("to {SECOND} begins"))
            .await?;
        let started = started.event_time.context("no time")?.0;
        ensure!(
            started >= fires,
            "{node} began at {started}, before {fires}"
        );
    }
    Ok(())
}

/// Five fields and a length: two nodes begin, the window shuts, the one that is cordoned is finished, and the one whose host still
/// downloads gives its update up; with the third, it waits for the next window.
async fn a_window_closes_while_a_node_is_updated(fleet: &Fleet) -> Result<()> {
    fleet
        .configure(&[("SCHEDULER_CRON_EXPRESSION", CLOSED)])
        .await?;
    fleet.publish(THIRD)?;
    for node in NODES {
        fleet
            .until_node(node, "waits for a window", |seen| {
                seen.reason == "OutsideWindow"
            })
            .await?;
    }
    let locked = || Faults::answer(Call::Action(Command::Prepare), Answer::Locked);
    fleet.set_faults(&locked());
    let opened =
        |shuts: Timestamp| shuts - SignedDuration::from_secs(shuts.as_second().rem_euclid(60) + 60);
    let shuts = configured(fleet, [20, 40, 80], |shuts| {
        let length = shuts.duration_since(opened(shuts));
        vec![
            (
                "SCHEDULER_CRON_EXPRESSION",
                format!("{} * * * *", opened(shuts).to_zoned(TimeZone::UTC).minute()),
            ),
            (
                "SCHEDULER_WINDOW_DURATION",
                format!("{}s", length.as_secs()),
            ),
            ("MAX_CONCURRENT_UPDATE", "2".to_owned()),
        ]
    })
    .await?;
    let [begun, downloads, waiting] = until_they_begin(fleet).await?;
    ensure!(Timestamp::now() < shuts, "the window is shut already");
    let opens = format!(
        "it opens at {}",
        opened(shuts) + SignedDuration::from_hours(1)
    );
    fleet
        .until_node(waiting, "waits for the next window", |seen| {
            seen.reason == "OutsideWindow"
        })
        .await?;
    let said = fleet.progressing(waiting).await?.message;
    ensure!(said.contains(&opens), "{said}, and not {opens}");
    ensure!(
        Timestamp::now() >= shuts,
        "it stopped before the window was shut"
    );
    let goals = [downloads, begun].map(|node| fleet.seen(node).map(|seen| seen.goal).ok());
    ensure!(
        goals == [Some(StagedAndPerformedUpdate), Some(RebootedIntoUpdate)],
        "{goals:?} when the window shut"
    );
    for (_, host) in NODES
        .iter()
        .zip(&fleet.hosts)
        .filter(|(node, _)| **node != begun)
    {
        host.set_faults(Faults::default());
    }
    fleet
        .wait_for_event(downloads, "UpdateAborted", "no longer allowed the update")
        .await?;
    fleet.set_faults(&Faults::default());
    fleet.until_runs(begun, THIRD).await?;
    fleet.until_no_slot_is_taken().await?;
    until_it_is(Instant::now() + REST).await?;
    for node in [downloads, waiting] {
        fleet.until_waits(node, "OutsideWindow").await?;
        let seen = fleet.seen(node)?;
        ensure!(
            seen.runs(SECOND) && !seen.cordoned && seen.crashes == 0,
            "{node}: {seen:?}"
        );
        ensure!(
            !fleet.history().has_seen(node, |seen| seen.cordoned
                && seen.target.as_deref() == Some(THIRD)),
            "{node} was cordoned"
        );
    }
    ensure!(
        fleet
            .history()
            .now()
            .all(|(_, seen)| seen.version.as_deref() != Some(OLD))
    );
    Ok(())
}

/// Awaits that two nodes begin, the reconciler's own being the last. Returns the one that waits for its reboot then, the one
/// that still downloads, and the third, which waits for its turn.
async fn until_they_begin(fleet: &Fleet) -> Result<[&'static str; 3]> {
    let begins = |seen: &Seen| seen.goal == StagedAndPerformedUpdate;
    let two = |history: &History| history.now().filter(|(_, seen)| begins(seen)).count() == 2;
    fleet.until("two nodes begin", two).await?;
    let mut nodes = NODES;
    nodes.sort_by_key(|node| !fleet.history().of(node).is_some_and(begins));
    let begun = NODES
        .iter()
        .position(|node| *node == nodes[0])
        .context("no such node")?;
    fleet.hosts[begun].set_faults(Faults {
        reboot_ignored: true,
        ..Faults::default()
    });
    fleet
        .until_node(nodes[0], "is to reboot", |seen| {
            seen.goal == RebootedIntoUpdate
        })
        .await?;
    fleet
        .until_node(nodes[2], "waits for its turn", |seen| {
            seen.reason == "LimitReached"
        })
        .await?;
    Ok(nodes)
}
