//! Roll-outs: hosts act at once and reboot in 2 s, and no node tries the version first.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::audit::Event;
use brupop_testbed::await_until;
use brupop_testbed::figures::{Figure, median, number};
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::{History, Outcome};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::{self, DEADLINE, Place, REBOOT};
use crate::moments::{self, Moment};
use crate::phases;
use crate::requests::{self, Requests};

/// Nothing more is to come of a roll-out when nothing came for so long: conditions are written after 0.4 s, and after 5 s
/// at the latest.
const AT_REST: Duration = Duration::from_secs(6);
/// Nodes of the small fleets.
const NODES: usize = 8;
/// Pods on each node, where there is something to drain.
const PODS: usize = 4;

/// A roll-out to be measured.
#[derive(Clone, Debug)]
struct RollOut {
    nodes: usize,
    limit: &'static str,
    place: Place,
    pods_per_node: usize,
}

/// What was measured of it.
struct Measured {
    /// What became of each node.
    outcomes: BTreeMap<String, Outcome>,
    /// From the first change of a spec to the last node's Idle.
    took: Duration,
    /// What the operator asked of the API server.
    requests: Requests,
    /// What happened to each node, in order.
    moments: BTreeMap<String, Vec<Moment>>,
}

impl RollOut {
    /// How long it takes if nothing but hosts takes time.
    fn ideal(&self) -> Duration {
        let at_once = match self.limit.strip_suffix('%') {
            Some(percent) => {
                percent.parse::<usize>().map_or(self.nodes, |percent| self.nodes * percent / 100)
            }
            None => self.limit.parse().unwrap_or(self.nodes),
        };
        REBOOT * u32::try_from(self.nodes.div_ceil(at_once.max(1))).unwrap_or(u32::MAX)
    }

    async fn run(&self) -> Result<Measured> {
        // The more hosts there are, the longer they may take to learn of the version: the fleet is paused until all know.
        let refresh = format!("{}s", (self.nodes / 10).max(2));
        let settings = [
            ("MAX_CONCURRENT_UPDATE", self.limit),
            ("MAX_FAILURES_OF_NEW_VERSION", "unlimited"),
            ("SOAK_SECONDS", "0"),
            ("REFRESH_INTERVAL", refresh.as_str()),
            ("START_JITTER", "0s"),
            ("POLL_INTERVAL", "50ms"),
        ];
        let fleet = cluster::start(self.nodes, self.place, &settings).await?;
        if self.pods_per_node > 0 {
            fleet.deploy("cart", self.nodes * self.pods_per_node, "100%").await?;
        }
        fleet.pause(true).await?;
        fleet.publish(NEW)?;
        let known = |history: &History| {
            history.now().all(|(_, seen)| !seen.has_shadow || seen.available.as_deref() == Some(NEW))
        };
        fleet.until("every host knows the version", DEADLINE, known).await?;
        let mut audit = fleet.control_plane.audit().from_now();
        let resumed = Timestamp::now();
        fleet.pause(false).await?;
        cluster::until_updated(&fleet, NEW).await?;
        let mut events: Vec<Event> = vec![];
        let mut since = Instant::now();
        await_until("nothing more is asked", DEADLINE, async || {
            let came = audit.read().ok()?;
            if came.iter().any(requests::is_of_a_roll_out) {
                since = Instant::now();
            }
            events.extend(came);
            (since.elapsed() >= AT_REST).then_some(())
        })
        .await?;
        let history = fleet.history();
        let outcomes = history.outcomes().into_iter().filter(|(_, outcome)| outcome.duration.is_some());
        Ok(Measured {
            took: history.duration().context("no update")?,
            outcomes: outcomes.collect(),
            requests: Requests::of(&events),
            moments: moments::of(&events, &fleet.hosts, resumed),
        })
    }

    /// Runs it so many times; `timeline`: prints all that happened to one node.
    async fn repeat(&self, times: usize, timeline: bool) -> Result<Vec<Measured>> {
        let Self { nodes, limit, place, pods_per_node } = self;
        let what =
            format!("{nodes} nodes x {pods_per_node} pods, limit {limit}, reconciler and webhook {place}");
        let mut all = vec![];
        for time in 1..=times {
            eprintln!("{what}: {time} of {times}");
            all.push(self.run().await?);
        }
        println!("\n{what}; {times} times, and of the last one:\n");
        if let Some(last) = all.last() {
            println!("{}", requests::render(&last.requests, *nodes));
            println!("{}", phases::render(&last.moments));
            if timeline {
                println!("{}", phases::timeline(&last.moments));
            }
        }
        Ok(all)
    }
}

