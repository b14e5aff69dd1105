//! The dashboard, as Grafana and its linters want it.

use std::collections::BTreeSet;

use anyhow::Result;
use brupop_testbed::read;
use serde_json::Value;

use super::DASHBOARD;

fn dashboard() -> Result<Value> {
    Ok(serde_json::from_str(&read(DASHBOARD)?)?)
}

/// Everything that Grafana does not forgive: ids that occur twice, panels that lie upon each other.
#[test]
fn panels_are_apart() {
    let dashboard = dashboard().unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let number = |panel: &Value, what: &str| panel["gridPos"][what].as_u64().unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let (x, y) = (number(panel, "x"), number(panel, "y"));
        assert!(x + number(panel, "w") <= 24, "{panel}");
        for column in x..x + number(panel, "w") {
            for line in y..y + number(panel, "h") {
                assert!(cells.insert((column, line)), "{panel}");
            }
        }
    }
    assert!(ids.len() > 20);
}

/// The rules of github.com/grafana/dashboard-linter, except those that `.lint` beside it names.
#[test]
fn linters_find_nothing() {
    let dashboard = dashboard().unwrap();
    assert_eq!(dashboard["editable"], false);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let is_source = variable["name"] == "datasource" && variable["label"] == "Data source";
        assert!(
            is_source || variable["refresh"] == 2,
            "{variable} would stay as it is for another time"
        );
    }
    for panel in dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|panel| panel["type"] != "row")
    {
        assert!(
            panel["title"].is_string() && panel["description"].is_string(),
            "{panel}"
        );
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{panel}"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            is_of_one_cluster(expression);
            rates_are_over_grafanas_interval(expression);
        }
    }
}

fn is_of_one_cluster(expression: &str) {
    for part in expression.split('}') {
        let (outside, selector) = part.split_once('{').unwrap_or((part, ""));
        let selected = usize::from(selector.starts_with(r#"cluster="$cluster""#));
        assert!(
            outside.matches("brupop_").count() <= selected,
            "{expression}"
        );
        assert!(selector.is_empty() || selected == 1, "{expression}");
    }
}

fn rates_are_over_grafanas_interval(expression: &str) {
    for of_rate in expression.split("rate(").skip(1) {
        assert!(
            of_rate
                .split(']')
                .next()
                .is_some_and(|range| range.ends_with("[$__rate_interval")),
            "{expression}"
        );
    }
}
