//! Roll-outs: hosts act at once and reboot in 2 s; no node tries the version first.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::{History, Outcome, Seen};
use brupop_testbed::usage::Usage;
use brupop_testbed::{Fleet, median};

use crate::fleet::{self, REBOOT};
use crate::requests::Requests;
use crate::say;
use crate::table::{Figure, number};

/// Nodes of the small fleets.
const NODES: usize = 8;
/// Pods on each node, where there is something to drain.
const PODS: usize = 4;

/// A roll-out to be measured.
#[derive(Clone, Copy, Debug)]
struct RollOut {
    nodes: usize,
    limit: &'static str,
    pods_per_node: usize,
    /// Are requests counted? Then reconciler and webhook run on other nodes, and the fleet is not paused before: what would be
    /// opened meanwhile is a part of it.
    counted: bool,
}

/// The measurements of one roll-out.
struct Measured {
    /// Time of a node beyond host, drain and reboot: the median, in seconds.
    overhead: f64,
    /// From the first change of a spec to the last node's Idle, to the time of the reboots alone.
    makespan: f64,
    /// The operator's requests to the API server.
    requests: Requests,
    /// Milliseconds that reconcilers keep a core busy for each node.
    cpu: f64,
}

impl RollOut {
    /// Returns how long it takes if nothing but hosts takes time.
    fn ideal(&self) -> Duration {
        let at_once = match self.limit.strip_suffix('%') {
            Some(percent) => percent
                .parse::<usize>()
                .map_or(self.nodes, |percent| self.nodes * percent / 100),
            None => self.limit.parse().unwrap_or(self.nodes),
        };
        REBOOT * u32::try_from(self.nodes.div_ceil(at_once.max(1))).unwrap_or(u32::MAX)
    }

    async fn run(&self) -> Result<Measured> {
        let Self {
            nodes,
            limit,
            pods_per_node,
            counted,
        } = self;
        say(&self.title());
        // The more hosts there are, the longer they may take to learn of the version: the fleet is paused until all know.
        let refresh = format!("{}s", (nodes / 10).max(2));
        let settings = [
            ("MAX_CONCURRENT_UPDATE", *limit),
            ("SOAK_SECONDS", "0"),
            ("REFRESH_INTERVAL", refresh.as_str()),
            ("START_JITTER", "0s"),
            ("POLL_INTERVAL", "50ms"),
        ];
        let fleet = fleet::start(*nodes, *counted, &settings).await?;
        if *pods_per_node > 0 {
            fleet.deploy("cart", nodes * pods_per_node, "100%").await?;
        }
        if *counted {
            until_all(&fleet, "rest", |seen| seen.reason == "NoUpdate").await?;
        } else {
            fleet.pause(true).await?;
            fleet.publish(NEW)?;
            let knows = |seen: &Seen| seen.available.as_deref() == Some(NEW);
            until_all(&fleet, "know the version", knows).await?;
        }
        let mut audit = fleet.control_plane.audit().from_now();
        if *counted {
            fleet.publish(NEW)?;
        } else {
            fleet.pause(false).await?;
        }
        let before = cpu(&fleet)?;
        fleet.until_updated(NEW).await?;
        let busy = cpu(&fleet)?.saturating_sub(before);
        let history = fleet.history();
        let beyond = |outcome: Outcome| {
            let more = outcome.duration?.saturating_sub(REBOOT + outcome.drain);
            Some(more.as_secs_f64())
        };
        let requests = Requests::of(&audit.read()?);
        for (what, count) in requests.during.iter().filter(|_| *counted) {
            say(&format!("{:>6.2} {what}", number(*count) / number(*nodes)));
        }
        Ok(Measured {
            overhead: median(history.outcomes().into_values().filter_map(beyond))
                .context("no update")?,
            makespan: history.duration().context("no update")?.as_secs_f64()
                / self.ideal().as_secs_f64(),
            requests,
            cpu: busy.as_secs_f64() * 1000.0 / number(*nodes),
        })
    }
}

/// Waits until this holds of all nodes.
async fn until_all(fleet: &Fleet, what: &str, holds: fn(&Seen) -> bool) -> Result<()> {
    let all = |history: &History| history.now().all(|(_, seen)| holds(seen));
    fleet.until(&format!("all nodes {what}"), all).await
}

