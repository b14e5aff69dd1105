//! What the operator takes while there is nothing to do, with shipped settings.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::audit::Event;
use brupop_testbed::await_until;
use brupop_testbed::fleet::Fleet;
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::usage::Usage;
use tokio::time::Instant;

use crate::fleet::{self, Place};
use crate::requests::{is_ours, program};
use crate::say;
use crate::table::{Figure, number};

const NODES: usize = 10;
const HOUR: Duration = Duration::from_hours(1);

/// Looks at an idle fleet for so long.
pub async fn measure(time: Duration) -> Result<Vec<Figure>> {
    say(&format!(
        "{NODES} nodes with shipped settings, idle for {} s",
        time.as_secs()
    ));
    let fleet = fleet::start(NODES, Place::Elsewhere, fleet::quick(), &[]).await?;
    // The first look for updates comes within START_JITTER.
    let looked = |fleet: &Fleet| {
        let has_looked = |host: &brupop_testbed::host::Host| host.count("refresh-updates") > 0;
        fleet.hosts.iter().all(has_looked)
    };
    await_until("every host has looked for updates", async || {
        looked(&fleet).then_some(())
    })
    .await?;
    let mut audit = fleet.control_plane.audit().from_now();
    let (before, began) = (processes(&fleet)?, Instant::now());
    tokio::time::sleep(time).await;
    let after = processes(&fleet)?;
    let hours = began.elapsed().as_secs_f64() / HOUR.as_secs_f64();
    let events = audit.read()?;
    let asked =
        |event: &&Event| program(event) == Some("agent") && is_ours(event) && event.verb != "watch";
    let requests = number(events.iter().filter(asked).count()) / number(NODES) / hours;
    let (agents, reconcilers) = (
        of(&before, &after, "agent")?,
        of(&before, &after, "reconciler")?,
    );
    let note = format!(
        "{} s with shipped settings, scaled to an hour",
        time.as_secs()
    );
    Ok(vec![
        Figure::new(
            "agent: resident, at most of 10",
            most(&agents, |(_, usage)| usage.resident),
            "MiB",
        )
        .aim(5.5),
        Figure::new(
            "agent: CPU in an idle hour, at most of 10",
            cpu(&agents) / hours,
            "s",
        )
        .aim(0.5)
        .note(&note),
        Figure::new(
            "agent: requests in an idle hour but for watches",
            requests,
            "",
        )
        .aim(0.0)
        .note(&note),
        Figure::new(
            "webhook: resident, idle",
            resident(&before, &after, "webhook")?,
            "MiB",
        )
        .aim(10.0),
        Figure::new(
            "reconciler: resident, idle, 10 nodes",
            resident(&before, &after, "reconciler")?,
            "MiB",
        )
        .aim(12.0),
        Figure::new(
            "reconciler: CPU in an idle hour, 10 nodes",
            cpu(&reconcilers) / hours,
            "s",
        )
        .note(note),
    ])
}

type Processes = BTreeMap<String, (PodProcess, Usage)>;

/// Each process of the operator, by its pod.
fn processes(fleet: &Fleet) -> Result<Processes> {
    let all = fleet.kubelets.processes().into_iter();
    all.map(|process| {
        Ok((
            process.pod.clone(),
            (process.clone(), Usage::of(process.pid)?),
        ))
    })
    .collect()
}

fn of(before: &Processes, after: &Processes, component: &str) -> Result<Vec<(Usage, Usage)>> {
    let mut pairs = vec![];
    for (pod, (process, usage)) in after
        .iter()
        .filter(|(_, (process, _))| process.component == component)
    {
        let (earlier, was) = before.get(pod).with_context(|| format!("{pod} is new"))?;
        ensure!(earlier.pid == process.pid, "{pod} was restarted");
        pairs.push((*was, *usage));
    }
    ensure!(!pairs.is_empty(), "there is no {component}");
    Ok(pairs)
}

fn most(pairs: &[(Usage, Usage)], value: impl Fn(&(Usage, Usage)) -> f64) -> f64 {
    pairs.iter().map(value).fold(0.0, f64::max)
}

fn resident(before: &Processes, after: &Processes, component: &str) -> Result<f64> {
    Ok(most(&of(before, after, component)?, |(_, usage)| {
        usage.resident
    }))
}

/// Seconds on a core meanwhile, at most.
fn cpu(pairs: &[(Usage, Usage)]) -> f64 {
    most(pairs, |(before, after)| {
        after.cpu.saturating_sub(before.cpu).as_secs_f64()
    })
}
