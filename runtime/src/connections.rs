//! Connections, with a limit on everything that a caller can spend.

use crate::Shutdown;
use crate::tls::{Resolver, server_config};
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Wait after an accept that failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Longest head of a request, in bytes.
const MAX_HEAD: u32 = 16 * 1024;
/// What HTTP/1.1 buffers of a connection at most, in bytes.
const MAX_BUFFER: usize = 64 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What callers may spend.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served side by side; more wait in the kernel's queue.
    pub connections: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for the head of the first request.
    pub head: Duration,
    /// Longest time for a request with its body; then its connection (HTTP/1.1) or stream (HTTP/2) ends unanswered.
    pub request: Duration,
    /// Longest silence of a connection. A Go client keeps idle ones for 90 s: who closes them earlier may close one
    /// that is just being written to.
    pub idle: Duration,
    /// After the shutdown was requested: how long new connections are still accepted.
    pub linger: Duration,
    /// And then: the longest wait for requests in flight.
    pub closing: Duration,
}

/// Accepts connections until `end`, at most as many at a time as there are `places`.
pub(crate) async fn accept(
    listener: TcpListener,
    places: &Arc<Semaphore>,
    end: impl Future<Output = ()>,
    mut serve: impl FnMut(TcpStream, OwnedSemaphorePermit),
) {
    let mut end = pin!(end);
    loop {
        let next = async { (Arc::clone(places).acquire_owned().await, listener.accept().await) };
        let accepted = tokio::select! {
            next = next => next,
            () = &mut end => return,
        };
        match accepted {
            (Ok(place), Ok((stream, _))) => serve(stream, place),
            // Nobody closes the semaphore.
            (Err(_), _) => return,
            (_, Err(error)) => {
                tracing::warn!(%error, "a connection was lost before it was accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves HTTP/2 and HTTP/1.1 over TLS until the shutdown is requested; then goes on for a while, because callers that
/// have not heard of it still come, and asks them to come back over another connection. Then closes what is idle, and
/// returns when the last request is answered.
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
    let (close, closing) = Shutdown::by_hand();
    let end = async {
        shutdown.requested().await;
        tokio::time::sleep(limits.linger).await;
    };
    accept(listener, &places, end, |stream, place| {
        let (acceptor, handler) = (acceptor.clone(), handler.clone());
        let (shutdown, closing) = (shutdown.clone(), closing.clone());
        tokio::spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            match timeout(limits.handshake, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => connection(stream, limits, handler, &shutdown, &closing).await,
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
    shutdown: &Shutdown,
    closing: &Shutdown,
) where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    // Agreed on in the handshake: who says nothing at all is not waited for, to find out which.
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let builder = builder(limits, http2);
    let activity = Activity::begin(limits);
    let service = service_fn(|request: Request<Incoming>| {
        let one_more = request.version() < Version::HTTP_2;
        let (busy, answer) = (activity.busy(), handler(request));
        let shutdown = shutdown.clone();
        async move {
            let _busy = busy;
            // What takes too long ends the stream without an answer, which allows nothing.
            let mut response = timeout(limits.request, answer).await.map_err(std::io::Error::from)?;
            if one_more && shutdown.is_requested() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::io::Error>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = activity.silence() => {
            connection.as_mut().graceful_shutdown();
            // Who has nothing to say does not answer a farewell, either.
            timeout(limits.handshake, connection).await.unwrap_or(Ok(()))
        }
        () = closing.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended early");
    }
}

fn builder(limits: Limits, http2: bool) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(MAX_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(MAX_HEAD)
        .keep_alive_interval(limits.idle / 4)
        .keep_alive_timeout(limits.handshake);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

/// What is going on in a connection. Clones share one state.
#[derive(Clone)]
struct Activity(Arc<Mutex<Doing>>);

struct Doing {
    /// Requests being answered.
    requests: usize,
    /// When the connection is silent for too long, if nothing more happens.
    silent_at: Instant,
    idle: Duration,
}

/// One request is being answered.
struct Busy(Activity);

impl Activity {
    fn begin(limits: Limits) -> Self {
        let silent_at = Instant::now() + limits.head;
        Self(Arc::new(Mutex::new(Doing { requests: 0, silent_at, idle: limits.idle })))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Doing) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn busy(&self) -> Busy {
        self.change(|doing| doing.requests += 1);
        Busy(self.clone())
    }

    /// Resolves when nothing has been asked for too long.
    async fn silence(&self) {
        loop {
            let now = Instant::now();
            let until = self.change(|doing| match doing.requests {
                0 => doing.silent_at,
                _ => now + doing.idle,
            });
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|doing| {
            doing.requests -= 1;
            doing.silent_at = Instant::now() + doing.idle;
        });
    }
}
