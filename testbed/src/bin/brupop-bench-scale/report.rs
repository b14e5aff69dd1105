//! What was measured, as a table, as figures for the table of `make bench`, and against what is aimed at.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use brupop_testbed::figures::{Figure, number};
use brupop_testbed::usage::Usage;
use jiff::SignedDuration;

use crate::asked::Counts;
use crate::{Arguments, RELEASES};

/// What is aimed at, at 5,000 nodes.
const FIRST_ACTION: Duration = Duration::from_secs(10);
/// More memory than this is an error, whatever tenants have.
const MOST_MEMORY_MIB: f64 = 200.0;
/// What is aimed at while pods change, as a part of a core in percent.
const CPU_OF_PODS: f64 = 5.0;

/// How much memory the reconciler should need at most, at 1,000 and at 5,000 nodes.
fn memory_aim(nodes: u32) -> f64 {
    if nodes <= 1000 { 40.0 } else { 120.0 }
}

/// How many seconds it should take from a release that an agent knows to the first spec that moves, with so many nodes.
fn known_aim(nodes: u32) -> Option<f64> {
    match nodes {
        0..=10 => Some(0.1),
        11..=1000 => Some(0.5),
        _ => None,
    }
}

/// What was measured.
pub struct Measured {
    /// From start to first action, when no shadow has a condition.
    pub first_start: Duration,
    /// The same, when all have one.
    pub second_start: Duration,
    /// From the first start until all have one.
    pub all_said: Duration,
    /// From an agent's report that its host has chosen an update to the first change of a spec.
    pub known: SignedDuration,
    /// How many updates were begun while requests were counted.
    pub updates: usize,
    /// These requests.
    pub run: Counts,
    /// Requests of [`RELEASES`] updates, each begun and ended while nothing else went on.
    pub one_by_one: Counts,
    /// The first reconciler after them.
    pub at_work: Usage,
    /// What was asked for while nothing was to be done.
    pub silence: Counts,
    /// How often kubelets said meanwhile that nothing has changed.
    pub beats: usize,
    /// The part of a core that the second reconciler took meanwhile, in percent.
    pub cpu: f64,
    /// The same while pods changed.
    pub cpu_of_pods: f64,
    /// How many of them did in a second.
    pub pods_per_second: f64,
    /// The second reconciler after that.
    pub later: Usage,
    /// Most resident memory of a replica of the webhook, in MiB.
    pub webhook: f64,
}

impl Measured {
    fn one_by_one(&self) -> f64 {
        number(self.one_by_one.requests()) / number(RELEASES)
    }

    /// The most resident memory of a reconciler at any time, in MiB.
    fn most_memory(&self) -> f64 {
        self.later.peak.max(self.at_work.peak)
    }
}

/// As a table that can be pasted into the documentation.
pub fn render(arguments: &Arguments, measured: &Measured) -> String {
    let Arguments { nodes, pods_per_node, evicted_per_node, budgets, large_budgets, kwok, limit, .. } =
        arguments;
    let evicted = evicted_per_node.map_or(String::new(), |evicted| format!(" ({evicted} evicted)"));
    let kwok = if *kwok { ", kwok" } else { "" };
    let mut text = format!(
        "| {nodes} nodes x {pods_per_node} pods{evicted}, {budgets} budgets, {large_budgets} large budgets, limit {limit}{kwok} | \
         measured | aim |\n|---|---|---|\n"
    );
    let mut row = |what: &str, value: String, aim: &str| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {what} | {value} | {aim} |");
    };
    let aim = format!("{} s", FIRST_ACTION.as_secs());
    row("start to first action, nothing said yet", seconds(measured.first_start), &aim);
    row("start to first action, all said", seconds(measured.second_start), &aim);
    row("start until every shadow says why", seconds(measured.all_said), "");
    row("update known to an agent -> first spec moves", format!("{} ms", measured.known.as_millis()), "");
    let memory = |usage: &Usage| format!("{:.0} MiB; {:.0} MiB", usage.resident, usage.peak);
    let aim = format!("{:.0} MiB", memory_aim(arguments.nodes));
    row("resident memory at work; at most", memory(&measured.at_work), &aim);
    row("resident memory, later, quiet; at most", memory(&measured.later), &aim);
    row("resident memory of the webhook", format!("{:.0} MiB", measured.webhook), "");
    let one_by_one = format!("{:.1}", measured.one_by_one());
    row("requests of the reconciler per update, nothing else goes on", one_by_one, "");
    if measured.updates > 0 {
        let per_update = |count| format!("{:.1}", number(count) / number(measured.updates));
        row(
            "requests of the reconciler per update, others wait: all",
            per_update(measured.run.requests()),
            "",
        );
        for (what, count) in &measured.run.by_kind {
            row(&format!("- {what}"), per_update(*count), "");
        }
        row(
            &format!("nodes whose condition was written in {} updates", measured.updates),
            measured.run.conditions.len().to_string(),
            &format!("{}", measured.updates + 1),
        );
    }
    row(
        &format!(
            "writes in {} s with {} heartbeats, Lease and dry runs apart",
            arguments.quiet_seconds, measured.beats
        ),
        measured.silence.writes().to_string(),
        "0",
    );
    row("CPU meanwhile", format!("{:.1} % of a core", measured.cpu), "");
    row(
        &format!("CPU while {:.0} pods/s change", measured.pods_per_second),
        format!("{:.1} % of a core", measured.cpu_of_pods),
        &format!("{CPU_OF_PODS:.0} %"),
    );
    text
}

