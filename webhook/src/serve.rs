//! Serves admission reviews over TLS.

use crate::metrics::Metrics;
use crate::pools;
use crate::review::{self, ReviewError};
use brupop_runtime::authorizer::Authorizer;
use brupop_runtime::connections::{self, Limits, Pages};
use brupop_runtime::{Shutdown, tls::Resolver};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedMutexGuard};
use warp::reply::{Reply as _, Response, with_header, with_status};
use warp::{Filter, Rejection, path};

/// Limits on API servers. They speak HTTP/1.1 to webhooks and use a connection for each review that is under way.
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
pub const LIMITS: Limits = Limits {
    port: "admission",
    connections: 512,
    all_bodies: 16 * 1024 * 1024,
    request: Duration::from_secs(10),
    idle: Duration::from_mins(2),
    linger: Duration::from_secs(8),
    closing: Duration::from_secs(10),
};

/// The length of the longest review, in bytes.
const LONGEST_BODY: u64 = 3_670_016;

/// Bodies longer than this, in bytes, are judged one at a time: a crafted body takes up to twenty times its length once it is
/// parsed ([`review::answer`] limits that). Usual reviews of a shadow are far shorter.
const LONG_BODY: usize = 64 * 1024;

/// Serves reviews for the operator in `namespace` until the shutdown is requested and the reviews in flight are answered. With an `authorizer`, only those callers
/// come in whom it lets in.
pub async fn serve(
    listener: TcpListener,
    resolver: Arc<Resolver>,
    limits: Limits,
    namespace: String,
    metrics: Arc<Metrics>,
    authorizer: Option<Arc<Authorizer>>,
    shutdown: Shutdown,
) {
    let drops = metrics.process.drops.clone();
    let pages = pages(namespace.into(), metrics, authorizer);
    connections::serve(listener, Some(resolver), limits, drops, pages, shutdown).await;
}

/// `POST /validate` for shadows, `POST /validate-pool` for pools, and nothing else.
fn pages(namespace: Arc<str>, metrics: Arc<Metrics>, authorizer: Option<Arc<Authorizer>>) -> Pages {
    let of_pools = Arc::clone(&metrics);
    let body = body();
    let shadows = path!("validate")
        .and(body.clone())
        .map(move |body: Vec<u8>, _turn| respond(review::answer(&body, &metrics)));
    let pools = path!("validate-pool")
        .and(body)
        .map(move |body: Vec<u8>, _turn| respond(pools::answer(&body, &namespace, &of_pools)));
    connections::admitted(authorizer, refusal)
        .and(shadows.or(pools).unify())
        .boxed()
}

/// Returns what is posted, and the turn that a long body needs. Its holder waits for no other turn.
fn body() -> impl Filter<Extract = (Vec<u8>, Option<OwnedMutexGuard<()>>), Error = Rejection> + Clone
{
    let turns = Arc::new(Mutex::new(()));
    let with_turn = move |body: Vec<u8>| {
        let turns = Arc::clone(&turns);
        async move {
            let turn = if body.len() > LONG_BODY {
                Some(turns.lock_owned().await)
            } else {
                None
            };
            (body, turn)
        }
    };
    warp::post()
        .and(connections::body(LONGEST_BODY))
        .then(with_turn)
        .untuple_one()
}

fn respond(answered: Result<Vec<u8>, ReviewError>) -> Response {
    match answered {
        Ok(answer) => with_header(answer, CONTENT_TYPE, "application/json").into_response(),
        Err(error) => with_status(error.to_string(), StatusCode::BAD_REQUEST).into_response(),
    }
}

/// Returns what a caller is told that is not let in. The sentence is for people who try it by hand: of an answer like this, an
/// API server passes on the status code only.
fn refusal(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => {
            "this webhook requires a token of the API server: set --admission-control-config-file, or unset REQUIRE_CALLER_TOKEN\n"
        }
        _ => "the API server could not be asked about this token: try again\n",
    }
}
