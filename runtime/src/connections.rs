//! Connections, with a limit on everything that a caller can spend. What is asked over them is answered by warp's filters.
//!
//! Each connection is accepted at once. If that is one too many, the one that has been idle longest makes room, of the peer that
//! has most.

mod filters;
mod room;

pub use filters::{Pages, admitted, body, reads};
pub use room::Drops;

use crate::Shutdown;
use crate::errors::describe;
use crate::logs::Quota;
use crate::tls::{Resolver, server_config};
use http::Request;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use room::{Permit, Room};
use std::io::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Wait after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Of such failures one is logged in this time.
const FAILURES_LOGGED_EVERY: Duration = Duration::from_mins(1);
/// Most bytes that are buffered for a connection, in bytes, and so the longest head of a request.
const MAX_BUFFER: usize = 32 * 1024;

/// Limits on the callers of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Name of the port, for metrics.
    pub port: &'static str,
    /// The most connections at a time.
    pub connections: usize,
    /// Longest that all bodies may be together which are being read or answered, in bytes.
    pub all_bodies: usize,
    /// Longest TLS handshake, and longest time from the head of a request to its answer. After that the connection ends without
    /// one, which allows nothing.
    pub request: Duration,
    /// Longest time to the end of the next head. A Go client keeps idle connections for 90 s. With less than that, a server may
    /// close a connection that the client is just writing to.
    pub idle: Duration,
    /// After the shutdown was requested: how long new connections are still accepted.
    pub linger: Duration,
    /// After that: the longest wait for requests in flight.
    pub closing: Duration,
}

/// Serves pages over HTTP/1.1 until the shutdown is requested; over TLS, if there is a `resolver` of certificates. Connections
/// that are dropped are counted in `drops`.
///
/// After the request to shut down, it goes on for a while, because callers that have not heard of it still come, and asks
/// them to come back over another connection. Then it closes what is idle, and returns when the last request is answered.
///
/// There is no HTTP/2: there a connection carries many requests at a time. API servers and Prometheus fall back to HTTP/1.1
/// by ALPN.
pub async fn serve(
    listener: TcpListener,
    resolver: Option<Arc<Resolver>>,
    limits: Limits,
    drops: Drops,
    pages: Pages,
    shutdown: Shutdown,
) {
    let acceptor = resolver.map(|resolver| TlsAcceptor::from(Arc::new(server_config(resolver))));
    let server = Server {
        acceptor,
        pages: filters::with_refusals(pages),
        limits,
        shutdown: shutdown.clone(),
    };
    let (room, graceful) = (Room::new(limits, &drops), GracefulShutdown::new());
    // They end with this function.
    let mut tasks = JoinSet::new();
    let mut end = pin!(async {
        shutdown.requested().await;
        sleep(limits.linger).await;
    });
    let (mut failures, began) = (Quota::new(1, FAILURES_LOGGED_EVERY), Instant::now());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let (permit, lost) = room.add(address.ip().into());
                    let connection = server.clone().connection(stream, permit, graceful.watcher());
                    tasks.spawn(async move {
                        tokio::select! {
                            () = connection => {}
                            _ = lost => {}
                        }
                    });
                }
                Err(error) => {
                    if failures.take(began.elapsed()).is_some() {
                        tracing::warn!(error = describe(&error), "connections cannot be accepted");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = tasks.join_next() => {}
            () = &mut end => break,
        }
    }
    drop(listener);
    if timeout(limits.closing, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were not answered in time");
    }
}

/// The shared state of the connections of a port.
#[derive(Clone)]
struct Server {
    acceptor: Option<TlsAcceptor>,
    pages: Pages,
    limits: Limits,
    shutdown: Shutdown,
}

impl Server {
    async fn connection(self, stream: TcpStream, permit: Permit, watcher: Watcher) {
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = self.acceptor.clone() else {
            return self.requests(stream, permit, watcher).await;
        };
        let handshake = timeout(self.limits.request, acceptor.accept(stream)).await;
        match handshake.map_err(Error::from).flatten() {
            Ok(stream) => self.requests(stream, permit, watcher).await,
            Err(error) => tracing::debug!(error = describe(&error), "TLS handshake failed"),
        }
    }

    /// Filters get the permit as an extension of the request.
    async fn requests<S>(self, stream: S, permit: Permit, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let permit = Arc::new(permit);
        let pages = TowerToHyperService::new(warp::service(self.pages));
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&permit));
            let answer = timeout(self.limits.request, pages.call(request));
            let (permit, shutdown) = (&permit, &self.shutdown);
            async move {
                let Ok(mut answer) = answer.await?;
                permit.wait(0);
                if shutdown.is_requested() {
                    answer
                        .headers_mut()
                        .insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Elapsed>(answer)
            }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle)
            .max_buf_size(MAX_BUFFER);
        if let Err(error) = watcher
            .watch(builder.serve_connection(TokioIo::new(stream), service))
            .await
        {
            tracing::debug!(error = describe(&error), "a connection ended early");
        }
    }
}

#[cfg(test)]
mod tests;
