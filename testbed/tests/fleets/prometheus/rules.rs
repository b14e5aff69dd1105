//! The shipped rules by themselves: what each of them needs to fire, and how long it waits.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use brupop_testbed::prometheus::{RULES, promtool};

/// What promtool is to find true of the rules.
const TESTS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleets/prometheus/alerts.test.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleets/prometheus/alerts-days.test.yaml"),
];

#[tokio::test]
async fn each_alert_fires_when_due_and_not_before() -> Result<()> {
    let rules = read(RULES)?;
    let rules = names(rules["groups"].as_array(), "rules", "alert", |_| true);
    ensure!(!rules.is_empty(), "{RULES} has no rules");
    let mut tests = vec![];
    for file in TESTS {
        tests.extend(read(file)?["tests"].as_array().context(file)?.clone());
    }
    for (what, fires) in [("that it is silent", false), ("that it fires", true)] {
        let is =
            |test: &Value| test["exp_alerts"].as_array().is_some_and(|alerts| alerts.is_empty() != fires);
        let tested = names(Some(&tests), "alert_rule_test", "alertname", is);
        let forgotten: Vec<_> = rules.difference(&tested).collect();
        ensure!(forgotten.is_empty(), "{TESTS:?} do not say of {forgotten:?} {what}");
    }
    promtool(&["check", "rules", RULES], "").await?;
    promtool(&["test", "rules", TESTS[0], TESTS[1]], "").await
}

/// Or what is well in one cluster hides what is wrong in another, where one Prometheus evaluates the rules for both.
#[test]
fn each_alert_tells_clusters_apart() -> Result<()> {
    for rule in read(RULES)?["groups"][0]["rules"].as_array().context("no rules")? {
        let expression = rule["expr"].as_str().context("no expression")?;
        let merges = |name: &&str| expression.contains(&format!("{name}("));
        ensure!(!["sum", "max", "min", "count", "avg"].iter().any(merges), "{rule}");
        let grouped = expression.matches("by (").count();
        ensure!(grouped > 0 && grouped == expression.matches("by (cluster").count(), "{rule}");
    }
    Ok(())
}

fn read(path: &'static str) -> Result<Value> {
    let text = std::fs::read_to_string(path).context(path)?;
    serde_yaml_ng::from_str(&text).context(path)
}

/// What these lists of these groups' members call by this key.
fn names(
    groups: Option<&Vec<Value>>,
    list: &str,
    key: &str,
    is_meant: impl Fn(&Value) -> bool,
) -> BTreeSet<String> {
    let members = groups.into_iter().flatten().filter_map(|group| group[list].as_array()).flatten();
    let meant = members.filter(|member| is_meant(member));
    meant.filter_map(|member| member[key].as_str()).map(str::to_owned).collect()
}
