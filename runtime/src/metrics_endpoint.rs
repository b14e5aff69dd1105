//! `/metrics` over TLS, for those who may `get` the `nonResourceURL` of that name.

use crate::authorizer::Authorizer;
use crate::connections::{self, Drops, Limits, Page, page};
use crate::{Peer, Shutdown, tls::Resolver};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// What callers must be allowed to `get`.
pub const PATH: &str = "/metrics";

const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// A handful of scrapers, once in a while.
const LIMITS: Limits = Limits {
    port: "metrics",
    connections: 64,
    one_body: 0,
    all_bodies: 0,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(10),
    body: Duration::from_secs(10),
    answer: Duration::from_secs(10),
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
    M: Fn() -> String + Send + Sync + 'static,
{
    let metrics = Arc::new(metrics);
    let handler = move |peer, request| {
        let (metrics, authorizer) = (Arc::clone(&metrics), Arc::clone(&authorizer));
        async move { answer(peer, &request, &authorizer, metrics.as_ref()).await }
    };
    connections::serve(listener, Some(resolver), LIMITS, drops, handler, shutdown).await;
}

async fn answer(
    peer: Peer,
    request: &Request<Vec<u8>>,
    authorizer: &Arc<Authorizer>,
    metrics: &impl Fn() -> String,
) -> Page {
    // A caller that is not let in learns nothing, not even which paths exist.
    if let Err(status) = authorizer.admit(peer, request.headers()).await {
        let mut response = page(status, refusal(status));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return response;
    }
    if request.uri().path() != PATH {
        return page(StatusCode::NOT_FOUND, "try /metrics\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return page(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n");
    }
    let mut response = page(StatusCode::OK, metrics());
    response.headers_mut().insert(CONTENT_TYPE, OPENMETRICS);
    response
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
