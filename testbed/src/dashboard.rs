//! The dashboard that is shipped, and what a Prometheus answers to the queries of its panels.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

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
pub struct Panel {
    /// Its title.
    pub title: String,
    /// Its queries.
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// A query.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// The expression, with Grafana's variables.
    pub expr: String,
    /// Is it about one instant?
    #[serde(default)]
    pub instant: bool,
}

impl Dashboard {
    /// The one that is shipped.
    pub fn shipped() -> Result<Self> {
        serde_json::from_str(&read(DASHBOARD)?).context(DASHBOARD)
    }
}

impl Panel {
    /// Asks Prometheus each query, as Grafana would with this window and all pools, of a cluster without a name.
    pub async fn ask(&self, prometheus: &Prometheus, window: Window) -> Result<()> {
        for target in &self.targets {
            let expression = substituted(&target.expr, window)?;
            let found = if target.instant {
                prometheus.at_end(&expression, window).await?
            } else {
                prometheus.over(&expression, window).await?
            };
            let is_number = |series: &Series| series.points.iter().any(|(_, value)| value.is_finite());
            ensure!(found.iter().any(is_number), "{}: {expression} finds {found:?}", self.title);
        }
        Ok(())
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
