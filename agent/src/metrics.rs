//! What the agent counts, for those who scrape it. Nobody does unless `METRICS_ADDRESS` is set.

use brupop_runtime::metrics::{self, ProcessMetrics};
use prometheus_client::registry::Registry;

use crate::host::HostCalls;

/// The agent's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Calls to the host's API.
    pub host_calls: HostCalls,
    /// Metrics that all programs have.
    pub process: ProcessMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("brupop_agent"),
            host_calls: HostCalls::default(),
            process: ProcessMetrics::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        self.registry.register(
            "host_api_calls",
            "Calls to Bottlerocket's API, by what was called and by what came of it",
            self.host_calls.clone(),
        );
        self.process.register(&mut self.registry);
    }

    /// All metrics as text, true at the time of the call.
    pub fn render(&self) -> String {
        metrics::text(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dropped connections are counted once a port is served.
    #[test]
    fn the_metrics_one_by_one() {
        let text = Metrics::default().render();
        let described: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        assert_eq!(
            described,
            [
                "brupop_agent_refused_scrapes counter",
                "brupop_agent_build info"
            ]
        );
        let version = format!(
            r#"brupop_agent_build_info{{version="{}"}} 1"#,
            env!("CARGO_PKG_VERSION")
        );
        for line in [
            r#"brupop_agent_refused_scrapes_total{reason="forbidden"} 0"#,
            &version,
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
