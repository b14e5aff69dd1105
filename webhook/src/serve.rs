//! The admission endpoint: warp's routes behind TLS.

use crate::metrics::Metrics;
use crate::review;
use brupop_runtime::callers::Callers;
use brupop_runtime::connections::{self, Limits};
use brupop_runtime::{Shutdown, tls::Resolver};
use futures::{Stream, TryStreamExt as _};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Either;
use hyper::body::{Body as _, Buf, Bytes};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use warp::Filter;

/// Longest body, in bytes. A review holds the old and the new object, of up to the 1.5 MiB each that etcd stores, and some
/// more. A crafted body takes up to twenty times its length once it is parsed ([`review::answer`] limits that). All
/// connections together must not need more memory than the pod has.
const MAX_BODY: u64 = 3_670_016;

/// Bodies longer than this, in bytes, are read and judged one at a time. Usual reviews of a shadow are far shorter.
const LONG_BODY: u64 = 64 * 1024;

/// What API servers may spend. They speak HTTP/1.1 to webhooks and use a connection for each review that is under way.
/// They give up after 3 seconds, and keep idle connections for 90.
pub const LIMITS: Limits = Limits {
    connections: 512,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(10),
    request: Duration::from_secs(5),
    idle: Duration::from_mins(2),
    idle_if_crowded: Duration::from_secs(1),
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
        .and(warp::body::stream())
        .then(move |body| {
            let metrics = Arc::clone(&metrics);
            async move {
                let unreadable =
                    |error: String| page(StatusCode::BAD_REQUEST, "text/plain", error.into_bytes());
                match gather(body).await {
                    Ok(body) => match review::answer(&body, &metrics) {
                        Ok(answer) => page(StatusCode::OK, "application/json", answer),
                        Err(error) => unreadable(error.to_string()),
                    },
                    Err(error) => unreadable(warp::Error::to_string(&error)),
                }
            }
        })
}

/// Copies a body into memory of its own, frame by frame. A frame of one byte keeps the whole buffer that it was read into,
/// so a body that is sent in small pieces would take thousands of times its length.
async fn gather<E>(body: impl Stream<Item = Result<impl Buf, E>>) -> Result<Vec<u8>, E> {
    let (mut body, mut whole) = (pin!(body), Vec::new());
    while let Some(mut frame) = body.try_next().await? {
        while frame.has_remaining() {
            let piece = frame.chunk();
            whole.extend_from_slice(piece);
            let copied = piece.len();
            frame.advance(copied);
        }
    }
    Ok(whole)
}

fn page<B>(status: StatusCode, kind: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Serves reviews until the shutdown is requested and the reviews in flight are answered. With `callers`, only those are
/// let in.
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
            // A request without a length is refused by the routes.
            let long = request.body().size_hint().upper().is_some_and(|length| length > LONG_BODY);
            // Nobody closes the semaphore. A caller that waits for too long is let go.
            let _turn = if long { long_bodies.acquire_owned().await.ok() } else { None };
            match routes.call(request).await {
                Ok(response) => response.map(Either::Right),
                Err(never) => match never {},
            }
        }
    };
    connections::serve(listener, resolver, limits, handler, shutdown).await;
}

/// Answers a caller that is not let in. The sentence is for people who try it by hand: of an answer like this, an API
/// server passes on the status code only.
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    #[tokio::test]
    async fn no_frame_of_a_body_is_kept() {
        // A frame is asked for only when the last one has been copied: then nobody else may hold on to the buffer.
        let frames = stream::unfold((Bytes::from(vec![b'x'; 8192]), 0), |(buffer, sent)| async move {
            assert!(buffer.is_unique(), "the frame before number {sent} is kept");
            let frame = buffer.slice(sent..=sent);
            (sent < 100).then_some((Ok::<_, ()>(frame), (buffer, sent + 1)))
        });
        assert_eq!(gather(frames).await, Ok(vec![b'x'; 100]));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        let frames = [Ok(Bytes::from("a")), Err("gone")];
        assert_eq!(gather(stream::iter(frames)).await, Err("gone"));
    }
}