impl Measured {
    /// Median of what each node took beyond host, drain and reboot, in seconds.
    fn overhead(&self) -> f64 {
        let beyond =
            |outcome: &Outcome| Some(outcome.duration?.saturating_sub(REBOOT + outcome.drain).as_secs_f64());
        median(self.outcomes.values().filter_map(beyond)).unwrap_or(f64::NAN)
    }
}

fn middle(all: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    median(all.iter().map(value)).unwrap_or(f64::NAN)
}

/// Small fleets, each so many times: time and requests.
///
/// # Errors
/// A fleet is not updated.
pub async fn small(times: usize, timeline: bool) -> Result<Vec<Figure>> {
    let mut figures = vec![];
    let mut makespans = vec![];
    let note = format!("median of {times} roll-outs");
    for (limit, overhead, makespan) in [("1", 0.2, 1.1), ("4", 0.3, 1.15), ("unlimited", 0.4, 1.2)] {
        let roll_out = RollOut { nodes: NODES, limit, place: Place::OnTheFleet, pods_per_node: 0 };
        let all = roll_out.repeat(times, timeline).await?;
        let what = format!("overhead per node beyond host, drain and reboot, {NODES} nodes, limit {limit}");
        let seconds = middle(&all, Measured::overhead);
        figures.push(Figure::new(what, seconds, "s").aim(overhead).note(note.clone()));
        let ratio = middle(&all, |measured| measured.took.as_secs_f64() / roll_out.ideal().as_secs_f64());
        let what = format!("makespan to the ideal, {NODES} nodes, limit {limit}");
        makespans.push(Figure::new(what, ratio, "").aim(makespan).note(note.clone()));
        if limit == "4" {
            let what = "API requests per updated node, 8 nodes, limit 4, with what moving our own pods costs";
            makespans.push(Figure::new(what, per_node(&all), "").note(note.clone()));
        }
    }
    figures.extend(makespans);
    figures.extend(requests_elsewhere(times, timeline, &note).await?);
    Ok(figures)
}

fn per_node(all: &[Measured]) -> f64 {
    middle(all, |measured| measured.requests.per_node(NODES))
}

/// Requests where our own pods are not moved: with nothing to drain, and how many more with pods.
async fn requests_elsewhere(times: usize, timeline: bool, note: &str) -> Result<Vec<Figure>> {
    let nothing = RollOut { nodes: NODES, limit: "4", place: Place::Elsewhere, pods_per_node: 0 };
    let without = nothing.repeat(times, timeline).await?;
    let with = RollOut { pods_per_node: PODS, ..nothing }.repeat(times, timeline).await?;
    let base = middle(&without, |measured| number(measured.requests.count()));
    let more = middle(&with, |measured| {
        (number(measured.requests.count()) - base) / number(measured.requests.evicted())
    });
    let after = middle(&without, |measured| measured.requests.per_node_after(NODES));
    let what = "API requests per updated node, 8 nodes, limit 4, without the moves";
    Ok(vec![
        Figure::new(what, per_node(&without), "").aim(30.0).note(note),
        Figure::new("- more after the last node's Idle", after, ""),
        Figure::new("- more for each evicted pod", more, "")
            .aim(1.0)
            .note(format!("{PODS} pods on each node")),
    ])
}

/// A large fleet, once.
///
/// # Errors
/// It is not updated.
pub async fn large(timeline: bool) -> Result<Vec<Figure>> {
    let roll_out = RollOut { nodes: 200, limit: "10%", place: Place::OnTheFleet, pods_per_node: 0 };
    let all = roll_out.repeat(1, timeline).await?;
    let ratio = middle(&all, |measured| measured.took.as_secs_f64() / roll_out.ideal().as_secs_f64());
    Ok(vec![
        Figure::new("makespan to the ideal, 200 nodes, limit 10%", ratio, "").aim(1.1),
        Figure::new("overhead per node, 200 nodes, limit 10%", middle(&all, Measured::overhead), "s"),
    ])
}
