//! The fleet at a glance, as a text for people.

use std::collections::BTreeMap;

use brupop_api::names::{UPDATER_INTERFACE_LABEL, UPDATER_INTERFACE_VERSION};
use brupop_core::decide::{Named, Reason, WHAT_TO_DO};
use comfy_table::Color;

use super::super::{nothing_named, or_dash};
use super::view::{Glance, Moving, NodeLine, PoolLine, Standing};
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
        let text = self.progress(page)
            + &facts(self.head(page), page)
            + &self.moving(page)
            + &self.waiting(page)
            + &self.pools(page);
        let rows = usize::from(page.rows.unwrap_or(0));
        // A blank, a title, a head, and the line of the shell.
        let has_room = text.lines().count() + 4 + self.each.len() <= rows;
        let rest = if has_room { Self::each } else { Self::states };
        text + &rest(self, page)
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
        facts(vec![(&bar, counts, Some(Color::DarkGreen))], page)
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
            let reason = Reason::VersionHalted(version);
            let remedy = reason.remedy(&Named { version, ..named });
            let why = format!("{version} for {} {age} ago: {}", it.variant, it.why);
            add(
                Color::DarkRed,
                "Halted:",
                format!("{why}{WHAT_TO_DO}{remedy}"),
            );
        }
        for left in &self.left_by_people {
            let about = format!("{}: {}", left.message, some(&left.nodes, usize::MAX));
            add(Color::DarkYellow, "For the next update:", about);
        }
        if !self.out_of_service.is_empty() {
            let nodes = some(&self.out_of_service, usize::MAX);
            let about = format!("cordoned or not Ready, and not being updated: {nodes}");
            add(Color::DarkYellow, "Out of service:", about);
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
                "opted-in nodes: {count}; if this lasts, their Events say why (kubectl events -n default)"
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
            vec![
                Cell::new(&moving.node),
                Cell::new(reason).fg(color),
                age(&moving.since),
                age(&moving.updating_since),
                Cell::new(moving.way()),
                Cell::new(page.sentence(&moving.message)),
            ]
        };
        let head = "NODE|REASON|SINCE|UPDATING|FROM → TO|WHY";
        let ranks = [0, 0, 1, 4, 3, 2];
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
        let why = format!("for different causes, which {why} shows");
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
        let row = |line: &PoolLine| {
            let count = |standing| self.count(standing, |node| node.pool == line.pool);
            let [done, moving, waits] =
                [Standing::UpToDate, Standing::Moving, Standing::Waiting].map(count);
            let all = done + moving + waits;
            // Without reports or a leader nothing is known.
            let done = self.updated_nodes.map_or(0, |_| done);
            let bar = bar(POOL_BAR, done, moving, all);
            // The reasons of its nodes stand above.
            let mut waiting = self.waiting.iter();
            let is_told = waiting.any(|group| group.message == line.message)
                || ["Updating", Reason::NoUpdate.as_str()].contains(&line.reason.as_str());
            let why = page.sentence(&line.message);
            vec![
                Cell::new(&line.pool),
                Cell::new(format!("{bar} {done} of {all}")),
                Cell::new(format!("{moving} of {}", line.unavailable_limit)),
                Cell::new(waits),
                Cell::new(&line.reason).fg(Color::DarkYellow),
                Cell::new(if is_told { "" } else { &why }),
            ]
        };
        let head = "POOL|UP TO DATE|MOVING|WAITING|REASON|WHY";
        let ranks = [0, 0, 3, 4, 1, 2];
        let rows = self.pools.iter().map(row).collect();
        section("POOLS", head, &ranks, rows, page)
    }

    fn each(&self, page: &Page) -> String {
        let row = |line: &NodeLine| {
            let (version, state) = (or_dash(line.version.as_deref()), or_dash(line.state));
            [&line.node, version, state, &line.pool, &line.reason]
                .map(Cell::new)
                .to_vec()
        };
        let head = "NODE|VERSION|STATE|POOL|REASON";
        let rows = self.each.iter().map(row).collect();
        section("NODES", head, &[0, 1, 3, 2, 0], rows, page)
    }

    fn states(&self, page: &Page) -> String {
        let mut states = BTreeMap::<_, usize>::new();
        for line in &self.each {
            let (version, state) = (or_dash(line.version.as_deref()), or_dash(line.state));
            *states.entry((version, state)).or_default() += 1;
        }
        let rows = states.into_iter().map(|((version, state), nodes)| {
            vec![Cell::new(version), Cell::new(state), Cell::new(nodes)]
        });
        let rows = rows.collect();
        section("VERSIONS", "VERSION|STATE|NODES", &[0; 3], rows, page)
    }
}

impl Moving {
    /// Returns from which version to which it goes.
    fn way(&self) -> String {
        match (self.from.as_deref(), self.to.as_deref()) {
            (from, None) => or_dash(from).to_owned(),
            (from, Some(to)) if from == Some(to) => format!("→ {to}"),
            (from, Some(to)) => format!("{} → {to}", or_dash(from)),
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
