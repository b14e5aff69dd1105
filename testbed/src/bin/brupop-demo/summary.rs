//! The demo's summary and checks.

use std::time::Duration;

use brupop_api::State;
use brupop_testbed::Fleet;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::history::Outcome;
use brupop_testbed::host::Durations;
use brupop_testbed::median;
use brupop_testbed::run::told;
use brupop_testbed::usage::Usage;

/// Most resident memory in MiB of any agent that runs now.
fn footprint(fleet: &Fleet) -> Option<f64> {
    let agents = fleet.processes("agent").into_iter();
    let usages = agents.filter_map(|agent| Usage::of(agent.pid).ok());
    usages.map(|usage| usage.resident).reduce(f64::max)
}

/// Prints the summary. Returns whether all checks hold.
pub fn print(fleet: &Fleet, durations: &Durations, limit: usize) -> bool {
    let history = fleet.history();
    let outcomes = history.outcomes();
    let host = durations.refresh + durations.prepare + durations.activate + durations.reboot;
    println!();
    println!(
        "{:10} {:19} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "NODE", "VERSION", "STAGED", "REBOOTED", "MONITOR", "DRAIN", "TOTAL", "OVERHEAD"
    );
    let seconds = |duration: Duration| format!("{:.2} s", duration.as_secs_f64());
    let overhead = |outcome: &Outcome| {
        outcome
            .duration
            .map(|took| took.saturating_sub(host + outcome.drain))
    };
    for (node, outcome) in &outcomes {
        let text = |version: &Option<String>| version.clone().unwrap_or_else(|| "?".into());
        let state = |state| seconds(outcome.states.get(&state).copied().unwrap_or_default());
        println!(
            "{node:10} {:19} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
            format!("{} -> {}", text(&outcome.from), text(&outcome.to)),
            state(State::StagedAndPerformedUpdate),
            state(State::RebootedIntoUpdate),
            state(State::MonitoringUpdate),
            seconds(outcome.drain),
            outcome.duration.map(seconds).unwrap_or_default(),
            overhead(outcome).map(seconds).unwrap_or_default(),
        );
    }
    let unavailable = history.most_unavailable();
    let updated = outcomes.values().all(|outcome| {
        outcome.from.as_deref() == Some(OLD)
            && outcome.to.as_deref() == Some(NEW)
            && outcome.duration.is_some()
    });
    let once = outcomes.values().all(|outcome| outcome.boots == 2);
    let tidy = history
        .now()
        .all(|(_, seen)| seen.is_idle() && !seen.is_unavailable());
    println!();
    println!(
        "a host takes {} of each node's time (refresh, download, activation, reboot)",
        seconds(host)
    );
    if let Some(took) = history.duration() {
        println!(
            "from the first change of a spec to the last node's Idle: {}",
            seconds(took)
        );
    }
    if let Some(median) = median(outcomes.values().filter_map(overhead)) {
        println!(
            "overhead per node, beyond what host and drain took: {} (median)",
            seconds(median)
        );
    }
    if let Some(memory) = footprint(fleet) {
        println!("an agent has {memory:.1} MiB resident at most");
    }
    let checks = [
        (
            updated,
            format!(
                "{} of {} nodes went from {OLD} to {NEW}",
                outcomes
                    .values()
                    .filter(|outcome| outcome.to.as_deref() == Some(NEW))
                    .count(),
                outcomes.len()
            ),
        ),
        (
            unavailable <= limit,
            format!("at most {unavailable} out of service at once, {limit} allowed"),
        ),
        (once, "every host was rebooted once".to_owned()),
        (tidy, "no node is left cordoned or marked".to_owned()),
    ];
    told(&checks)
}
