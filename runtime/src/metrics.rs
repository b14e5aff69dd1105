//! The metrics that processes have in common, and all metrics as text. The registry has the process's prefix.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::api_requests::ApiRequests;
use crate::authorizer::Refusals;
use crate::connections::Drops;

/// Requests to the API server.
pub fn register_api_requests(registry: &mut Registry, requests: &ApiRequests) {
    registry.register(
        "api_requests",
        "Requests to the API server, by verb and by the code of the answer; none = there was none",
        requests.family(),
    );
}

/// Scrapes that were refused.
pub fn register_refused_scrapes(registry: &mut Registry, refusals: &Refusals) {
    registry.register("refused_scrapes", "Scrapes of /metrics refused, by why", refusals.family());
}

/// Connections that were dropped.
pub fn register_drops(registry: &mut Registry, drops: &Drops) {
    registry.register(
        "dropped_connections",
        "Connections dropped, by what they were doing: to make room, or after too long a time",
        drops.family(),
    );
}

/// Which version of the operator this is.
pub fn register_build(registry: &mut Registry) {
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "What runs", build);
}

/// All metrics as text, true at the time of the call.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, registry) {
        tracing::warn!(%error, "metrics could not be written");
    }
    text
}
