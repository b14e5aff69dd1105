//! Another version of the operator is installed in mid-roll-out, one component after the other.
//!
//! One fleet at a time: each takes both cores of a small machine.

#[path = "../common/went_well.rs"]
mod went_well;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::{Idle, RebootedIntoUpdate};
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::earlier::Component::{self, Agent, Reconciler, Webhook};
use brupop_testbed::earlier::{Version, programs_of_both};
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::Seen;
use brupop_testbed::host::{Answer, Call, Command, Faults, Host};
use brupop_testbed::{ControlPlane, Fleet, FleetOptions, await_until};
use tokio::sync::Mutex;
use went_well::went_well;

const DEADLINE: Duration = Duration::from_mins(2);
const NODES: usize = 4;
const LIMIT: usize = 3;
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn agents_may_be_upgraded_first() -> Result<()> {
    exchange(Direction::Forth, &[&[Agent], &[Reconciler], &[Webhook]]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconciler_may_be_upgraded_first() -> Result<()> {
    exchange(Direction::Forth, &[&[Reconciler], &[Webhook], &[Agent]]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_may_be_upgraded_first() -> Result<()> {
    exchange(Direction::Forth, &[&[Webhook], &[Agent], &[Reconciler]]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_may_be_taken_back() -> Result<()> {
    exchange(Direction::Back, &[&Component::ALL]).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forth,
    Back,
}

/// A roll-out that begins with one version of the operator: one node downloads and two wait for their reboot when the
/// other version is installed in these steps. After each of them a node goes on, and is updated by both together.
async fn exchange(direction: Direction, steps: &[&[Component]]) -> Result<()> {
    let _alone = ONE_AT_A_TIME.lock().await;
    let limit = LIMIT.to_string();
    let env = [
        ("MAX_CONCURRENT_UPDATE", limit.as_str()),
        ("MAX_FAILURES_OF_NEW_VERSION", "unlimited"),
        ("REBOOT_REPEAT_INTERVAL", "1s"),
    ];
    let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
        let version = match direction {
            Direction::Forth => Version::earlier(control_plane).await?,
            Direction::Back => Version::today(control_plane).await?,
        };
        version.apply(control_plane, &Component::ALL).await?;
        programs_of_both(env).await
    };
    let mut fleet = Fleet::start_with(&FleetOptions::quick(NODES, &env), install, |_| ()).await?;
    let (before, after) =
        (Version::earlier(&fleet.control_plane).await?, Version::today(&fleet.control_plane).await?);
    let (before, after) = if direction == Direction::Forth { (before, after) } else { (after, before) };
    before.rolled_out(&fleet, &Component::ALL).await?;
    fleet.deploy("cart", NODES, "2").await?;
    let [downloading, rebooting @ ..] = one_downloads_and_two_wait_for_their_reboot(&fleet).await?;

    // Not what was written before there was a webhook.
    let audit = fleet.control_plane.audit().from_now();
    let mut left = Component::ALL.to_vec();
    for (step, rebooting) in steps.iter().zip(rebooting.iter().chain(rebooting.last())) {
        after.apply(&fleet.control_plane, step).await?;
        after.rolled_out(&fleet, step).await?;
        left.retain(|component| !step.contains(component));
        before.rolled_out(&fleet, &left).await?;
        for node in [&downloading, rebooting] {
            host(&fleet, node)?.set_faults(Faults::default());
        }
        until_updated(&fleet, rebooting).await?;
        until_updated(&fleet, &downloading).await?;
    }
    if direction == Direction::Back {
        before.delete_what_is_not_in(&after, &fleet.control_plane).await?;
    }
    for host in &fleet.hosts {
        host.set_faults(Faults::default());
    }
    fleet.until_updated(NEW, DEADLINE).await?;
    went_well(&fleet, LIMIT).await?;
    nobody_was_refused(audit)?;
    fleet.check()
}

fn host<'a>(fleet: &'a Fleet, node: &str) -> Result<&'a Host> {
    let number = node.strip_prefix("node-").and_then(|number| number.parse::<usize>().ok());
    number.and_then(|number| fleet.hosts.get(number)).with_context(|| format!("no host of {node}"))
}

/// All slots are taken. The last two of these nodes are drained, and their agents have claimed the reboot and ask for it; on
/// the first one, as on those that come later, the image cannot be activated yet.
async fn one_downloads_and_two_wait_for_their_reboot(fleet: &Fleet) -> Result<[String; LIMIT]> {
    for host in &fleet.hosts {
        host.set_faults(Faults {
            reboot_ignored: true,
            ..Faults::answer(Call::Action(Command::Activate), Answer::Locked)
        });
    }
    fleet.publish(NEW)?;
    let moving = await_until("all slots are in use", DEADLINE, async || {
        let history = fleet.history();
        let moving = history.now().filter(|(_, seen)| seen.goal != Idle).map(|(node, _)| node.to_owned());
        <[String; LIMIT]>::try_from(moving.collect::<Vec<_>>()).ok()
    })
    .await?;
    let hosts = moving[1..].iter().map(|node| host(fleet, node)).collect::<Result<Vec<_>>>()?;
    for host in &hosts {
        host.set_faults(Faults { reboot_ignored: true, ..Faults::default() });
    }
    fleet
        .until("two nodes wait for their reboot", DEADLINE, |history| {
            let waits = |seen: &Seen| seen.goal == RebootedIntoUpdate && seen.cordoned && seen.drained;
            let asks = |host: &&Host| host.calls().iter().any(|call| call.path == "/actions/reboot");
            history.now().filter(|(_, seen)| waits(seen)).count() == hosts.len() && hosts.iter().all(asks)
        })
        .await?;
    Ok(moving)
}

async fn until_updated(fleet: &Fleet, node: &str) -> Result<()> {
    fleet
        .until(&format!("{node} is updated"), DEADLINE, |history| {
            let in_service = |seen: &Seen| seen.is_idle() && !seen.is_unavailable();
            history
                .now()
                .any(|(name, seen)| name == node && in_service(seen) && seen.version.as_deref() == Some(NEW))
        })
        .await
}

/// No write was refused, and none found no webhook. A conditional write that came too late (409, 422) is nothing to speak
/// of.
fn nobody_was_refused(mut audit: AuditReader) -> Result<()> {
    let mut refused = audit.read()?;
    refused.retain(|event| {
        event.user.username.contains(":brupop-")
            && matches!(event.verb.as_str(), "create" | "update" | "patch" | "delete")
            && (event.code() == 403 || says(event).contains("failed calling webhook"))
            && !event.request_uri.contains("dryRun")
    });
    ensure!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

fn says(event: &Event) -> &str {
    event.response_status.as_ref().map(|status| status.message.as_str()).unwrap_or_default()
}
