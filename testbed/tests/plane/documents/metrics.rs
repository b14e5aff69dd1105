//! Metrics: each that is exported or asked for has a row, where people look it up.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use brupop_core::decide::Reason;
use brupop_testbed::read;

use super::{ALERTS, DASHBOARD, REFERENCE};

/// The file that names the reconciler's metrics.
const OF_RECONCILER: &str = "reconciler/src/metrics.rs";

#[test]
fn each_metric_is_documented() -> Result<()> {
    let document = read(REFERENCE)?;
    let rows: Vec<_> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .collect();
    let webhooks = brupop_webhook::metrics::Metrics::default().render();
    let described = webhooks
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut names: Vec<_> = described.map(|(name, _)| name.to_owned()).collect();
    let text = read(OF_RECONCILER)?;
    let helped = text.lines().filter_map(|line| line.split_once(": "));
    let of_reconciler: BTreeSet<_> = helped
        .filter(|(name, _)| name.starts_with("brupop_"))
        .map(|(name, _)| name.to_owned())
        .collect();
    ensure!(of_reconciler.len() > 25, "{of_reconciler:?}");
    names.extend(of_reconciler);
    for name in names {
        let is_of = |word: &str| {
            let kinds = ["", "_total", "_info", "_seconds"];
            word.strip_prefix(name.as_str())
                .is_some_and(|rest| kinds.contains(&rest))
        };
        let is_documented = rows.iter().any(|row| row.split(['`', '{']).any(is_of));
        ensure!(is_documented, "{REFERENCE} has no row for {name}");
    }
    Ok(())
}

/// In both files that ask for metrics.
#[test]
fn each_metric_that_is_asked_for_is_documented() -> Result<()> {
    let documented = words(&read(REFERENCE)?);
    for file in [DASHBOARD, ALERTS] {
        let asked = words(&read(file)?);
        ensure!(asked.len() > 15, "only {asked:?}");
        let unknown: Vec<_> = asked.difference(&documented).collect();
        ensure!(unknown.is_empty(), "{REFERENCE} does not have {unknown:?}");
    }
    Ok(())
}

#[test]
fn each_reason_that_is_asked_for_exists() -> Result<()> {
    // Of connections, and of containers.
    const OTHERS: [&str; 3] = ["room", "ContainerCreating", "PodInitializing"];
    for file in [DASHBOARD, ALERTS] {
        let text = read(file)?.replace('\\', "");
        let selectors = text.split("reason").filter_map(|rest| {
            let values = rest.trim_start_matches(['=', '!', '~']);
            (values.len() < rest.len()).then(|| values.split('"').nth(1))?
        });
        let asked: BTreeSet<_> = selectors.flat_map(|words| words.split('|')).collect();
        let unknown: Vec<_> = asked
            .iter()
            .filter(|word| !Reason::WORDS.contains(word) && !OTHERS.contains(word))
            .collect();
        ensure!(
            !asked.is_empty() && unknown.is_empty(),
            "{file}: {unknown:?}"
        );
    }
    Ok(())
}

/// The names of metrics in a text.
fn words(text: &str) -> BTreeSet<String> {
    let words =
        text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
    let metrics = words.filter(|word| word.starts_with("brupop_"));
    let of_histogram = |word: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        parts
            .iter()
            .find_map(|part| word.strip_suffix(part))
            .unwrap_or(word)
            .to_owned()
    };
    metrics.map(of_histogram).collect()
}