/// Time for which reconcilers have kept a core busy so far.
fn cpu(fleet: &Fleet) -> Result<Duration> {
    let reconcilers = fleet.processes("reconciler").into_iter();
    reconcilers.map(|it| Ok(Usage::of(it.pid)?.cpu)).sum()
}

/// Measures small fleets, each a number of times, and a large one.
pub async fn measure(times: usize, large: usize) -> Result<Vec<Figure>> {
    let mut figures = vec![];
    let note = format!("median of {times} roll-outs");
    let (beyond, to_ideal) = (
        "time per node beyond host, drain and reboot",
        "time of a roll-out, relative to the ideal",
    );
    for (limit, overhead, makespan) in [("1", 0.2, 1.1), ("4", 0.3, 1.15), ("unlimited", 0.4, 1.2)]
    {
        let roll_out = RollOut {
            nodes: NODES,
            limit,
            pods_per_node: 0,
            counted: false,
        };
        let mut all = vec![];
        for _ in 0..times {
            all.push(roll_out.run().await?);
        }
        let middle =
            |value: fn(&Measured) -> f64| median(all.iter().map(value)).unwrap_or(f64::NAN);
        let fleet = format!("{NODES} nodes, limit {limit}");
        figures.extend([
            Figure::new(
                format!("{beyond}, {fleet}"),
                middle(|one| one.overhead),
                "s",
            )
            .aim(overhead)
            .note(&note),
            Figure::new(
                format!("{to_ideal}, {fleet}"),
                middle(|one| one.makespan),
                "",
            )
            .aim(makespan)
            .note(&note),
        ]);
    }
    let roll_out = RollOut {
        nodes: large,
        limit: "10%",
        pods_per_node: 0,
        counted: false,
    };
    let measured = roll_out.run().await?;
    figures.extend([
        Figure::new(
            format!("{to_ideal}, {large} nodes, limit 10%"),
            measured.makespan,
            "",
        )
        .aim(1.1),
        Figure::new(
            format!("overhead per node, {large} nodes, limit 10%"),
            measured.overhead,
            "s",
        ),
    ]);
    Ok(figures)
}

/// Requests with nothing to drain, and with pods. Our own pods are not moved.
pub async fn requests(large: usize) -> Result<Vec<Figure>> {
    let nothing = RollOut {
        nodes: NODES,
        limit: "1",
        pods_per_node: 0,
        counted: true,
    };
    let in_waves = RollOut {
        nodes: large,
        limit: "10%",
        ..nothing
    };
    let pods = RollOut {
        pods_per_node: PODS,
        ..nothing
    };
    let mut figures = vec![];
    for (roll_out, aim) in [(nothing, 27.0), (pods, 32.0), (in_waves, 25.5)] {
        let measured = roll_out.run().await?;
        figures.extend(roll_out.figures(&measured, aim));
    }
    Ok(figures)
}

impl RollOut {
    fn title(&self) -> String {
        let Self {
            nodes,
            limit,
            pods_per_node,
            ..
        } = self;
        format!("{nodes} nodes x {pods_per_node} pods, limit {limit}")
    }

    /// Returns the requests for each updated node, and who made them.
    fn figures(&self, measured: &Measured, aim: f64) -> Vec<Figure> {
        let requests = &measured.requests;
        let per_node = |count| number(count) / number(self.nodes);
        let all = Figure::new(
            format!("API requests per updated node, {}", self.title()),
            per_node(requests.during.values().sum()),
            "",
        );
        let part = |what: &str, count| Figure::new(format!("- {what}"), per_node(count), "");
        vec![
            all.aim(aim).note("reconciler and webhook on other nodes"),
            part("by the reconciler", requests.by("reconciler")),
            part("by the agents", requests.by("agent")),
            part("by the webhook", requests.by("webhook")),
            part("of these, evictions", requests.evicted),
            part(
                "beside these, that the host names a version",
                requests.offers,
            ),
            Figure::new("- CPU of the reconciler", measured.cpu, "ms").aim(15.0),
        ]
    }
}
