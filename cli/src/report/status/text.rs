//! The fleet at a glance, as a text for people.

use std::collections::BTreeMap;

use brupop_api::names;
use brupop_core::decide::Reason;

use super::super::or_dash;
use super::view::{Count, Glance, HaltedVersion, LeftByPeople, Moving, PoolLine, WaitingNodes};
use crate::page::{Page, Tone, View, age, section, wrapped};
use crate::table::{Cell, some, table};
use crate::words::{Argument, brupop};

/// Characters of the progress bar, where the line has room for them.
const BAR: usize = 30;
/// A shorter bar shows nothing.
const SHORTEST_BAR: usize = 10;
/// Characters of the progress bar of a pool.
const POOL_BAR: usize = 10;
/// Rows for one reason. Further nodes, such as those that back off until times of their own, share one.
const ROWS_OF_REASON: usize = 3;

impl View for Glance {
    /// What a terminal may have no room for comes last.
    fn text(&self, page: &Page) -> String {
        let mut text = self.head(page);
        text += &section("MOVING", &self.moving(page));
        text += &section("WAITING", &self.waiting(page));
        text += &section("POOLS", &self.pools(page));
        text += &section("VERSIONS", &self.states(page));
        text
    }
}

impl Glance {
    /// The bar, and how many nodes are how far.
    fn progress(&self, page: &Page) -> String {
        let waits: usize = self.waiting.iter().map(|group| group.nodes.len()).sum();
        let limit = self
            .unavailable_limit
            .map_or("?".to_owned(), |limit| limit.to_string());
        let counts = format!(
            "{} of {} nodes up to date, {} moving, {waits} waiting; {} of {limit} slots in use",
            self.updated_nodes,
            self.nodes,
            self.moving.len(),
            self.updating_nodes,
        );
        let room = page.width().saturating_sub(counts.len() + 1).min(BAR);
        if room < SHORTEST_BAR {
            wrapped(&counts, page.width()).join("\n")
        } else {
            format!(
                "{} {counts}",
                bar(room, self.updated_nodes, self.moving.len(), self.nodes)
            )
        }
    }

    fn head(&self, page: &Page) -> String {
        let mut text = self.progress(page);
        text.push('\n');
        let mut line =
            |tone: Tone, what: &str, about: &str| text += &tone.paragraph(what, about, page);
        if self.paused {
            let resume = brupop("resume", None, &self.namespace);
            line(
                Tone::Attention,
                "Paused:",
                &format!("no update starts before {resume}"),
            );
        }
        let paused = self.pools.iter().filter(|line| line.paused);
        let resume = |line: &PoolLine| {
            brupop(
                "resume --pool",
                Some(Argument::Pool(&line.pool)),
                &self.namespace,
            )
        };
        let resume: Vec<String> = paused.map(resume).collect();
        if !resume.is_empty() {
            let pools = if resume.len() == 1 {
                "one pool".to_owned()
            } else {
                format!("{} pools", resume.len())
            };
            let resume = some(&resume, usize::MAX);
            line(
                Tone::Attention,
                "Paused:",
                &format!("no update starts in {pools} before {resume}"),
            );
        }
        for obstacle in &self.obstacles {
            line(Tone::Bad, "Nothing starts:", obstacle);
        }
        for HaltedVersion {
            version,
            variant,
            at,
            why,
        } in &self.halted
        {
            let age = age(at, page.now);
            let resume = brupop(
                "resume --version",
                Some(Argument::Version(version)),
                &self.namespace,
            );
            line(
                Tone::Bad,
                &format!("Halted {version} for {variant}"),
                &format!("{age} ago: {why}; to resume: {resume}"),
            );
        }
        for LeftByPeople { message, nodes } in &self.left_by_people {
            let nodes = some(nodes, usize::MAX);
            line(
                Tone::Attention,
                "For the next update:",
                &format!("{message}: {nodes}"),
            );
        }
        if self.not_opted_in_nodes > 0 {
            let about = format!(
                "{} more run Bottlerocket without the label {}={}, and are not updated",
                self.not_opted_in_nodes,
                names::UPDATER_INTERFACE_LABEL,
                names::UPDATER_INTERFACE_VERSION
            );
            line(Tone::Attention, "Not opted in:", &about);
        }
        if self.without_shadow > 0 {
            let about = format!(
                "nodes that are opted in: {}; if that lasts, their Events say why (kubectl events -n default)",
                self.without_shadow
            );
            line(Tone::Bad, "Without a shadow:", &about);
        }
        if !self.unreadable.is_empty() {
            line(Tone::Bad, "Cannot be read:", &self.unreadable.join(", "));
        }
        text
    }

