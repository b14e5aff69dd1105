//! The dashboard that is shipped, and what a Prometheus answers to the queries of its panels.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::documents::{DASHBOARD, read};
use crate::prometheus::{Prometheus, SCRAPE_SECONDS, Series, Window};

/// The dashboard.
#[derive(Debug, Deserialize)]
pub struct Dashboard {
    /// Its panels, rows among them.
    pub panels: Vec<Panel>,
}

/// A panel, or the heading of a row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    /// Which kind of panel this is: `row` has no queries.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its title.
    pub title: String,
    /// Its queries.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// How values are shown.
    #[serde(default)]
    pub field_config: Value,
}

/// A query.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The expression, with Grafana's variables.
    pub expr: String,
    /// Is it about one instant?
    #[serde(default)]
    pub instant: bool,
    /// What a series is called, with labels as `{{label}}`.
    #[serde(default)]
    pub legend_format: String,
}

/// A series under the name that the legend has for it.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name.
    pub name: String,
    /// The values.
    pub series: Series,
}

impl Dashboard {
    /// The one that is shipped.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn shipped() -> Result<Self> {
        serde_json::from_str(&read(DASHBOARD)?).context(DASHBOARD)
    }

    /// The panel of this title.
    ///
    /// # Errors
    /// There is none.
    pub fn panel(&self, title: &str) -> Result<&Panel> {
        let found = self.panels.iter().find(|panel| panel.title == title && panel.kind != "row");
        found.with_context(|| format!("no panel {title}"))
    }
}

impl Panel {
    /// What this is of the field's configuration, such as `unit` or `custom/drawStyle`.
    pub fn field(&self, path: &str) -> &str {
        let value = self.field_config.pointer(&format!("/defaults/{path}"));
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// What Prometheus answers, as Grafana would ask it with this window and all pools, of a cluster without
    /// a name.
    ///
    /// # Errors
    /// It does not, or a query finds nothing that is a number.
    pub async fn ask(&self, prometheus: &Prometheus, window: Window) -> Result<Vec<Line>> {
        let mut lines = vec![];
        for target in &self.targets {
            let expression = substituted(&target.expr, window)?;
            let found = if target.instant {
                prometheus.at_end(&expression, window).await?
            } else {
                prometheus.over(&expression, window).await?
            };
            let is_number = |series: &Series| series.points.iter().any(|(_, value)| value.is_finite());
            ensure!(found.iter().any(is_number), "{}: {expression} finds {found:?}", self.title);
            lines.extend(found.into_iter().map(|series| {
                let name = named(&target.legend_format, &series.labels);
                Line { name, series }
            }));
        }
        Ok(lines)
    }
}

/// An expression with values for variables, as Grafana has them.
fn substituted(expression: &str, window: Window) -> Result<String> {
    let rate_interval = (4.0 * SCRAPE_SECONDS).max(window.step + SCRAPE_SECONDS);
    let milliseconds = |seconds: f64| format!("{:.0}ms", seconds * 1000.0);
    let text = expression
        .replace("$__rate_interval", &milliseconds(rate_interval))
        .replace("$__range", &milliseconds(window.until - window.from))
        .replace("$cluster", "")
        .replace("$pool", ".*");
    ensure!(!text.contains('$'), "a variable that nobody knows: {text}");
    Ok(text)
}

/// The name of a series with these labels.
fn named(format: &str, labels: &BTreeMap<String, String>) -> String {
    let mut name = format.to_owned();
    for (label, value) in labels {
        name = name.replace(&format!("{{{{{label}}}}}"), value);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_grafana() {
        let window = Window { from: 100.0, until: 160.0, step: 5.0 };
        let expression = r#"a{cluster="$cluster",pool=~"$pool"}[$__rate_interval] b[$__range]"#;
        let all = substituted(expression, window).unwrap();
        assert_eq!(all, r#"a{cluster="",pool=~".*"}[5500ms] b[60000ms]"#);
        assert!(substituted("a[$__interval]", window).is_err());
    }

    #[test]
    fn legends_name_labels() {
        let labels =
            BTreeMap::from([("verb".to_owned(), "get".to_owned()), ("code".to_owned(), "200".to_owned())]);
        assert_eq!(named("{{verb}} {{code}}", &labels), "get 200");
        assert_eq!(named("limit", &labels), "limit");
    }
}
