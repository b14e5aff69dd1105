//! The metrics that processes have in common, and all metrics as text. The registry has the process's prefix.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::api_requests::ApiRequests;
use crate::authorizer::Refusals;
use crate::connections::Drops;
use crate::errors::describe;

/// Metrics that all programs have. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct ProcessMetrics {
    /// Requests to the API server.
    pub api_requests: ApiRequests,
    pub refused_scrapes: Refusals,
    pub drops: Drops,
}

impl ProcessMetrics {
    /// Adds them to a registry with the program's prefix, and which version of the operator this is.
    pub fn register(&self, registry: &mut Registry) {
        let requests = "Requests to the API server, by verb and HTTP status; none = no answer";
        registry.register("api_requests", requests, self.api_requests.0.clone());
        let scrapes = "Refused scrapes of /metrics, by reason";
        registry.register("refused_scrapes", scrapes, self.refused_scrapes.family());
        let drops = "Connections that made room for others";
        registry.register("dropped_connections", drops, self.drops.0.clone());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What runs", build);
    }
}

/// All metrics as text, true at the time of the call.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, registry) {
        tracing::warn!(error = describe(&error), "metrics could not be written");
    }
    text
}
