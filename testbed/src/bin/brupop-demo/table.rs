//! The fleet, live: a table that redraws on a terminal, else one line per change.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Result, bail};
use brupop_testbed::Fleet;
use brupop_testbed::history::Seen;
use tokio::time::{Instant, MissedTickBehavior, interval};

const FRAME: Duration = Duration::from_millis(200);
/// Most nodes that are drawn; of larger fleets those that move.
const ROWS: usize = 40;

const HEAD: [&str; 8] =
    ["NAME", "STATE", "VERSION", "TARGET STATE", "TARGET VERSION", "CRASH COUNT", "REASON", "NODE"];
const WIDTHS: [usize; 8] = [14, 25, 9, 25, 15, 12, 27, 24];

/// Shows the fleet until every node runs this version, Idle, with nothing left on it.
pub async fn show_until_updated(fleet: &Fleet, version: &str, deadline: Duration) -> Result<()> {
    show_until(fleet, "every node is updated", deadline, |now| now.iter().all(|(_, seen)| seen.runs(version)))
        .await
}

/// Shows the fleet until this holds of its nodes.
pub async fn show_until(
    fleet: &Fleet,
    what: &str,
    deadline: Duration,
    done: impl Fn(&[(String, Seen)]) -> bool,
) -> Result<()> {
    let began = Instant::now();
    let terminal = std::io::stdout().is_terminal();
    let mut shown: Vec<(String, Seen)> = vec![];
    let mut drawn = 0;
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if !terminal {
        println!("{}", line(&HEAD.map(str::to_owned)));
    }
    loop {
        frames.tick().await;
        let now: Vec<(String, Seen)> =
            fleet.history().now().map(|(node, seen)| (node.to_owned(), seen.clone())).collect();
        if terminal {
            drawn = redraw(&now, drawn, began.elapsed())?;
        } else {
            for change in now.iter().filter(|row| !shown.contains(row)) {
                println!("{}", line(&row(change)));
            }
        }
        if done(&now) {
            return Ok(());
        }
        if began.elapsed() > deadline {
            bail!("after {} s it is not so that {what}", deadline.as_secs());
        }
        shown = now;
    }
}

/// Draws over what was drawn before; returns how many lines that are.
fn redraw(now: &[(String, Seen)], before: usize, elapsed: Duration) -> Result<usize> {
    let mut rows: Vec<_> = now.iter().collect();
    if rows.len() > ROWS {
        rows.retain(|(_, seen)| !seen.is_idle() || seen.is_unavailable());
        rows.truncate(ROWS);
    }
    let mut out = std::io::stdout().lock();
    // A line that wraps would spoil the next redraw.
    let width = rustix::termios::tcgetwinsize(&out).map_or(80, |size| usize::from(size.ws_col).max(20));
    let fit = |line: String| line.chars().take(width).collect::<String>();
    if before > 0 {
        write!(out, "\x1b[{before}A")?;
    }
    let updated = now.iter().filter(|(_, seen)| seen.is_idle() && seen.available.is_none()).count();
    writeln!(out, "\x1b[J{}", fit(line(&HEAD.map(str::to_owned))))?;
    for change in &rows {
        writeln!(out, "{}", fit(line(&row(change))))?;
    }
    writeln!(out, "{:.1} s, {updated} of {} without a pending update", elapsed.as_secs_f32(), now.len())?;
    out.flush()?;
    Ok(rows.len() + 2)
}

fn row((node, seen): &(String, Seen)) -> [String; 8] {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let marks = [(!seen.ready, "NotReady"), (seen.ready, "Ready"), (seen.cordoned, "SchedulingDisabled")];
    let state: Vec<&str> = marks.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
    [
        format!("brs-{node}"),
        seen.reached.map(|state| state.to_string()).unwrap_or_default(),
        text(&seen.version),
        seen.goal.to_string(),
        text(&seen.available),
        seen.crashes.to_string(),
        seen.reason.clone(),
        state.join(","),
    ]
}

fn line(cells: &[String; 8]) -> String {
    let cells: Vec<String> = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:width$}")).collect();
    cells.join(" ").trim_end().to_owned()
}
