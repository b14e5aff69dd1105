//! Checks documents against the programs, without a control plane. The commands in documents are run by the tests that
//! have a cluster for it.

mod dashboard;
mod metrics;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use brupop_api::names::admission_check::{NODE_RULE, STATUS_RULE};
use brupop_cli::Arguments;
use brupop_testbed::read;
use clap::Parser as _;
use serde_json::Value;

/// Alerts, as Prometheus reads them.
const ALERTS: &str = "kustomize/components/prometheus-sample/alerts.yaml";
/// The dashboard, as Grafana reads it.
const DASHBOARD: &str = "kustomize/components/prometheus-operator/dashboard.json";
/// All reasons, settings, fields, metrics and Events.
const REFERENCE: &str = "docs/reference.md";

#[test]
fn kubectl_brupop_understands_documented_commands() -> Result<()> {
    let documents = [read("README.md")?, read("docs/operations.md")?].join("\n");
    let commands: Vec<&str> = documents
        .lines()
        .filter_map(|line| line.strip_prefix("kubectl brupop "))
        .collect();
    ensure!(commands.len() > 10, "{commands:?}");
    for words in commands {
        let parsed =
            Arguments::try_parse_from(std::iter::once("kubectl-brupop").chain(words.split(' ')));
        ensure!(parsed.is_ok(), "{words}: {parsed:?}");
    }
    Ok(())
}

#[test]
fn each_alert_has_a_section_in_the_runbook() -> Result<()> {
    const RUNBOOK: &str =
        "https://github.com/bottlerocket-update-operator/brupop/blob/main/docs/operations.md#";
    let document = read("docs/operations.md")?;
    let headings: BTreeSet<_> = document
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(str::to_lowercase)
        .collect();
    let rules: Value = serde_yaml_ng::from_str(&read(ALERTS)?)?;
    for rule in rules["groups"][0]["rules"].as_array().context("no rules")? {
        let url = rule["annotations"]["runbook_url"].as_str();
        let section = url.and_then(|url| url.strip_prefix(RUNBOOK));
        ensure!(
            section.is_some_and(|section| headings.contains(section)),
            "{rule}"
        );
    }
    Ok(())
}

#[test]
fn each_event_is_documented() -> Result<()> {
    // An action, and a part of an API server's answer.
    const OTHERS: [&str; 2] = ["AutoLabel", "ValidatingAdmissionPolicy"];
    let document = read(REFERENCE)?;
    let (_, rows) = document.split_once("\n## Events\n").context("no rows")?;
    let code = read("reconciler/core/src/status/events.rs")?;
    let outcomes = "\n// The result of an update";
    let (code, _) = code.split_once(outcomes).context("no outcomes")?;
    let texts = code.split('"').skip(1).step_by(2);
    let words: BTreeSet<_> = texts
        .filter(|text| text.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter(|text| text.chars().all(|letter| letter.is_ascii_alphabetic()))
        .filter(|text| !OTHERS.contains(text))
        .collect();
    ensure!(words.len() > 10, "{words:?}");
    for word in words {
        ensure!(
            rows.contains(&format!("`{word}`")),
            "{REFERENCE} lacks {word}"
        );
    }
    Ok(())
}

/// The reconciler looks for its policy's word in the refusal of its dry runs.
#[test]
fn the_policy_says_the_rules_by_which_it_is_known() -> Result<()> {
    let policy = read("manifests/policies.yaml")?;
    ensure!(
        [NODE_RULE, STATUS_RULE]
            .iter()
            .all(|rule| policy.contains(&format!("{rule}: ")))
    );
    Ok(())
}
