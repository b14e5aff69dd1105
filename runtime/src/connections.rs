//! Connections, with a limit on everything that a caller can spend.
//!
//! Each connection is accepted at once. What is too much is dropped at once, at the expense of the peer that has most
//! ([`tracker`]); nobody waits for a permit.

mod permits;
mod tracker;

pub use permits::Drops;

use crate::tls::{Resolver, server_config};
use crate::{FailureLog, Peer, Shutdown};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use permits::{Permit, Permits};
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracker::Phase;

/// Wait after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Near the limit of open files, accepts fail and succeed in turn. They work again once none has failed for so long.
const ACCEPTS_WORK_AFTER: Duration = Duration::from_mins(1);
/// Time between two looks for connections that have come to the end of their time.
const EXPIRY_PERIOD: Duration = Duration::from_millis(500);
/// Most bytes that are buffered for a connection, in bytes, and so the longest head of a request.
const MAX_BUFFER: usize = 32 * 1024;

/// An answer.
pub type Page = Response<Full<Bytes>>;

/// What the callers of a port may spend. Of the times, the first five may be exceeded by half a second.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Name of the port, for metrics.
    pub port: &'static str,
    /// Most connections.
    pub connections: usize,
    /// Longest body of a request, in bytes.
    pub one_body: usize,
    /// Longest that all bodies may be together which are being read or answered, in bytes.
    pub all_bodies: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest time for the head of the first request.
    pub head: Duration,
    /// Longest time for the body of a request.
    pub body: Duration,
    /// Longest time for an answer. After that the connection ends without one, which allows nothing.
    pub answer: Duration,
    /// Longest time from an answer to the end of the next head. A Go client keeps idle connections for 90 s. With less than
    /// that, a server may close a connection that the client is just writing to.
    pub idle: Duration,
    /// After the shutdown was requested: how long new connections are still accepted.
    pub linger: Duration,
    /// After that: the longest wait for requests in flight.
    pub closing: Duration,
}

/// Serves HTTP/1.1 until the shutdown is requested; over TLS, if there is a `resolver` of certificates. The handler gets
/// each request with its whole body. Connections that are dropped are counted in `drops`.
///
/// After the request to shut down, it goes on for a while, because callers that have not heard of it still come, and asks
/// them to come back over another connection. Then it closes what is idle, and returns when the last request is answered.
///
/// There is no HTTP/2: there a connection carries many requests at a time. API servers and Prometheus fall back to HTTP/1.1
/// by ALPN.
pub async fn serve<H, F>(
    listener: TcpListener,
    resolver: Option<Arc<Resolver>>,
    limits: Limits,
    drops: Drops,
    handler: H,
    shutdown: Shutdown,
) where
    H: Fn(Peer, Request<Vec<u8>>) -> F + Send + Sync + 'static,
    F: Future<Output = Page> + Send + 'static,
{
    let acceptor = resolver.map(|resolver| TlsAcceptor::from(Arc::new(server_config(resolver))));
    let (close, closing) = Shutdown::by_hand();
    let end = {
        let shutdown = shutdown.clone();
        async move {
            shutdown.requested().await;
            sleep(limits.linger).await;
        }
    };
    let server = Server { acceptor, longest_body: limits.one_body, handler, shutdown, closing };
    let mut connections = Connections::new(server, Permits::new(limits, drops));
    connections.accept(&listener, end).await;
    drop(listener);
    close.request();
    if timeout(limits.closing, connections.finish()).await.is_err() {
        tracing::warn!("some requests were not answered in time");
    }
}

/// The open connections of a port, each in a task of its own.
struct Connections<H> {
    server: Arc<Server<H>>,
    permits: Permits,
    tasks: JoinSet<()>,
    expiry: Interval,
}

