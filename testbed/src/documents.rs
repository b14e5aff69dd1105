//! The documents that tests read. They are read when a test runs, so that an edited sentence compiles nothing.

use std::path::Path;

use anyhow::{Context as _, Result};

pub const README: &str = "README.md";
/// Alerts, as Prometheus reads them.
pub const ALERTS: &str = "kustomize/components/prometheus-sample/alerts.yaml";
/// The dashboard, as Grafana reads it.
pub const DASHBOARD: &str = "kustomize/components/prometheus-operator/dashboard.json";
/// The page about installing: overlays, labels, settings, components.
pub const INSTALL: &str = "docs/install.md";
pub const MIGRATING: &str = "docs/migrating.md";
/// The page for people on call.
pub const OPERATIONS: &str = "docs/operations.md";
pub const POOLS: &str = "docs/pools.md";
/// All reasons, settings, fields, metrics and Events.
pub const REFERENCE: &str = "docs/reference.md";
/// Accounts, rules of admission, the audit log.
pub const SECURITY: &str = "docs/security.md";

/// The text of a file of the repository.
pub fn read(path: &str) -> Result<String> {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path);
    std::fs::read_to_string(file).with_context(|| path.to_owned())
}

/// Returns what stands under a heading such as `## Gates`, up to the next one of its level or above.
pub fn section<'d>(document: &'d str, heading: &str) -> Result<&'d str> {
    let (_, below) = document
        .split_once(&format!("\n{heading}\n"))
        .with_context(|| format!("no heading {heading}"))?;
    let level = level_of(heading);
    let (mut end, mut is_code) = (0, false);
    for line in below.split_inclusive('\n') {
        is_code ^= line.starts_with("```");
        if !is_code && (1..=level).contains(&level_of(line)) {
            break;
        }
        end += line.len();
    }
    Ok(&below[..end])
}

/// Returns how many hashes a heading has; 0 if this is none.
fn level_of(line: &str) -> usize {
    let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
    if line[hashes..].starts_with(' ') {
        hashes
    } else {
        0
    }
}

/// The code blocks of a language, in their order.
pub fn blocks<'d>(text: &'d str, language: &str) -> Vec<&'d str> {
    let begin = format!("```{language}\n");
    text.split(begin.as_str())
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect()
}
