//! `/metrics` over TLS, for those who may `get` the `nonResourceURL` of that name.

use crate::callers::Callers;
use crate::connections::{self, Limits};
use crate::endpoint::page;
use crate::{Shutdown, tls::Resolver};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// What callers must be allowed to `get`.
pub const PATH: &str = "/metrics";

const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// A handful of scrapers, once in a while.
const LIMITS: Limits = Limits {
    connections: 64,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(10),
    request: Duration::from_secs(10),
    idle: Duration::from_mins(2),
    idle_if_crowded: Duration::from_secs(1),
    linger: Duration::ZERO,
    closing: Duration::from_secs(2),
};

/// Serves `/metrics` until the shutdown is requested, with the resolver's certificate, to those whom `callers` lets in.
/// `metrics` is called at each scrape. It returns text in the format of `OpenMetrics`, as
/// `prometheus_client::encoding::text::encode` writes it.
pub async fn serve<M>(
    listener: TcpListener,
    resolver: Arc<Resolver>,
    callers: Arc<Callers>,
    metrics: M,
    shutdown: Shutdown,
) where
    M: Fn() -> String + Send + Sync + 'static,
{
    let metrics = Arc::new(metrics);
    let handler = move |request: http::Request<hyper::body::Incoming>| {
        let (metrics, callers) = (Arc::clone(&metrics), Arc::clone(&callers));
        let (head, _) = request.into_parts();
        async move { answer(&head.method, head.uri.path(), &head.headers, &callers, metrics.as_ref()).await }
    };
    connections::serve(listener, resolver, LIMITS, handler, shutdown).await;
}

async fn answer<M: Fn() -> String>(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    callers: &Arc<Callers>,
    metrics: &M,
) -> Response<Full<Bytes>> {
    // A caller that is not let in learns nothing, not even which paths exist.
    if let Err(status) = callers.admit(headers).await {
        let mut response = page(status, refusal(status));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return response;
    }
    if path != PATH {
        return page(StatusCode::NOT_FOUND, "try /metrics\n");
    }
    if method != Method::GET && method != Method::HEAD {
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
        _ => "the API server does not tell who you are: try again\n",
    }
}