impl<H, F> Connections<H>
where
    H: Fn(Peer, Request<Vec<u8>>) -> F + Send + Sync + 'static,
    F: Future<Output = Page> + Send + 'static,
{
    fn new(server: Server<H>, permits: Permits) -> Self {
        let mut expiry = interval(EXPIRY_PERIOD);
        expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { server: Arc::new(server), permits, tasks: JoinSet::new(), expiry }
    }

    /// Accepts connections until `end`.
    async fn accept(&mut self, listener: &TcpListener, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        let (mut failures, mut failed_at) = (FailureLog::default(), Instant::now());
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        if failed_at.elapsed() >= ACCEPTS_WORK_AFTER && failures.resolved() {
                            tracing::info!("connections are accepted again");
                        }
                        self.open(stream, address.ip().into());
                    }
                    Err(error) => {
                        failed_at = Instant::now();
                        if failures.is_new(&error.to_string()) {
                            tracing::warn!(%error, "connections cannot be accepted");
                        }
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = self.tidy() => {}
                () = &mut end => return,
            }
        }
    }

    fn open(&mut self, stream: TcpStream, peer: Peer) {
        let (permit, lost) = self.permits.add(peer, self.server.first_phase());
        let server = Arc::clone(&self.server);
        self.tasks.spawn(async move {
            tokio::select! {
                () = server.connection(stream, &permit) => {}
                _ = lost => {}
            }
        });
    }

    /// Waits for the next connection that ends, or drops those that have come to the end of their time.
    async fn tidy(&mut self) {
        tokio::select! {
            Some(_) = self.tasks.join_next() => {}
            _ = self.expiry.tick(), if !self.tasks.is_empty() => self.permits.expire(),
            else => pending().await,
        }
    }

    /// Waits until all connections have ended.
    async fn finish(&mut self) {
        while !self.tasks.is_empty() {
            self.tidy().await;
        }
    }
}

/// What the connections of a port share.
struct Server<H> {
    acceptor: Option<TlsAcceptor>,
    longest_body: usize,
    handler: H,
    shutdown: Shutdown,
    /// Requested when the time has come to close what is idle.
    closing: Shutdown,
}

impl<H, F> Server<H>
where
    H: Fn(Peer, Request<Vec<u8>>) -> F,
    F: Future<Output = Page>,
{
    fn first_phase(&self) -> Phase {
        if self.acceptor.is_some() { Phase::Handshake } else { Phase::Head }
    }

    /// Whoever calls this looks after the time that it takes, by the permit.
    async fn connection(&self, stream: TcpStream, permit: &Permit) {
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = &self.acceptor else { return self.requests(stream, permit).await };
        match acceptor.accept(stream).await {
            Ok(stream) => {
                permit.enter(Phase::Head);
                self.requests(stream, permit).await;
            }
            Err(error) => tracing::debug!(%error, "TLS handshake failed"),
        }
    }

    async fn requests(&self, stream: impl AsyncRead + AsyncWrite + Unpin, permit: &Permit) {
        let service =
            service_fn(
                move |request| async move { Ok::<_, Infallible>(self.request(request, permit).await) },
            );
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).max_buf_size(MAX_BUFFER);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.closing.requested() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn request(&self, request: Request<Incoming>, permit: &Permit) -> Page {
        let mut response = match self.receive(request, permit).await {
            Ok(request) => {
                permit.enter(Phase::Answer);
                (self.handler)(permit.peer(), request).await
            }
            Err(refusal) => refusal,
        };
        permit.enter(Phase::Idle);
        if self.shutdown.is_requested() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Reads the body of a request. Without a length there is nothing to believe.
    async fn receive(&self, request: Request<Incoming>, permit: &Permit) -> Result<Request<Vec<u8>>, Page> {
        let (head, body) = request.into_parts();
        let Some(length) = body.size_hint().exact() else {
            return Err(page(StatusCode::LENGTH_REQUIRED, "a body needs a content-length\n"));
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.longest_body {
            return Err(page(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long\n"));
        }
        permit.announce(length);
        match gather(body, length).await {
            Ok(body) => Ok(Request::from_parts(head, body)),
            Err(error) => Err(page(StatusCode::BAD_REQUEST, format!("{error}\n"))),
        }
    }
}

/// Copies a body of this length into memory of its own, frame by frame. A frame of one byte keeps the whole buffer that it was
/// read into, so a body that is sent in small pieces would take thousands of times its length.
async fn gather<B: Body<Data = Bytes>>(body: B, length: usize) -> Result<Vec<u8>, B::Error> {
    let (mut body, mut whole) = (pin!(body), Vec::with_capacity(length));
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(data) = frame.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole)
}

/// A page of plain text.
pub fn page(status: StatusCode, text: impl Into<Bytes>) -> Page {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests;
