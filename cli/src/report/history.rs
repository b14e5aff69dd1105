//! The outcome of each version, and the operator's Events.

use std::collections::BTreeMap;

use brupop_api::BottlerocketFleet;
use brupop_api::crds::NAME_MAX;
use brupop_api::fleet::{NodeFailure, VersionRecord};
use comfy_table::Color;
use serde::Serialize;

use super::{name, or_dash, time, version, word};
use crate::event::{self, Event, latest};
use crate::page::{Page, View};
use crate::table::{self, Cell, notes};
use crate::words::{shown, variant};

/// This many Events are shown.
const EVENTS: usize = 200;

/// The history of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct History {
    /// Outcomes of versions, by version.
    pub versions: Vec<VersionHistory>,
    /// When an update last ended, well or not.
    pub last_finished: Option<String>,
    pub events: Vec<Event>,
    /// Parts that could not be read.
    pub notes: Vec<String>,
}

/// The outcome of a version for a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionHistory {
    pub version: String,
    pub variant: String,
    /// When two hosts named it, which the reconciler notes while there are pools; else when the oldest update under way began.
    pub first_seen: Option<String>,
    /// Number of nodes that are being updated to it.
    pub updating: usize,
    /// Number of nodes that have reached it.
    pub succeeded: u64,
    /// The nodes that failed to reach it last.
    pub failures: Vec<NodeFailure>,
    /// When the last failure was counted that halts it.
    pub halted_at: Option<String>,
}

/// Shows what has happened to the fleet; these are Events, and why there are none.
pub(crate) fn of(fleet: &BottlerocketFleet, (events, notes): (Vec<Event>, Vec<String>)) -> History {
    let status = fleet.status.as_ref();
    let slots = status.iter().flat_map(|status| status.slots.values());
    let mut versions = BTreeMap::new();
    for record in status.iter().flat_map(|status| &status.versions) {
        versions.insert((&*record.version, &*record.variant), of_version(record));
    }
    for slot in slots {
        let release = slot.version.as_deref().zip(slot.variant.as_deref());
        let Some((of, for_variant)) = release else {
            continue;
        };
        let entry = versions.entry((of, for_variant));
        let entry = entry.or_insert_with(|| VersionHistory {
            version: version(of),
            variant: variant(for_variant),
            ..VersionHistory::default()
        });
        entry.updating += 1;
        let since = slot.since.as_deref().map(time);
        entry.first_seen = entry.first_seen.take().into_iter().chain(since).min();
    }
    let last_finished = status.and_then(|status| status.last_finished.as_deref());
    History {
        versions: versions.into_values().collect(),
        last_finished: last_finished.map(time),
        events: latest(&events, EVENTS),
        notes,
    }
}

fn of_version(record: &VersionRecord) -> VersionHistory {
    let failures = record.failures.iter().map(|failure| NodeFailure {
        node: name(&failure.node),
        at: time(&failure.at),
        reason: word(&failure.reason),
    });
    VersionHistory {
        version: version(&record.version),
        variant: variant(&record.variant),
        first_seen: record.reported_at.as_deref().map(time),
        updating: 0,
        succeeded: record.succeeded,
        failures: failures.collect(),
        halted_at: record.halted_at.as_deref().map(time),
    }
}

impl View for History {
    fn text(&self, page: &Page) -> String {
        let finished = match self.last_finished.as_deref() {
            Some(at) => format!("The last update ended {} ago\n", page.age(at)),
            None => "No update has ended yet\n".to_owned(),
        };
        let head = "VERSION|VARIANT|FIRST SEEN|REACHED BY|UNDER WAY|FAILED ON";
        let ranks = [0, 1, 2, 0, 3, 0];
        let rows = self.versions.iter().map(|outcome| outcome.row(page));
        finished
            + &table::section("VERSIONS", head, &ranks, rows.collect(), page)
            + &event::section(&self.events, false, page)
            + &notes(&self.notes, page)
    }
}

impl VersionHistory {
    fn row(&self, page: &Page) -> Vec<Cell> {
        let failed =
            |it: &NodeFailure| format!("{} ({}, {} ago)", it.node, it.reason, page.age(&it.at));
        let failures: Vec<String> = self.failures.iter().map(failed).collect();
        let mut failures = shown(&failures.join(", "), 2 * NAME_MAX);
        if failures.is_empty() {
            failures.push('-');
        }
        let halted = self.halted_at.as_deref().map(|at| page.age(at));
        let failures = match halted {
            Some(age) => Cell::new(format!("{failures}\nhalted {age} ago")).fg(Color::DarkRed),
            None => Cell::new(failures),
        };
        let seen = self.first_seen.as_deref().map(|at| page.age(at));
        vec![
            Cell::new(&self.version),
            Cell::new(&self.variant),
            Cell::new(or_dash(seen.as_deref())),
            Cell::new(format!("{} nodes", self.succeeded)),
            Cell::new(self.updating),
            failures,
        ]
    }
}
