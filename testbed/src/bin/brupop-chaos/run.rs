//! One run: a cluster, the faults of a schedule, and what the checker finds.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::Fleet;
use brupop_testbed::host::{Ended, Host};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use crate::apply::Maker;
use crate::checker::Violation;
use crate::checker::processes::logs;
use crate::checker::rest::restless;
use crate::fault::{Fault, Plan, Step};
use crate::people::{self, node_name};
use crate::schedule::LAST;
use crate::watch::Watch;
use crate::world::NODES;
use crate::{impostor, world};

/// The rule by which the test bed itself fails.
pub(crate) const TEST_BED: &str = "test bed";
const LOOK: Duration = Duration::from_millis(100);
/// Longest that a fault may take to be made: what is to be signalled may be hard to find.
const MAKING: Duration = Duration::from_secs(5);
/// The time that undoing everything that people left may take once the faults have stopped: the API server may not
/// answer yet.
const TIDYING: Duration = Duration::from_mins(3);
const TRY: Duration = Duration::from_mins(1);
/// After the faults: how long nothing may happen before everything must be at rest; and how long all of it may take. A
/// budget takes an evicted pod for gone for two minutes, although a `StatefulSet` has made it again under the same name.
const NO_PROGRESS: Duration = Duration::from_mins(3);
const LONGEST: Duration = Duration::from_mins(15);
/// Time for which everything must be at rest, and for which it is then watched, because nobody has cause to write anything.
const AT_REST: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_secs(15);

/// Carries out a plan. If the test bed itself fails, that is among the violations, and what was seen until then is checked
/// nevertheless.
pub(crate) async fn run(plan: &Plan, keep: &Path) -> Result<Vec<Violation>> {
    let mut fleet = world::start(&plan.settings).await?;
    let mut watch = Watch::of(&fleet);
    let mut maker = Maker::default();
    let failed = |error: anyhow::Error| vec![Violation::new(TEST_BED, format!("{error:#}"))];
    let rests = go_through(&mut fleet, &mut watch, &mut maker, plan).await;
    watch
        .found
        .add(logs(&fleet.control_plane.sandbox().logs())?);
    let unseen = match rests {
        Ok(true) => impostor::unseen(&fleet, &mut watch)
            .await
            .unwrap_or_else(failed),
        Ok(false) => vec![],
        Err(error) => failed(error),
    };
    watch.found.add(unseen);
    let requested = |ended: &Ended| ended.requested;
    let reboots = fleet
        .hosts
        .iter()
        .flat_map(Host::ended_boots)
        .filter(requested)
        .count();
    println!(
        "-- {} reboots granted, {reboots} asked for; faults: {:?}",
        watch.objects.grants.len(),
        maker.made
    );
    if !watch.found.violations.is_empty() {
        keep_evidence(&fleet, keep)?;
    }
    Ok(watch.found.violations)
}

/// The faults, and what comes after them. Returns whether everything came to rest.
async fn go_through(
    fleet: &mut Fleet,
    watch: &mut Watch,
    maker: &mut Maker,
    plan: &Plan,
) -> Result<bool> {
    make_faults(fleet, watch, maker, &plan.steps).await?;
    let (began, granted) = (Instant::now(), watch.objects.grants.len());
    // All of it is news for every node.
    for node in 0..NODES {
        watch
            .audited
            .writes
            .fault(Timestamp::now(), Some(node_name(node)));
    }
    calm(fleet, maker, plan).await?;
    let rests = settle(fleet, watch, maker).await?;
    let at_rest = if rests { "at rest" } else { "not at rest" };
    println!(
        "-- {granted} reboots granted under faults; {at_rest} {} s later",
        began.elapsed().as_secs()
    );
    watch.conclude(fleet)?;
    Ok(rests)
}

