//! The fleet, live: one line for each change, as `kubectl get -w` shows them.

use std::time::Duration;

use anyhow::Result;
use brupop_testbed::history::Seen;
use brupop_testbed::{Fleet, await_within};

const HEAD: [&str; 7] = [
    "NAME",
    "STATE",
    "VERSION",
    "TARGET STATE",
    "TARGET VERSION",
    "REASON",
    "NODE",
];
const WIDTHS: [usize; 7] = [14, 25, 9, 25, 15, 27, 24];

/// Shows the fleet until every node runs this version, Idle, with nothing left on it.
pub async fn show_until_updated(fleet: &Fleet, version: &str, deadline: Duration) -> Result<()> {
    show_until(fleet, "every node is updated", deadline, |now| {
        now.iter().all(|(_, seen)| seen.runs(version))
    })
    .await
}

/// Shows the fleet until this holds of its nodes.
pub async fn show_until(
    fleet: &Fleet,
    what: &str,
    deadline: Duration,
    done: impl Fn(&[(String, Seen)]) -> bool,
) -> Result<()> {
    let mut shown: Vec<(String, Seen)> = vec![];
    println!("{}", line(&HEAD.map(str::to_owned)));
    await_within(deadline, what, async || {
        let now: Vec<(String, Seen)> = fleet
            .history()
            .now()
            .map(|(node, seen)| (node.to_owned(), seen.clone()))
            .collect();
        for change in now.iter().filter(|row| !shown.contains(row)) {
            println!("{}", line(&row(change)));
        }
        shown = now;
        done(&shown).then_some(())
    })
    .await
}

fn row((node, seen): &(String, Seen)) -> [String; 7] {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let marks = [
        (!seen.ready, "NotReady"),
        (seen.ready, "Ready"),
        (seen.cordoned, "SchedulingDisabled"),
    ];
    let state: Vec<&str> = marks
        .into_iter()
        .filter(|(is, _)| *is)
        .map(|(_, name)| name)
        .collect();
    [
        format!("brs-{node}"),
        seen.reached
            .map(|state| state.to_string())
            .unwrap_or_default(),
        text(&seen.version),
        seen.goal.to_string(),
        text(&seen.available),
        seen.reason.clone(),
        state.join(","),
    ]
}

fn line(cells: &[String; 7]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .zip(WIDTHS)
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    cells.join(" ").trim_end().to_owned()
}
