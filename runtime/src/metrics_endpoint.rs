//! `/metrics` over TLS, for those who may `get` the `nonResourceURL` of that name.

use crate::Shutdown;
use crate::authorizer::Authorizer;
use crate::connections::{self, Drops, Limits};
use crate::tls::Resolver;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use warp::reply::{Reply as _, with_header};
use warp::{Filter as _, path};

/// The path that callers must be allowed to `get`.
pub const PATH: &str = "/metrics";

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A handful of scrapers, once in a while. No body is read.
const LIMITS: Limits = Limits {
    port: "metrics",
    connections: 64,
    all_bodies: 0,
    request: Duration::from_secs(10),
    idle: Duration::from_mins(2),
    linger: Duration::ZERO,
    closing: Duration::from_secs(2),
};

/// Serves `/metrics` until the shutdown is requested, with the resolver's certificate, to those whom `authorizer` lets in.
/// `metrics` is called at each scrape. It returns text in the format of `OpenMetrics`, as
/// `prometheus_client::encoding::text::encode` writes it.
pub async fn serve<M>(
    listener: TcpListener,
    resolver: Arc<Resolver>,
    authorizer: Arc<Authorizer>,
    metrics: M,
    drops: Drops,
    shutdown: Shutdown,
) where
    M: Fn() -> String + Clone + Send + Sync + 'static,
{
    // A caller that is not let in learns nothing, not even which paths exist.
    let admitted = connections::admitted(Some(authorizer), refusal);
    let scraped = move || with_header(metrics(), CONTENT_TYPE, OPENMETRICS).into_response();
    let pages = admitted
        .and(path!("metrics"))
        .and(connections::reads())
        .map(scraped)
        .boxed();
    connections::serve(listener, Some(resolver), LIMITS, drops, pages, shutdown).await;
}

fn refusal(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "a bearer token of this cluster is needed\n",
        StatusCode::FORBIDDEN => {
            "this account may not get the nonResourceURL /metrics: bind it to the ClusterRole brupop-metrics-reader\n"
        }
        _ => "the API server could not be asked about this token: try again\n",
    }
}
