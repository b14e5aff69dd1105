//! What was checked, and what came of it, as a table; and what all checks ask.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_testbed::audit::AuditReader;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{AuditLog, ControlPlane};
use serde_json::{Value as Json, json};
use tokio::time::sleep;

/// For how long writes are counted once nothing is left to do.
const AT_REST: Duration = Duration::from_secs(20);
/// Conditions follow what they are about within this time: it is awaited until none was written for as long.
const QUIET: Duration = Duration::from_secs(5);

/// One promise beside one program.
pub struct Check {
    /// As the program's file is called.
    pub program: &'static str,
    /// What was to be so.
    pub what: String,
    /// What was so.
    pub found: String,
    /// Is that the same?
    pub holds: bool,
}

impl Check {
    /// What was to be so, what was found, and whether that is the same.
    pub fn new(program: &'static str, what: &str, found: impl Into<String>, holds: bool) -> Self {
        Self { program, what: what.to_owned(), found: found.into(), holds }
    }
}

/// All checks of a run.
pub struct Report {
    versions: BTreeMap<String, String>,
    rows: Vec<Check>,
    failed: bool,
}

impl Report {
    /// Of the programs in this folder.
    pub fn of(programs: &Path) -> Result<Self> {
        let file = programs.join("versions");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let versions = text.lines().filter_map(|line| line.split_once(' '));
        let versions = versions.map(|(program, version)| (program.to_owned(), version.to_owned())).collect();
        Ok(Self { versions, rows: vec![], failed: false })
    }

    /// More of them.
    pub fn add(&mut self, checks: Vec<Check>) {
        self.rows.extend(checks);
    }

    /// A program could not be checked.
    pub fn failed(&mut self, program: &str, error: &anyhow::Error) {
        eprintln!("{program}: {error:#}");
        self.failed = true;
    }

    /// Did everything hold?
    pub fn holds(&self) -> bool {
        !self.failed && self.rows.iter().all(|check| check.holds)
    }

    /// The table.
    pub fn render(&self) -> String {
        let head = ["PROGRAM", "VERSION", "CHECK", "FOUND", "HOLDS"].map(str::to_owned);
        let row = |check: &Check| {
            let version = self.versions.get(check.program).cloned().unwrap_or_default();
            let holds = if check.holds { "yes" } else { "NO" };
            [check.program.to_owned(), version, check.what.clone(), check.found.clone(), holds.to_owned()]
        };
        let rows: Vec<_> = std::iter::once(head).chain(self.rows.iter().map(row)).collect();
        let widths: [usize; 5] =
            std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
        let line = |row: &[String; 5]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// `kubectl apply --server-side` of these objects.
pub async fn apply(control_plane: &ControlPlane, name: &str, objects: &[Json]) -> Result<()> {
    let file = control_plane.dir().join(format!("{name}.json"));
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    apply_files(control_plane, &file).await
}

/// `kubectl apply --server-side` of a file, or of all files in a folder.
pub async fn apply_files(control_plane: &ControlPlane, path: &Path) -> Result<()> {
    let apply = ["apply".as_ref(), "--server-side".as_ref(), "-f".as_ref(), path.as_os_str()];
    control_plane.kubectl(apply).await.map(drop)
}

/// The operator writes nothing any more once nothing is left to do: Leases and questions aside.
pub async fn rests(program: &'static str, audit: &AuditLog) -> Result<Check> {
    let ours = format!("system:serviceaccount:{NAMESPACE}:");
    let mut reader = audit.from_now();
    let mut writes = written(&mut reader, &ours, QUIET).await?;
    for _ in 0..10 {
        if writes.is_empty() {
            break;
        }
        writes = written(&mut reader, &ours, QUIET).await?;
    }
    writes.extend(written(&mut reader, &ours, AT_REST).await?);
    let seconds = AT_REST.as_secs();
    let all: usize = writes.values().sum();
    let found = if all == 0 { "none".to_owned() } else { format!("{writes:?}") };
    Ok(Check::new(program, &format!("at rest, the operator's writes in {seconds} s: none"), found, all == 0))
}

/// What is written by users whose names begin so, for this long.
async fn written(reader: &mut AuditReader, users: &str, time: Duration) -> Result<BTreeMap<String, usize>> {
    sleep(time).await;
    let mut writes = BTreeMap::new();
    for event in reader.read()? {
        let Some(object) = &event.object_ref else { continue };
        let is_write = matches!(event.verb.as_str(), "create" | "update" | "patch" | "delete")
            && !event.request_uri.contains("dryRun=")
            && !matches!(object.resource.as_str(), "leases" | "tokenreviews" | "subjectaccessreviews");
        if is_write && event.user.username.starts_with(users) {
            *writes.entry(format!("{} {}", event.verb, object.resource)).or_default() += 1;
        }
    }
    Ok(writes)
}
