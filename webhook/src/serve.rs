//! The admission endpoint: warp's routes behind TLS.

use crate::metrics::Metrics;
use crate::review;
use brupop_runtime::callers::Callers;
use brupop_runtime::connections::{self, Limits};
use brupop_runtime::{Shutdown, tls::Resolver};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Either;
use hyper::body::{Body as _, Bytes};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use warp::Filter;

/// Longest body, in bytes: an old and a new object of the 1.5 MiB that etcd stores, and what surrounds them. More memory
/// than a pod has must not hang on one request: read, a crafted body takes fifty times its length.
const MAX_BODY: u64 = 3_670_016;

/// Bodies longer than this, in bytes, are read and judged one at a time. No common review of a shadow comes near it.
const LONG_BODY: u64 = 128 * 1024;

/// What API servers may spend. They speak HTTP/1.1 to webhooks, a connection for each review that is under way, give up
/// after 3 seconds, and keep idle connections for 90.
pub const LIMITS: Limits = Limits {
    connections: 512,
    streams: 100,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(10),
    request: Duration::from_secs(5),
    idle: Duration::from_mins(2),
    linger: Duration::from_secs(8),
    closing: Duration::from_secs(10),
};

/// `POST /validate`, and nothing else.
pub fn routes(
    metrics: Arc<Metrics>,
) -> impl Filter<Extract = (Response<Vec<u8>>,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::path!("validate")
        .and(warp::post())
        .and(warp::body::content_length_limit(MAX_BODY))
        .and(warp::body::bytes())
        .map(move |body: Bytes| match review::answer(&body, &metrics) {
            Ok(answer) => page(StatusCode::OK, "application/json", answer),
            Err(error) => page(StatusCode::BAD_REQUEST, "text/plain", error.to_string().into_bytes()),
        })
}

fn page<B>(status: StatusCode, kind: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Serves reviews until the shutdown is requested and those in flight are answered. With `callers`, to them alone.
pub async fn serve(
    listener: TcpListener,
    resolver: Arc<Resolver>,
    limits: Limits,
    metrics: Arc<Metrics>,
    callers: Option<Arc<Callers>>,
    shutdown: Shutdown,
) {
    let routes = TowerToHyperService::new(warp::service(routes(metrics)));
    let long_bodies = Arc::new(Semaphore::new(1));
    let handler = move |request: http::Request<hyper::body::Incoming>| {
        let (routes, callers, long_bodies) = (routes.clone(), callers.clone(), Arc::clone(&long_bodies));
        async move {
            if let Some(callers) = callers
                && let Err(status) = callers.admit(request.headers()).await
            {
                return stranger(status).map(Either::Left);
            }
            // Without a length a request is refused, further on.
            let long = request.body().size_hint().upper().is_some_and(|length| length > LONG_BODY);
            // Nobody closes the semaphore; and who waits for too long is let go.
            let _turn = if long { long_bodies.acquire_owned().await.ok() } else { None };
            match routes.call(request).await {
                Ok(response) => response.map(Either::Right),
                Err(never) => match never {},
            }
        }
    };
    connections::serve(listener, resolver, limits, handler, shutdown).await;
}

/// For people who try it by hand: an API server tells who wanted to write no more than the status, in words of its own.
fn stranger(status: StatusCode) -> Response<http_body_util::Full<Bytes>> {
    let says = match status {
        StatusCode::UNAUTHORIZED => {
            "this webhook wants the API server's token: see --admission-control-config-file, or unset REQUIRE_CALLER_TOKEN"
        }
        _ => "this webhook cannot ask the API server whose token this is: try again",
    };
    let mut response = page(status, "text/plain", http_body_util::Full::from(says));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
