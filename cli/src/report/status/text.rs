//! The fleet at a glance, as a text for people.

use std::collections::BTreeMap;

use brupop_api::names::{UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION};
use brupop_core::decide::{Named, Reason, TO_GO_ON, TooManyFailures};
use comfy_table::Color;

use super::super::{nothing_named, or_dash};
use super::view::{Count, Glance, Moving, PoolLine};
use crate::page::{Page, View};
use crate::table::{Cell, facts, section, some};
use crate::words;

/// Characters of the progress bar, where the line has room for them.
const BAR: usize = 30;
/// A shorter bar shows nothing.
const SHORTEST_BAR: usize = 10;
/// Characters of the progress bar of a pool.
const POOL_BAR: usize = 10;
/// Rows for one reason. Further nodes, such as those that back off until times of their own, share one.
const ROWS_OF_REASON: usize = 3;

impl View for Glance {
    /// Returns the columns; the least important come last.
    fn text(&self, page: &Page) -> String {
        let page = &page.in_zone(self.zone.as_ref());
        self.progress(page)
            + &facts(self.head(page), page)
            + &self.moving(page)
            + &self.waiting(page)
            + &self.pools(page)
            + &self.states(page)
    }
}

impl Glance {
    /// Returns the bar, and how many nodes are how far.
    fn progress(&self, page: &Page) -> String {
        let waits: usize = self.waiting.iter().map(|group| group.nodes.len()).sum();
        let limit = self.unavailable_limit.map(|limit| limit.to_string());
        let limit = limit.as_deref().unwrap_or("?");
        let moving = self.moving.len();
        let updated = self.updated_nodes.map(|nodes| nodes.to_string());
        let updated = updated.as_deref().unwrap_or("?");
        let counts = format!(
            "{updated} of {} nodes up to date, {moving} moving, {waits} waiting; {} of {limit} slots in use",
            self.nodes, self.updating_nodes,
        );
        let columns = page.columns.map_or(usize::MAX, usize::from);
        let room = columns.saturating_sub(counts.len() + 2).min(BAR);
        let room = if room < SHORTEST_BAR { 0 } else { room };
        let bar = bar(room, self.updated_nodes.unwrap_or(0), moving, self.nodes);
        facts(vec![(&bar, counts, None)], page)
    }

    fn head(&self, page: &Page) -> Vec<(&'static str, String, Option<Color>)> {
        let mut head = vec![];
        let mut add = |color, key, about| head.push((key, about, Some(color)));
        let named = nothing_named(&self.namespace);
        if self.paused {
            let remedy = Reason::FleetPaused.remedy(&named);
            let about = format!("no update starts; {remedy}");
            add(Color::DarkYellow, "Paused:", about);
        }
        let paused = self.pools.iter().filter(|line| line.paused);
        let paused: Vec<_> = paused.map(|line| line.pool.clone()).collect();
        if let [pool, others @ ..] = paused.as_slice() {
            let pool = if others.is_empty() { pool } else { "" };
            let remedy = Reason::PoolPaused.remedy(&Named { pool, ..named });
            let pools = some(&paused, usize::MAX);
            let about = format!("no update starts in {pools}; {remedy}");
            add(Color::DarkYellow, "Paused:", about);
        }
        for obstacle in &self.obstacles {
            add(Color::DarkRed, "Nothing starts:", obstacle.clone());
        }
        for broken in &self.not_started {
            add(Color::DarkRed, "Does not start:", broken.clone());
        }
        for it in &self.halted {
            let (version, age) = (it.version.as_str(), page.age(&it.at));
            let reason = Reason::VersionHalted(TooManyFailures::Version(version));
            let remedy = reason.remedy(&Named { version, ..named });
            let why = format!("{version} for {} {age} ago: {}", it.variant, it.why);
            add(
                Color::DarkRed,
                "Halted:",
                format!("{why}{TO_GO_ON}{remedy}"),
            );
        }
        for left in &self.left_by_people {
            let about = format!("{}: {}", left.message, some(&left.nodes, usize::MAX));
            add(Color::DarkYellow, "For the next update:", about);
        }
        if self.not_opted_in_nodes > 0 {
            let count = self.not_opted_in_nodes;
            let label = [UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION].join("=");
            let about = format!(
                "{count} more run Bottlerocket without the label {label}, and are not updated"
            );
            add(Color::DarkYellow, "Not opted in:", about);
        }
        if self.without_shadow > 0 {
            let count = self.without_shadow;
            let about = format!(
                "nodes that are opted in: {count}; if that lasts, their Events say why (kubectl events -n default)"
            );
            add(Color::DarkRed, "Without a shadow:", about);
        }
        if !self.unreadable.is_empty() {
            add(
                Color::DarkRed,
                "Cannot be read:",
                self.unreadable.join(", "),
            );
        }
        head
    }

