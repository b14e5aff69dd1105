//! What became of each version, and what the operator told of.

use brupop_api::crds::NAME_MAX;
use brupop_api::fleet::VersionRecord;
use serde::Serialize;

use super::{EventRow, events, latest, name, notes, or_dash, sentence, time, version, word};
use crate::gather::Past;
use crate::page::{Page, Tone, View, age, section};
use crate::table::{Cell, table};
use crate::words::shown;

/// This many Events are shown.
const EVENTS: usize = 200;

/// What has happened to the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct History {
    /// In the order of their first results.
    pub versions: Vec<VersionHistory>,
    /// When an update last ended, well or not.
    pub last_finished: Option<String>,
    pub events: Vec<EventRow>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// What became of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionHistory {
    pub version: String,
    /// When two nodes first wanted it, or ran it. The reconciler notes this while there are pools; a first result before that
    /// counts instead.
    pub first_seen: Option<String>,
    /// When the first node reached it, or failed to.
    pub first_result: Option<String>,
    /// How many nodes have reached it.
    pub succeeded: u64,
    /// The nodes that failed to reach it last.
    pub failures: Vec<FailureRow>,
    /// Why no further node is updated to it.
    pub halted: Option<String>,
    /// When the last failure was counted that halts it.
    pub halted_at: Option<String>,
    /// Up to when a person has lifted its halts.
    pub acknowledged_at: Option<String>,
}

/// A node that failed to reach a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureRow {
    pub node: String,
    pub at: String,
    pub reason: String,
}

/// What has happened to the fleet.
pub(crate) fn of(past: &Past) -> History {
    let status = past.fleet.status.as_ref();
    let records = status.into_iter().flat_map(|status| &status.versions);
    let noted = |version: &str| status.and_then(|status| status.seen.get(version));
    let outcome =
        |(version, record): (&String, &VersionRecord)| of_version(version, record, noted(version));
    let mut versions: Vec<VersionHistory> = records.map(outcome).collect();
    versions.sort_by(|one, other| one.first_result.cmp(&other.first_result));
    History {
        versions,
        last_finished: status
            .and_then(|status| status.last_finished.as_deref())
            .map(time),
        events: latest(past.events.clone(), EVENTS),
        notes: past.notes.clone(),
    }
}

fn of_version(of: &str, record: &VersionRecord, noted: Option<&String>) -> VersionHistory {
    let first_result = record.first_seen.as_deref().map(time);
    let failures = record.failures.iter().map(|failure| FailureRow {
        node: name(&failure.node),
        at: time(&failure.at),
        reason: word(&failure.reason),
    });
    VersionHistory {
        version: version(of),
        first_seen: noted
            .map(|at| time(at))
            .into_iter()
            .chain(first_result.clone())
            .min(),
        first_result,
        succeeded: record.succeeded,
        failures: failures.collect(),
        halted: record.halted.as_ref().map(|halt| sentence(&halt.reason)),
        halted_at: record.halted.as_ref().map(|halt| time(&halt.at)),
        acknowledged_at: record.acknowledged_at.as_deref().map(time),
    }
}

impl View for History {
    fn text(&self, page: &Page) -> String {
        let finished = self.last_finished.as_deref().map_or_else(
            || "No update has ended yet\n".to_owned(),
            |at| format!("The last update ended {} ago\n", age(at, page.now)),
        );
        let rows: Vec<_> = self
            .versions
            .iter()
            .map(|outcome| outcome.row(page))
            .collect();
        let head = [
            ("VERSION", 0),
            ("FIRST SEEN", 1),
            ("FIRST RESULT", 2),
            ("REACHED BY", 0),
            ("FAILED ON", 0),
        ];
        let versions = table(&head, &rows, page);
        finished
            + &section("VERSIONS", &versions)
            + &section("EVENTS", &events(&self.events, false, page))
            + &notes(&self.notes, page)
    }
}

impl VersionHistory {
    fn row(&self, page: &Page) -> Vec<Cell> {
        let failed =
            |it: &FailureRow| format!("{} ({}, {} ago)", it.node, it.reason, age(&it.at, page.now));
        let failures: Vec<String> = self.failures.iter().map(failed).collect();
        let failures = if failures.is_empty() {
            "-".to_owned()
        } else {
            failures.join(", ")
        };
        let failures = shown(&failures, 2 * NAME_MAX);
        let failures = match (&self.halted, &self.acknowledged_at) {
            (Some(why), _) => Cell::toned(Tone::Bad, &format!("{failures}\nhalted: {why}")),
            (None, Some(at)) => Cell::new(format!("{failures}\nits halt was lifted up to {at}")),
            (None, None) => Cell::new(failures),
        };
        let age = |at: &Option<String>| at.as_deref().map(|at| age(at, page.now));
        vec![
            Cell::new(&self.version),
            Cell::new(or_dash(age(&self.first_seen).as_deref())),
            Cell::new(or_dash(age(&self.first_result).as_deref())),
            Cell::new(format!("{} nodes", self.succeeded)),
            failures,
        ]
    }
}
