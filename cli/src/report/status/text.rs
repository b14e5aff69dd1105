//! The fleet at a glance, as a text for people.

use brupop_api::names;
use comfy_table::Cell;

use super::super::{or_dash, some};
use super::{Count, Glance, HaltedVersion, LeftByPeople, Moving, PoolLine, WaitingNodes};
use crate::page::{Page, Tone, View, age, section, table};

/// Characters of the progress bar.
const BAR: usize = 30;
/// Characters of the progress bar of a pool.
const POOL_BAR: usize = 10;

impl View for Glance {
    fn text(&self, page: &Page) -> String {
        let mut text = self.head(page);
        text += &section("POOLS", &self.pools(page));
        text += &section("VERSIONS", &self.states(page));
        text += &section("MOVING", &self.moving(page));
        text += &section("WAITING", &self.waiting(page));
        text
    }
}

impl Glance {
    fn head(&self, page: &Page) -> String {
        let waits: usize = self.waiting.iter().map(|group| group.nodes.len()).sum();
        let limit = self.limit.map_or("?".to_owned(), |limit| limit.to_string());
        let mut text = format!(
            "{} {} of {} nodes up to date, {} moving, {waits} waiting; {} of {limit} slots in use\n",
            bar(self.up_to_date, self.moving.len(), self.nodes),
            self.up_to_date,
            self.nodes,
            self.moving.len(),
            self.in_use,
        );
        let mut line = |tone: Tone, what: &str, about: &str| {
            text.extend([&tone.paint(what), " ", about, "\n"]);
        };
        if self.paused {
            line(Tone::Attention, "Paused:", "no update starts before `kubectl brupop resume`");
        }
        for obstacle in &self.obstacles {
            line(Tone::Bad, "Nothing starts:", obstacle);
        }
        for HaltedVersion { version, at, why } in &self.halted {
            let age = age(at, page.now);
            let about = format!("{age} ago: {why}; to go on: `kubectl brupop resume-version {version}`");
            line(Tone::Bad, &format!("Halted {version}"), &about);
        }
        for LeftByPeople { message, nodes } in &self.left_by_people {
            line(Tone::Attention, "For the next update:", &format!("{message}: {}", some(nodes)));
        }
        if self.not_opted_in > 0 {
            let about = format!(
                "{} more run Bottlerocket without the label {}={}, and are not updated",
                self.not_opted_in,
                names::UPDATER_INTERFACE_LABEL,
                names::UPDATER_INTERFACE_VERSION
            );
            line(Tone::Attention, "Not opted in:", &about);
        }
        if !self.unreadable.is_empty() {
            line(Tone::Bad, "Cannot be read:", &self.unreadable.join(", "));
        }
        text
    }

    fn pools(&self, page: &Page) -> String {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let row = |line: &PoolLine| {
            let counts = &line.counts;
            let (updated, nodes) = (counts.updated_nodes, counts.nodes);
            // Without colours: the table counts characters.
            let bar = parts(POOL_BAR, number(updated), number(counts.updating_nodes), number(nodes)).concat();
            vec![
                Cell::new(&line.pool),
                Cell::new(format!("{bar} {updated} of {nodes}")),
                Cell::new(counts.updating_nodes),
                Cell::new(counts.pending_nodes),
                Cell::new(counts.blocked_nodes),
                Cell::new(format!("{} of {}", counts.unavailable_nodes, counts.unavailable_limit)),
                Tone::Attention.cell(&line.reason),
                Cell::new(&line.message),
            ]
        };
        let head = ["POOL", "UPDATED", "UPDATING", "PENDING", "BLOCKED", "UNAVAILABLE", "REASON", "WHY"];
        table(&head, self.pools.iter().map(row).collect(), page)
    }

    fn states(&self, page: &Page) -> String {
        let row = |count: &Count| {
            vec![
                Cell::new(or_dash(count.version.as_deref())),
                Cell::new(or_dash(count.state)),
                Cell::new(count.nodes),
            ]
        };
        table(&["VERSION", "STATE", "NODES"], self.states.iter().map(row).collect(), page)
    }

    fn moving(&self, page: &Page) -> String {
        let age = |since: Option<&String>| since.map_or("-".to_owned(), |since| age(since, page.now));
        let row = |moving: &Moving| {
            let tone = if moving.overdue { Tone::Bad } else { Tone::Moving };
            let overdue = if moving.overdue { " (overdue)" } else { "" };
            vec![
                Cell::new(&moving.node),
                tone.cell(&format!("{}{overdue}", moving.reason)),
                Cell::new(moving.goal),
                Cell::new(age(moving.since.as_ref())),
                Cell::new(age(moving.updating_since.as_ref())),
                Cell::new(moving.way()),
            ]
        };
        let head = ["NODE", "REASON", "STATE TO REACH", "SINCE", "UPDATING", "FROM → TO"];
        table(&head, self.moving.iter().map(row).collect(), page)
    }

    fn waiting(&self, page: &Page) -> String {
        let row = |waiting: &WaitingNodes| {
            vec![
                Tone::Attention.cell(&waiting.reason),
                Cell::new(waiting.nodes.len()),
                Cell::new(some(&waiting.nodes)),
                Cell::new(&waiting.message),
            ]
        };
        table(&["REASON", "NODES", "WHICH", "WHY"], self.waiting.iter().map(row).collect(), page)
    }
}

impl Moving {
    /// From which version to which. Once the host runs the new one, nobody knows the old one any more.
    fn way(&self) -> String {
        match (self.runs.as_deref(), self.to.as_deref()) {
            (runs, None) => or_dash(runs).to_owned(),
            (runs, Some(to)) if runs == Some(to) => format!("→ {to}"),
            (runs, Some(to)) => format!("{} → {to}", or_dash(runs)),
        }
    }
}

/// How many are done, and how many are on their way.
fn bar(done: usize, moving: usize, all: usize) -> String {
    let [done, moving, rest] = parts(BAR, done, moving, all);
    format!("{}{}{rest}", Tone::Good.paint(&done), Tone::Moving.paint(&moving))
}

/// The done, the moving and the empty part of a bar of so many characters. The counts may come from a status that is not ours.
fn parts(length: usize, done: usize, moving: usize, all: usize) -> [String; 3] {
    let share = |part: usize| length.saturating_mul(part).checked_div(all).unwrap_or(0).min(length);
    let (done, begun) = (share(done), share(done.saturating_add(moving)));
    ["█".repeat(done), "▒".repeat(begun - done), "░".repeat(length - begun)]
}
