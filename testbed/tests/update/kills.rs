//! Processes are killed and frozen in mid-update; whoever comes after them goes on from the objects.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::{self, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Faults;
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};

use crate::{DEADLINE, assert_kind, fleet, fleet_with_moments_of, quick, seen, with};

/// What is wanted of the node, and what its agent has reported, when it is killed. Each lasts for half a second or
/// more, so that the kill falls into it. (`RebootedIntoUpdate`, `RebootedIntoUpdate`) does not: the reconciler ends
/// it as soon as it sees it, with nothing to wait for.
const MOMENTS: [(State, State); 5] = [
    // Looks for updates.
    (Idle, Idle),
    // Downloads and activates: 1.2 s.
    (StagedAndPerformedUpdate, Idle),
    // Waits for the grant: a second between the exclusion from load balancers and the drain.
    (StagedAndPerformedUpdate, StagedAndPerformedUpdate),
    // Has claimed the reboot and asked for it, and the host is in no hurry.
    (RebootedIntoUpdate, StagedAndPerformedUpdate),
    // Soaks: a second.
    (MonitoringUpdate, MonitoringUpdate),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_be_killed_in_every_state() -> Result<()> {
    let env = with(with(quick(), "SOAK_SECONDS", "1"), "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "1");
    let env = with(env, "REBOOT_REPEAT_INTERVAL", "1s");
    let (_alone, mut fleet) = fleet_with_moments_of(Duration::from_millis(600), 1, env).await?;
    let mut running = OLD.to_owned();
    for (round, moment) in MOMENTS.into_iter().enumerate() {
        let version = format!("1.20.{round}");
        kill_agent(&fleet, moment, &running, &version)
            .await
            .with_context(|| format!("killed at {}, {}", moment.0, moment.1))?;
        running = version;
    }
    fleet.check()
}

/// One update, from `running` to `version`, in which the agent is killed once.
async fn kill_agent(
    fleet: &Fleet,
    (goal, reached): (State, State),
    running: &str,
    version: &str,
) -> Result<()> {
    let host = &fleet.hosts[0];
    let reboots = || host.calls().iter().filter(|call| call.path == "/actions/reboot").count();
    let boots = || fleet.history().outcomes()["node-0"].boots;
    let (reboots_before, boots_before) = (reboots(), boots());
    let claimed = goal == RebootedIntoUpdate;
    host.set_faults(Faults { reboot_ignored: claimed, ..Faults::default() });
    let is_now = || {
        let now = seen(fleet, "node-0")?;
        let target = if goal == Idle { None } else { Some(version) };
        let so = (now.goal, now.reached) == (goal, Some(reached))
            && now.version.as_deref() == Some(if goal == MonitoringUpdate { version } else { running })
            && target.is_none_or(|target| now.target.as_deref() == Some(target))
            && (!claimed || reboots() > reboots_before);
        anyhow::Ok((so, now))
    };
    let agent = || fleet.processes("agent").pop();

    fleet.publish(version)?;
    let killed =
        await_until("the moment comes", DEADLINE, async || agent().filter(|_| is_now().is_ok_and(|is| is.0)));
    let killed = killed.await?;
    fleet.kubelets.signal(NAMESPACE, &killed.pod, Signal::KILL);
    let (so, now) = is_now()?;
    ensure!(so, "the moment was over: {now:?}");
    let next = await_until("the agent is started again", DEADLINE, async || {
        agent().filter(|next| next.pid != killed.pid)
    });
    let next = next.await?;
    ensure!((next.pod.as_str(), next.restarts) == (killed.pod.as_str(), killed.restarts + 1), "{next:?}");

    if claimed {
        let asked = reboots();
        await_until("the next agent asks for the reboot, too", DEADLINE, async || {
            (reboots() > asked).then_some(())
        })
        .await?;
        host.set_faults(Faults::default());
    }
    fleet.until_updated(version, DEADLINE).await?;
    ensure!(boots() == boots_before + 1, "{} reboots", boots() - boots_before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcilers_may_be_killed_and_frozen_in_mid_roll_out() -> Result<()> {
    let (_alone, mut fleet) = fleet(4, quick()).await?;
    fleet.deploy("cart", 4, "2").await?;
    fleet.publish(NEW)?;
    // Killed while a node is under way: it comes back, as a leader with a term of its own.
    let killed = leader_with(&fleet, 0).await?;
    let first = term(&fleet).await.context("no term")?;
    fleet.kubelets.signal(NAMESPACE, &killed.pod, Signal::KILL);
    await_until("the killed one is started again", DEADLINE, async || {
        fleet
            .processes("reconciler")
            .into_iter()
            .find(|process| process.pod == killed.pod && process.restarts > killed.restarts)
    })
    .await?;
    let second = next_term(&fleet, first).await?;

    // Frozen for longer than its lease: another one leads. Then thawed, to find out.
    let frozen = leader_with(&fleet, 1).await?;
    let second = term(&fleet).await.filter(|term| *term >= second).context("no term")?;
    fleet.kubelets.signal(NAMESPACE, &frozen.pod, Signal::STOP);
    await_until("another leader", DEADLINE, async || {
        leader(&fleet).await.filter(|leader| leader.pod != frozen.pod)
    })
    .await?;
    next_term(&fleet, second).await?;
    ensure!(fleet.processes("reconciler").contains(&frozen), "it was not frozen, but gone");
    fleet.kubelets.signal(NAMESPACE, &frozen.pod, Signal::CONT);

    fleet.until_updated(NEW, DEADLINE).await?;
    assert_kind(&fleet, 1)?;
    fleet.check()
}

/// The leader while it moves a node and so many are updated. Not its own node: it would evict itself.
async fn leader_with(fleet: &Fleet, updated: usize) -> Result<PodProcess> {
    let leader = await_until(format!("a leader moves a node, {updated} updated"), DEADLINE, async || {
        let leader = leader(fleet).await?;
        let history = fleet.history();
        let moving =
            |own: bool| history.now().any(|(node, seen)| (node == leader.node) == own && seen.goal != Idle);
        let done = history.now().filter(|(_, seen)| seen.version.as_deref() == Some(NEW)).count();
        (moving(false) && !moving(true) && done >= updated).then_some(leader)
    });
    Ok(leader.await?)
}

/// The process whose pod holds the Lease.
async fn leader(fleet: &Fleet) -> Option<PodProcess> {
    let holders = "jsonpath={.items[*].spec.holderIdentity}";
    let holder = fleet.control_plane.kubectl(["get", "lease", "-n", NAMESPACE, "-o", holders]).await.ok()?;
    fleet.processes("reconciler").into_iter().find(|process| holder.contains(&process.pod))
}

/// The ledger's term.
async fn term(fleet: &Fleet) -> Option<u64> {
    fleet.ledger().get("fleet").await.ok()?.status?.term
}

/// Awaits that a leader began after the one of this term.
async fn next_term(fleet: &Fleet, before: u64) -> Result<u64> {
    let next = await_until(format!("a term after {before}"), DEADLINE, async || {
        term(fleet).await.filter(|term| *term > before)
    });
    Ok(next.await?)
}
