//! Connections, with a limit on everything that a caller can spend.

mod activity;

use crate::Shutdown;
use crate::tls::{Resolver, server_config};
use activity::{Activity, Crowd};
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Wait after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// While no place is free: wait between two looks for a connection that can be closed.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
/// Most bytes that are buffered for a connection, and so the longest head of a request.
const MAX_BUFFER: usize = 32 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What callers may spend.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served side by side. One more is accepted and waits for a place; the others wait in the kernel's
    /// queue.
    pub connections: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for the head of the first request.
    pub head: Duration,
    /// Longest time for a request with its body. After that the connection ends without an answer.
    pub request: Duration,
    /// Longest silence of a connection. A Go client keeps idle connections for 90 s. With less than that, a server may
    /// close a connection that the client is just writing to.
    pub idle: Duration,
    /// While somebody waits for a place: a connection that has been silent for so long may be closed to make room.
    pub idle_if_crowded: Duration,
    /// After the shutdown was requested: how long new connections are still accepted.
    pub linger: Duration,
    /// After that: the longest wait for requests in flight.
    pub closing: Duration,
}

/// Accepts connections until `end`, and hands each to `serve` with one of the `places`. While no place is free,
/// `make_room` is called now and then: it may close a connection.
pub(crate) async fn accept(
    listener: TcpListener,
    places: &Arc<Semaphore>,
    make_room: impl Fn(),
    end: impl Future<Output = ()>,
    mut serve: impl FnMut(TcpStream, OwnedSemaphorePermit),
) {
    let mut end = pin!(end);
    let make_room = &make_room;
    loop {
        // Accepted first: while nobody comes, nobody has to make room.
        let next = async {
            match listener.accept().await {
                Ok((stream, _)) => Ok((stream, place(places, make_room).await)),
                Err(error) => Err(error),
            }
        };
        let accepted = tokio::select! {
            next = next => next,
            () = &mut end => return,
        };
        match accepted {
            Ok((stream, Some(place))) => serve(stream, place),
            // Nobody closes the semaphore.
            Ok((_, None)) => return,
            Err(error) => {
                tracing::warn!(%error, "a connection was lost before it was accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits for a free place. `None` if the semaphore is closed.
async fn place(places: &Arc<Semaphore>, make_room: impl Fn()) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some(place);
    }
    loop {
        make_room();
        if let Ok(place) = timeout(ROOM_PAUSE, Arc::clone(places).acquire_owned()).await {
            return place.ok();
        }
    }
}

/// Serves HTTP/1.1 over TLS until the shutdown is requested. It then goes on for a while, because callers that have not
/// heard of it still come, and asks them to come back over another connection. Then it closes what is idle, and returns
/// when the last request is answered.
///
/// There is no HTTP/2: there a connection carries many requests at a time, and a limit on connections would say nothing
/// about how many bodies are held in memory. API servers and Prometheus fall back to HTTP/1.1 by ALPN.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    resolver: Arc<Resolver>,
    limits: Limits,
    handler: H,
    shutdown: Shutdown,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let acceptor = TlsAcceptor::from(Arc::new(server_config(resolver)));
    let places = Arc::new(Semaphore::new(limits.connections));
    let crowd = Crowd::default();
    let (close, closing) = Shutdown::by_hand();
    let end = async {
        shutdown.requested().await;
        tokio::time::sleep(limits.linger).await;
    };
    let make_room = || crowd.close_longest_idle(limits.idle_if_crowded);
    accept(listener, &places, make_room, end, |stream, place| {
        let (acceptor, handler, crowd) = (acceptor.clone(), handler.clone(), crowd.clone());
        let (shutdown, closing) = (shutdown.clone(), closing.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            match timeout(limits.handshake, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let activity = crowd.join(limits.head, limits.idle);
                    connection(stream, limits, handler, &activity, &shutdown, &closing).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake took too long"),
            }
        });
    })
    .await;
    close.request();
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    if timeout(limits.closing, places.acquire_many(all)).await.is_err() {
        tracing::warn!("some requests were not answered in time");
    }
}

async fn connection<H, F, B>(
    stream: TlsStream<TcpStream>,
    limits: Limits,
    handler: H,
    activity: &Activity,
    shutdown: &Shutdown,
    closing: &Shutdown,
) where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (busy, answer) = (activity.busy(), handler(request));
        let shutdown = shutdown.clone();
        async move {
            let _busy = busy;
            // What takes too long ends the connection without an answer, which allows nothing.
            let mut response = timeout(limits.request, answer).await.map_err(std::io::Error::from)?;
            if shutdown.is_requested() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::io::Error>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(MAX_BUFFER);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = activity.silence() => {
            connection.as_mut().graceful_shutdown();
            // A caller that says nothing does not say goodbye, either.
            timeout(limits.handshake, connection).await.unwrap_or(Ok(()))
        }
        () = closing.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