    fn moving(&self, page: &Page) -> String {
        let age =
            |since: Option<&String>| since.map_or("-".to_owned(), |since| age(since, page.now));
        let row = |moving: &Moving| {
            let tone = if moving.overdue {
                Tone::Bad
            } else {
                Tone::Moving
            };
            let overdue = if moving.overdue { " (overdue)" } else { "" };
            vec![
                Cell::new(&moving.node),
                Cell::toned(tone, &format!("{}{overdue}", moving.reason)),
                Cell::new(moving.goal),
                Cell::new(age(moving.since.as_ref())),
                Cell::new(age(moving.updating_since.as_ref())),
                Cell::new(moving.way()),
                Cell::new(if moving.says_more() {
                    moving.message.as_str()
                } else {
                    ""
                }),
            ]
        };
        let head = [
            ("NODE", 0),
            ("REASON", 0),
            ("STATE TO REACH", 4),
            ("SINCE", 1),
            ("UPDATING", 3),
            ("FROM → TO", 2),
            ("WHY", 0),
        ];
        table(
            &head,
            &self.moving.iter().map(row).collect::<Vec<_>>(),
            page,
        )
    }

    fn waiting(&self, page: &Page) -> String {
        let row = |reason: &str, message: &str, nodes: &[String]| {
            vec![
                Cell::toned(Tone::Attention, reason),
                Cell::new(nodes.len().to_string()),
                Cell::new(message).above(nodes),
            ]
        };
        let (mut rows, mut told) = (vec![], BTreeMap::<&str, usize>::new());
        let mut others = BTreeMap::<&str, Vec<String>>::new();
        for WaitingNodes {
            reason,
            message,
            nodes,
        } in &self.waiting
        {
            let told = told.entry(reason).or_default();
            *told += 1;
            if *told <= ROWS_OF_REASON {
                rows.push(row(reason, message, nodes));
            } else {
                others.entry(reason).or_default().extend_from_slice(nodes);
            }
        }
        let why = format!(
            "each for a cause of its own, which {} tells",
            brupop("why", Some(Argument::Node("")), &self.namespace)
        );
        rows.extend(
            others
                .iter()
                .map(|(reason, nodes)| row(reason, &why, nodes)),
        );
        let head = [("REASON", 0), ("NODES", 1), ("WHY, AND WHICH", 0)];
        table(&head, &rows, page)
    }

    fn pools(&self, page: &Page) -> String {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let row = |line: &PoolLine| {
            let counts = &line.counts;
            let (updated, nodes) = (counts.updated_nodes, counts.nodes);
            let bar = parts(
                POOL_BAR,
                number(updated),
                number(counts.updating_nodes),
                number(nodes),
            )
            .concat();
            // What its nodes wait for stands above.
            let told = self
                .waiting
                .iter()
                .any(|group| group.message == line.message);
            let usual = ["Updating", Reason::NoUpdate.as_str()].contains(&line.reason.as_str());
            vec![
                Cell::new(&line.pool),
                Cell::new(format!("{bar} {updated} of {nodes}")),
                Cell::new(counts.updating_nodes.to_string()),
                Cell::new(counts.pending_nodes.to_string()),
                Cell::new(counts.blocked_nodes.to_string()),
                Cell::new(format!(
                    "{} of {}",
                    counts.unavailable_nodes, counts.unavailable_limit
                )),
                Cell::toned(Tone::Attention, &line.reason),
                Cell::new(if told || usual {
                    ""
                } else {
                    line.message.as_str()
                }),
            ]
        };
        let head = [
            ("POOL", 0),
            ("UPDATED", 0),
            ("UPDATING", 3),
            ("PENDING", 4),
            ("BLOCKED", 2),
            ("UNAVAILABLE", 5),
            ("REASON", 1),
            ("WHY", 0),
        ];
        table(&head, &self.pools.iter().map(row).collect::<Vec<_>>(), page)
    }

    fn states(&self, page: &Page) -> String {
        let row = |count: &Count| {
            vec![
                Cell::new(or_dash(count.version.as_deref())),
                Cell::new(or_dash(count.state)),
                Cell::new(count.nodes.to_string()),
            ]
        };
        let head = [("VERSION", 0), ("STATE", 0), ("NODES", 0)];
        table(
            &head,
            &self.states.iter().map(row).collect::<Vec<_>>(),
            page,
        )
    }
}

impl Moving {
    /// Does its sentence say more than its reason?
    fn says_more(&self) -> bool {
        let says_all = Reason::of_word(&self.reason).is_some_and(|reason| {
            let is_step = reason.begins_step() && !matches!(reason, Reason::Monitoring(_));
            is_step || reason == Reason::Finishing
        });
        !says_all || self.message.contains("; ")
    }

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
fn bar(length: usize, done: usize, moving: usize, all: usize) -> String {
    let [done, moving, rest] = parts(length, done, moving, all);
    format!(
        "{}{}{rest}",
        Tone::Good.paint(&done),
        Tone::Moving.paint(&moving)
    )
}

/// The done, the moving and the empty part of a bar of this many characters. The counts may come from a status that is not ours.
fn parts(length: usize, done: usize, moving: usize, all: usize) -> [String; 3] {
    let share = |part: usize| {
        length
            .saturating_mul(part)
            .checked_div(all)
            .unwrap_or(0)
            .min(length)
    };
    let (done, begun) = (share(done), share(done.saturating_add(moving)));
    [
        "█".repeat(done),
        "▒".repeat(begun - done),
        "░".repeat(length - begun),
    ]
}
