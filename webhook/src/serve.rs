//! The admission endpoint: warp's routes behind TLS, with a limit on everything a caller can spend.

use crate::metrics::Metrics;
use crate::review;
use brupop_runtime::Shutdown;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Bytes;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use warp::Filter;

/// Longest body: an old and a new object of the 3 MiB that the API server accepts, and what surrounds them.
const MAX_BODY: u64 = 7 * 1024 * 1024;
/// Connections served side by side; API servers keep a few each.
const MAX_CONNECTIONS: usize = 256;
/// Reviews at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
const MAX_HEAD: u32 = 16 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a request with its body; the API server gives up after 3 seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent HTTP/2 connection is probed after this time, and closed if that brings nothing.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Longest wait for requests in flight at the end.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

fn page(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Serves reviews until the shutdown is requested; then goes on for `linger`, because API servers that have not heard
/// of it still come, closes what is idle, and returns when the last request is answered.
pub async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    metrics: Arc<Metrics>,
    linger: Duration,
    shutdown: Shutdown,
) {
    let routes = warp::service(routes(metrics));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let end = async {
        shutdown.requested().await;
        tokio::time::sleep(linger).await;
    };
    tokio::pin!(end);
    loop {
        let next = async { (Arc::clone(&places).acquire_owned().await, listener.accept().await) };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = &mut end => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was lost before it was accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (acceptor, watcher) = (acceptor.clone(), graceful.watcher());
        let routes = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let _place = place;
            let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => return tracing::debug!("TLS handshake took too long"),
            };
            let service = service_fn(move |request| {
                let answer = routes.call(request);
                async move {
                    // What takes too long ends the stream without an answer, which allows nothing.
                    let answered = tokio::time::timeout(REQUEST_TIMEOUT, answer).await;
                    answered.map(|Ok(response)| response).map_err(std::io::Error::from)
                }
            });
            let builder = builder();
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(CLOSING_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were not answered in time");
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(64 * 1024)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(HANDSHAKE_TIMEOUT);
    builder
}