    fn moving(&self, page: &Page) -> String {
        let age = |since: &Option<String>| {
            let age = since.as_deref().map(|since| page.age(since));
            Cell::new(or_dash(age.as_deref()))
        };
        let row = |moving: &Moving| {
            let overdue = format!("{} (overdue)", moving.reason);
            let (reason, color) = match &moving.reason {
                _ if moving.overdue => (&overdue, Color::DarkRed),
                reason => (reason, Color::DarkCyan),
            };
            let why = page.sentence(&moving.message);
            let why = if moving.says_more() { &why } else { "" };
            vec![
                Cell::new(&moving.node),
                Cell::new(reason).fg(color),
                Cell::new(moving.goal),
                age(&moving.since),
                age(&moving.updating_since),
                Cell::new(moving.way()),
                Cell::new(why),
            ]
        };
        let head = "NODE|REASON|STATE TO REACH|SINCE|UPDATING|FROM → TO|WHY";
        let ranks = [0, 0, 5, 1, 4, 3, 2];
        let rows = self.moving.iter().map(row).collect();
        section("MOVING", head, &ranks, rows, page)
    }

    fn waiting(&self, page: &Page) -> String {
        let room = page.columns.map_or(usize::MAX, |all| (all / 2).into());
        let row = |reason: &str, message: &str, nodes: &[String]| {
            let why = format!("{}\n{}", page.sentence(message), some(nodes, room));
            let (reason, count) = (Cell::new(reason).fg(Color::DarkYellow), nodes.len());
            vec![reason, Cell::new(count), Cell::new(why)]
        };
        let (mut rows, mut others) = (vec![], BTreeMap::<&str, (usize, Vec<String>)>::new());
        for group in &self.waiting {
            let (told, others) = others.entry(&group.reason).or_default();
            *told += 1;
            if *told <= ROWS_OF_REASON {
                rows.push(row(&group.reason, &group.message, &group.nodes));
            } else {
                others.extend_from_slice(&group.nodes);
            }
        }
        let why = words::why("", &self.namespace);
        let why = format!("each for a cause of its own, which {why} tells");
        let others = others.iter().filter(|(_, (_, nodes))| !nodes.is_empty());
        rows.extend(others.map(|(reason, (_, nodes))| row(reason, &why, nodes)));
        section(
            "WAITING",
            "REASON|NODES|WHY, AND WHICH",
            &[0, 1, 0],
            rows,
            page,
        )
    }

    fn pools(&self, page: &Page) -> String {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let row = |line: &PoolLine| {
            let counts = &line.counts;
            let (updated, nodes) = (counts.updated_nodes, counts.nodes);
            let [done, moving, all] = [updated, counts.updating_nodes, nodes].map(number);
            let bar = bar(POOL_BAR, done, moving, all);
            let (away, limit) = (counts.unavailable_nodes, counts.unavailable_limit);
            // The reasons of its nodes stand above.
            let mut waiting = self.waiting.iter();
            let is_told = waiting.any(|group| group.message == line.message)
                || ["Updating", Reason::NoUpdate.as_str()].contains(&line.reason.as_str());
            let why = page.sentence(&line.message);
            vec![
                Cell::new(&line.pool),
                Cell::new(format!("{bar} {updated} of {nodes}")),
                Cell::new(counts.updating_nodes),
                Cell::new(counts.pending_nodes),
                Cell::new(counts.blocked_nodes),
                Cell::new(format!("{away} of {limit}")),
                Cell::new(&line.reason).fg(Color::DarkYellow),
                Cell::new(if is_told { "" } else { &why }),
            ]
        };
        let head = "POOL|UPDATED|UPDATING|PENDING|BLOCKED|UNAVAILABLE|REASON|WHY";
        let ranks = [0, 0, 4, 5, 3, 6, 1, 2];
        let rows = self.pools.iter().map(row).collect();
        section("POOLS", head, &ranks, rows, page)
    }

    fn states(&self, page: &Page) -> String {
        let row = |count: &Count| {
            let (version, state) = (count.version.as_deref(), count.state);
            [or_dash(version), or_dash(state), &count.nodes.to_string()]
                .map(Cell::new)
                .to_vec()
        };
        let rows = self.states.iter().map(row).collect();
        section("VERSIONS", "VERSION|STATE|NODES", &[0; 3], rows, page)
    }
}

impl Moving {
    /// Whether its sentence says more than its reason.
    fn says_more(&self) -> bool {
        let says_all = Reason::of_word(&self.reason).is_some_and(|reason| {
            let is_step = reason.begins_step() && !matches!(reason, Reason::Monitoring(_));
            is_step || reason == Reason::Finishing
        });
        !says_all || self.message.contains("; ")
    }

    /// Returns from which version to which it goes. Once the host runs the new one, nobody knows the old one any more.
    fn way(&self) -> String {
        match (self.runs.as_deref(), self.to.as_deref()) {
            (runs, None) => or_dash(runs).to_owned(),
            (runs, Some(to)) if runs == Some(to) => format!("→ {to}"),
            (runs, Some(to)) => format!("{} → {to}", or_dash(runs)),
        }
    }
}

/// Returns the done, the moving and the empty part of a bar. The counts may come from a status that is not ours.
fn bar(length: usize, done: usize, moving: usize, all: usize) -> String {
    let share = |part: usize| {
        let share = length.saturating_mul(part).checked_div(all);
        share.unwrap_or(0).min(length)
    };
    let (done, begun) = (share(done), share(done.saturating_add(moving)));
    "█".repeat(done) + &"▒".repeat(begun - done) + &"░".repeat(length - begun)
}