/// Makes the faults in their turn, and takes each back in its own.
async fn make_faults(
    fleet: &mut Fleet,
    watch: &mut Watch,
    maker: &mut Maker,
    steps: &[Step],
) -> Result<()> {
    let mut line: BTreeMap<(u64, usize), (bool, &Fault)> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        line.insert((step.at, number), (true, &step.fault));
    }
    let began = Instant::now();
    // What is not taken back when the last one is made, is taken back with all the rest; but etcd must have been restored.
    while line
        .values()
        .any(|(make, fault)| *make || matches!(fault, Fault::Restore { .. }))
        && let Some(entry) = line.first_entry()
    {
        let at = Duration::from_millis(entry.key().0);
        if began.elapsed() >= at {
            let ((_, number), (make, fault)) = entry.remove_entry();
            watch
                .audited
                .writes
                .fault(Timestamp::now(), fault.node().map(node_name));
            if make {
                if matches!(fault, Fault::Restore { .. }) && !maker.has_snapshot() {
                    watch.keep();
                }
                let done = timeout(MAKING, maker.make(fleet, fault))
                    .await
                    .context("it takes too long")
                    .flatten();
                say(began, fault, "", done.as_ref().err());
                if let Some(ms) = fault.lasts() {
                    let until = u64::try_from(began.elapsed().as_millis())? + ms;
                    line.insert((until, steps.len() + number), (false, fault));
                }
            } else {
                let taken_back = maker.take_back(fleet, fault).await;
                say(began, fault, "no more: ", taken_back.as_ref().err());
            }
            continue;
        }
        watch.look(fleet)?;
        maker.mend(fleet)?;
        maker.hear();
        sleep(LOOK.min(at.saturating_sub(began.elapsed()))).await;
    }
    Ok(())
}

fn say(began: Instant, fault: &Fault, what: &str, error: Option<&anyhow::Error>) {
    let fault = serde_json::to_string(fault).unwrap_or_default();
    let error = error
        .map(|error| format!(" (skipped: {})", people::why(error)))
        .unwrap_or_default();
    println!(
        "{:>7.1} s  {what}{fault}{error}",
        began.elapsed().as_secs_f32()
    );
}

/// No fault any more, and people have gone home; then there is one more release.
async fn calm(fleet: &mut Fleet, maker: &mut Maker, plan: &Plan) -> Result<()> {
    println!("-- no more faults; the last release is {LAST}");
    maker.heal(fleet)?;
    maker.until_people_are_done().await;
    let began = Instant::now();
    loop {
        match timeout(TRY, tidy_up(fleet, plan))
            .await
            .context("no answer")
            .flatten()
        {
            Ok(()) => break,
            Err(error) if began.elapsed() > TIDYING => {
                return Err(error.context("nobody can tidy up"));
            }
            Err(_) => {
                maker.mend(fleet)?;
                sleep(LOOK * 10).await;
            }
        }
    }
    fleet.publish(LAST)
}

/// Undoes the actions of people: some were not undone, and a restored etcd may bring others back.
async fn tidy_up(fleet: &Fleet, plan: &Plan) -> Result<()> {
    for (node, host) in fleet.hosts.iter().cloned().enumerate() {
        people::add_node(fleet.client(), node, host).await?;
    }
    let faults = plan.steps.iter().map(|step| &step.fault);
    for fault in faults.filter(|fault| fault.lasts().is_some()) {
        let host = fault.node().and_then(|node| fleet.hosts.get(node)).cloned();
        people::does(fleet.client(), host, fault.clone(), false).await?;
    }
    Ok(())
}

/// Awaits that everything is at rest, and stays so while nobody has cause to write anything. Returns whether it has come to
/// that.
async fn settle(fleet: &mut Fleet, watch: &mut Watch, maker: &Maker) -> Result<bool> {
    let began = Instant::now();
    let (mut last_step, mut stepped) = (0, Instant::now());
    let mut rested: Option<Instant> = None;
    let mut is_quiet = false;
    loop {
        watch.look(fleet)?;
        maker.mend(fleet)?;
        if watch.objects.last_step != last_step {
            (last_step, stepped) = (watch.objects.last_step, Instant::now());
        }
        let rests = restless(&watch.objects, LAST, NODES, false).is_empty();
        rested = rested
            .filter(|_| rests)
            .or_else(|| rests.then(Instant::now));
        let since = rested.map_or(Duration::ZERO, |rested| rested.elapsed());
        if (since > AT_REST) != is_quiet {
            is_quiet = !is_quiet;
            watch.audited.writes.rests(is_quiet.then(Timestamp::now));
        }
        if since > AT_REST + QUIET {
            return Ok(true);
        }
        if stepped.elapsed() > NO_PROGRESS || began.elapsed() > LONGEST {
            let restless = restless(&watch.objects, LAST, NODES, true);
            watch.found.add(
                restless
                    .into_iter()
                    .map(|what| Violation::new("rest", what)),
            );
            return Ok(false);
        }
        sleep(LOOK).await;
    }
}

/// Copies logs and audit log to where they stay.
fn keep_evidence(fleet: &Fleet, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    std::fs::copy(fleet.control_plane.audit().path(), folder.join("audit.log"))?;
    for entry in std::fs::read_dir(fleet.control_plane.sandbox().logs())? {
        let entry = entry?;
        std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    println!("-- logs and audit log are in {}", folder.display());
    Ok(())
}
