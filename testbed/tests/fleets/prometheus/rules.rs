//! The shipped rules by themselves: what each of them needs to fire, and how long it waits.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::prometheus::promtool;
use brupop_testbed::sandbox::Sandbox;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::scraping::RULES;

/// Assertions for promtool about the rules, by how often they are evaluated.
const TESTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fleets/prometheus/alerts.test.yaml"
);

#[derive(Deserialize)]
struct Test {
    /// Between two values of a series; a minute, if nothing is said.
    interval: Option<String>,
    series: BTreeMap<String, String>,
    /// Firing alerts, by rule (the second of an alert's rules is called `Alert 2`) and time.
    #[serde(flatten)]
    alerts: BTreeMap<String, BTreeMap<String, Vec<BTreeMap<String, String>>>>,
}

impl Test {
    /// As promtool takes it: with what the rules say themselves.
    fn in_full(&self, rules: &BTreeMap<String, Value>) -> Result<Value> {
        let mut asked = vec![];
        for (name, times) in &self.alerts {
            let rule = rules
                .get(name)
                .with_context(|| format!("there is no {name}"))?;
            for (time, alerts) in times {
                let in_full = |said: &BTreeMap<String, String>| {
                    let (mut labels, mut annotations) = (json!(said), rule["annotations"].clone());
                    annotations["summary"] = labels["summary"].take();
                    json_patch::merge(&mut labels, &rule["labels"]);
                    json_patch::merge(&mut labels, &json!({"summary": null}));
                    json!({"exp_labels": labels, "exp_annotations": annotations})
                };
                let alerts: Vec<_> = alerts.iter().map(in_full).collect();
                let alert = name.split(' ').next();
                asked.push(json!({"alertname": alert, "eval_time": time, "exp_alerts": alerts}));
            }
        }
        let series = self
            .series
            .iter()
            .map(|(series, values)| json!({"series": series, "values": values}));
        let interval = self.interval.as_deref().unwrap_or("1m");
        Ok(
            json!({"interval": interval, "input_series": series.collect::<Vec<_>>(), "alert_rule_test": asked}),
        )
    }
}

#[tokio::test]
async fn each_alert_fires_when_due_and_not_before() -> Result<()> {
    let rules = rules()?;
    let tests: BTreeMap<String, Vec<Test>> = read(TESTS)?;
    let asked = || tests.values().flatten().flat_map(|test| &test.alerts);
    for (what, fires) in [("that it is silent", false), ("that it fires", true)] {
        let says =
            |times: &BTreeMap<_, Vec<_>>| times.values().any(|alerts| alerts.is_empty() != fires);
        let is_tested = |rule: &&String| asked().any(|(name, times)| name == *rule && says(times));
        let forgotten: Vec<_> = rules.keys().filter(|rule| !is_tested(rule)).collect();
        ensure!(
            forgotten.is_empty(),
            "{TESTS} does not say of {forgotten:?} {what}"
        );
    }
    promtool(&["check", "rules", RULES], "").await?;
    let folder = Sandbox::new()?;
    for (every, tests) in &tests {
        let tests = tests
            .iter()
            .map(|test| test.in_full(&rules))
            .collect::<Result<Vec<_>>>()?;
        let rule_files = [Path::new(RULES).canonicalize()?];
        let all = json!({"rule_files": rule_files, "evaluation_interval": every, "tests": tests});
        let file = folder.dir().join(format!("{every}.yaml"));
        std::fs::write(&file, all.to_string())?;
        promtool(&["test", "rules", &file.display().to_string()], "").await?;
    }
    Ok(())
}

/// Or what is well in one cluster hides what is wrong in another, where one Prometheus evaluates the rules for both.
#[test]
fn each_alert_tells_clusters_apart() -> Result<()> {
    for rule in rules()?.values() {
        let expression = rule["expr"].as_str().context("no expression")?;
        let merges = |name: &&str| expression.contains(&format!("{name}("));
        ensure!(
            !["sum", "max", "min", "count", "avg"].iter().any(merges),
            "{rule}"
        );
        let grouped = expression.matches("by (").count();
        ensure!(
            grouped > 0 && grouped == expression.matches("by (cluster").count(),
            "{rule}"
        );
    }
    Ok(())
}

fn read<T: DeserializeOwned>(path: &'static str) -> Result<T> {
    let text = std::fs::read_to_string(path).context(path)?;
    serde_yaml_ng::from_str(&text).context(path)
}

/// The shipped rules, by name; the second of an alert's rules is called `Alert 2`.
fn rules() -> Result<BTreeMap<String, Value>> {
    let file: Value = read(RULES)?;
    let rules = file["groups"][0]["rules"]
        .as_array()
        .filter(|rules| !rules.is_empty())
        .context("no rules")?;
    let mut named = BTreeMap::new();
    for rule in rules {
        let alert = rule["alert"].as_str().context("a rule without alert")?;
        let (first, second) = (alert.to_owned(), format!("{alert} 2"));
        let name = if named.contains_key(&first) {
            second
        } else {
            first
        };
        ensure!(
            named.insert(name, rule.clone()).is_none(),
            "{alert} has three rules"
        );
    }
    Ok(named)
}
