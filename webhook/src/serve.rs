//! The admission endpoint: warp's routes behind TLS.

use crate::metrics::Metrics;
use crate::pools;
use crate::review::{self, ReviewError};
use brupop_runtime::authorizer::Authorizer;
use brupop_runtime::connections::{self, Limits, Page, page};
use brupop_runtime::{Shutdown, tls::Resolver};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use warp::Filter;

/// What API servers may spend. They speak HTTP/1.1 to webhooks and use a connection for each review that is under way.
/// They give up after 3 seconds, and keep idle connections for 90, at most 25 each.
///
/// A review holds the old and the new object, of up to the 1.5 MiB each that etcd stores, and some more.
///
/// The pod has 256 MiB of memory, of which at most this is used at a time:
/// - 50 MiB for buffers of 512 connections, 100 KiB each (rustls: 64; hyper: 32), and 13 MiB for those of the other ports;
/// - 16 MiB for bodies;
/// - 70 MiB for the one long body that is parsed ([`LONG_BODY`]), and as much that the allocator keeps of the last one, which
///   was parsed by the other thread;
/// - 8 MiB for everything else.
///
/// `make bench-ports` tries it.
pub const LIMITS: Limits = Limits {
    port: "admission",
    connections: 512,
    one_body: 3_670_016,
    all_bodies: 16 * 1024 * 1024,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(10),
    body: Duration::from_secs(5),
    answer: Duration::from_secs(5),
    idle: Duration::from_mins(2),
    linger: Duration::from_secs(8),
    closing: Duration::from_secs(10),
};

/// Bodies longer than this, in bytes, are judged one at a time: a crafted body takes up to twenty times its length once it is
/// parsed ([`review::answer`] limits that). Usual reviews of a shadow are far shorter.
const LONG_BODY: usize = 64 * 1024;

/// `POST /validate` for shadows, `POST /validate-pool` for pools, and nothing else.
pub fn routes(
    metrics: Arc<Metrics>,
) -> impl Filter<Extract = (Response<Vec<u8>>,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    let of_pools = Arc::clone(&metrics);
    let body = || warp::post().and(warp::body::bytes());
    let shadows =
        warp::path!("validate").and(body()).map(move |body: Bytes| respond(review::answer(&body, &metrics)));
    let pools = warp::path!("validate-pool")
        .and(body())
        .map(move |body: Bytes| respond(pools::answer(&body, &of_pools)));
    shadows.or(pools).unify()
}

fn respond(answered: Result<Vec<u8>, ReviewError>) -> Response<Vec<u8>> {
    let (status, kind, text) = match answered {
        Ok(answer) => (StatusCode::OK, "application/json", answer),
        Err(error) => (StatusCode::BAD_REQUEST, "text/plain", error.to_string().into_bytes()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Serves reviews until the shutdown is requested and the reviews in flight are answered. With an `authorizer`, only those callers
/// come in whom it lets in.
pub async fn serve(
    listener: TcpListener,
    resolver: Arc<Resolver>,
    limits: Limits,
    metrics: Arc<Metrics>,
    authorizer: Option<Arc<Authorizer>>,
    shutdown: Shutdown,
) {
    let drops = metrics.drops.clone();
    let routes = TowerToHyperService::new(warp::service(routes(metrics)));
    let one_at_a_time = Arc::new(Mutex::new(()));
    let handler = move |peer, request: Request<Vec<u8>>| {
        let (routes, authorizer, one_at_a_time) =
            (routes.clone(), authorizer.clone(), Arc::clone(&one_at_a_time));
        async move {
            if let Some(authorizer) = authorizer
                && let Err(status) = authorizer.admit(peer, request.headers()).await
            {
                return stranger(status);
            }
            // Whoever has the turn needs nobody else to be done with it.
            let _turn =
                if request.body().len() > LONG_BODY { Some(one_at_a_time.lock().await) } else { None };
            let Ok(response) = routes.call(request.map(|body| Full::new(Bytes::from(body)))).await;
            let (head, body) = response.into_parts();
            match body.collect().await {
                Ok(body) => Response::from_parts(head, Full::new(body.to_bytes())),
                Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
    };
    connections::serve(listener, Some(resolver), limits, drops, handler, shutdown).await;
}

/// Answers a caller that is not let in. The sentence is for people who try it by hand: of an answer like this, an API
/// server passes on the status code only.
fn stranger(status: StatusCode) -> Page {
    let says = match status {
        StatusCode::UNAUTHORIZED => {
            "this webhook wants the API server's token: see --admission-control-config-file, or unset REQUIRE_CALLER_TOKEN\n"
        }
        StatusCode::TOO_MANY_REQUESTS => "too many tokens that this webhook does not know: try again\n",
        _ => "this webhook cannot ask the API server whose token this is: try again\n",
    };
    let mut response = page(status, says);
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