/// For the table of `make bench`.
pub fn figures(arguments: &Arguments, measured: &Measured) -> Vec<Figure> {
    let Arguments { nodes, pods_per_node, budgets, .. } = arguments;
    let fleet = format!("{nodes} nodes x {pods_per_node} pods");
    let evicted = arguments.evicted_per_node.unwrap_or(*pods_per_node);
    let known = Figure::new(
        format!("release known to an agent -> first spec moves, {fleet}"),
        measured.known.as_secs_f64(),
        "s",
    )
    .note(format!("median of {RELEASES}, nothing else goes on"));
    vec![
        known.aim_if_any(known_aim(*nodes)),
        Figure::new(format!("webhook: resident, {fleet}"), measured.webhook, "MiB")
            .note("asked for nothing: the agents are played"),
        Figure::new(format!("reconciler: resident, idle, {fleet}"), measured.later.resident, "MiB"),
        Figure::new(format!("reconciler: resident, at most, {fleet}"), measured.most_memory(), "MiB")
            .aim(memory_aim(*nodes)),
        Figure::new(
            format!("reconciler: from start to first action, {fleet}"),
            measured.second_start.as_secs_f64(),
            "s",
        )
        .aim(FIRST_ACTION.as_secs_f64()),
        Figure::new(format!("reconciler: requests per update, {fleet}"), measured.one_by_one(), "")
            .note(format!("{evicted} of them evictions, {budgets} budgets")),
        Figure::new(
            format!("reconciler: writes while nothing is to be done, {fleet}"),
            number(measured.silence.writes()),
            "",
        )
        .aim(0.0)
        .note(format!("in {} s with {} heartbeats", arguments.quiet_seconds, measured.beats)),
        Figure::new(format!("reconciler: CPU while pods change, {fleet}"), measured.cpu_of_pods, "%")
            .aim(CPU_OF_PODS)
            .note(format!("{:.0} in a second", measured.pods_per_second)),
    ]
}

/// What may grow with the number of nodes, under the same names whatever that number is.
pub fn growing(nodes: u32, measured: &Measured) -> Vec<Figure> {
    let first_action = FIRST_ACTION.as_secs_f64();
    vec![
        Figure::new("start to first action, nothing said yet", measured.first_start.as_secs_f64(), "s")
            .aim(first_action),
        Figure::new("start to first action, all said", measured.second_start.as_secs_f64(), "s")
            .aim(first_action),
        Figure::new("start until every shadow says why", measured.all_said.as_secs_f64(), "s"),
        Figure::new("update known -> first spec moves", measured.known.as_secs_f64(), "s")
            .aim_if_any(known_aim(nodes)),
        Figure::new("requests per update", measured.one_by_one(), ""),
        Figure::new("resident, quiet", measured.later.resident, "MiB"),
        Figure::new("resident, at most", measured.most_memory(), "MiB").aim(memory_aim(nodes)),
        Figure::new("CPU, quiet", measured.cpu, "%"),
        Figure::new("CPU while pods change, up to 100/s", measured.cpu_of_pods, "%").aim(CPU_OF_PODS),
    ]
}

/// Holds it against what must be so.
///
/// # Errors
/// It is not.
pub fn check(measured: &Measured) -> Result<()> {
    let (updates, moved) = (measured.updates, measured.run.conditions.len());
    let silence = &measured.silence;
    ensure!(silence.writes() == 0, "written while nothing was to be done: {:?}", silence.by_kind);
    // The one that is in mid-update when the count begins, and the one that is when it ends.
    ensure!(updates == 0 || moved <= updates + 2, "conditions of {moved} nodes changed in {updates} updates");
    let starts = measured.first_start.max(measured.second_start);
    ensure!(starts <= FIRST_ACTION, "the first action came late");
    ensure!(measured.most_memory() <= MOST_MEMORY_MIB, "too much memory");
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
