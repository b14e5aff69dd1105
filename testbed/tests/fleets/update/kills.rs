//! Agents are killed in mid-update; those that come after them go on from the objects.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::State::{
    self, Idle, MonitoringUpdate, RebootedIntoUpdate, StagedAndPerformedUpdate,
};
use brupop_testbed::fleet::OLD;
use brupop_testbed::host::Faults;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, FleetOptions, await_until};

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

/// So often a kill may come too late, on a machine that is busy.
const MISSES: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_be_killed_in_every_state() -> Result<()> {
    let env = [
        ("SOAK_SECONDS", "1"),
        ("EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC", "1"),
        ("REBOOT_REPEAT_INTERVAL", "1s"),
    ];
    let mut options = FleetOptions::quick(1, &env);
    options.durations.prepare = Duration::from_millis(600);
    options.durations.activate = Duration::from_millis(600);
    let mut fleet = Fleet::start(&options).await?;
    let mut moments = MOMENTS.into_iter();
    let mut moment = moments.next();
    let mut running = OLD.to_owned();
    for round in 0..MOMENTS.len() + MISSES {
        let Some((goal, reached)) = moment else { break };
        let version = format!("1.20.{round}");
        let met = kill_agent(&fleet, (goal, reached), &running, &version).await;
        if met.with_context(|| format!("killed at {goal}, {reached}"))? {
            moment = moments.next();
        } else {
            println!("the moment {goal}, {reached} was over before the kill; once more");
        }
        running = version;
    }
    ensure!(moment.is_none(), "never killed at {moment:?}");
    fleet.check()
}

/// One update, from `running` to `version`, in which the agent is killed once. Was it killed at this moment?
async fn kill_agent(
    fleet: &Fleet,
    (goal, reached): (State, State),
    running: &str,
    version: &str,
) -> Result<bool> {
    let host = &fleet.hosts[0];
    let reboots = || host.count("reboot");
    let boots = || fleet.history().outcomes()["node-0"].boots;
    let (reboots_before, boots_before) = (reboots(), boots());
    let claimed = goal == RebootedIntoUpdate;
    host.set_faults(Faults {
        reboot_ignored: claimed,
        ..Faults::default()
    });
    let is_now = || {
        let now = fleet.seen("node-0")?;
        let target = if goal == Idle { None } else { Some(version) };
        let so = (now.goal, now.reached) == (goal, Some(reached))
            && now.version.as_deref()
                == Some(if goal == MonitoringUpdate {
                    version
                } else {
                    running
                })
            && target.is_none_or(|target| now.target.as_deref() == Some(target))
            && (!claimed || reboots() > reboots_before);
        anyhow::Ok(so)
    };
    let agent = || fleet.processes("agent").pop();

    fleet.publish(version)?;
    let killed = await_until("the moment comes", async || {
        agent().filter(|_| is_now().is_ok_and(|is| is))
    })
    .await?;
    fleet.kubelets.signal(NAMESPACE, &killed.pod, Signal::KILL);
    let met = is_now()?;
    let next = await_until("the agent is started again", async || {
        agent().filter(|next| next.pid != killed.pid)
    });
    let next = next.await?;
    ensure!(
        (next.pod.as_str(), next.restarts) == (killed.pod.as_str(), killed.restarts + 1),
        "{next:?}"
    );

    if claimed {
        let asked = reboots();
        await_until("the next agent asks for the reboot, too", async || {
            (reboots() > asked).then_some(())
        })
        .await?;
        host.set_faults(Faults::default());
    }
    fleet.until_updated(version).await?;
    ensure!(
        boots() == boots_before + 1,
        "{} reboots",
        boots() - boots_before
    );
    Ok(met)
}
