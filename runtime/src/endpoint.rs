//! The plain HTTP endpoint of a process, for the kubelet: `/livez` and `/readyz`.

use crate::{Shutdown, connections};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Longest wait for the head of a request, also between two requests of one connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection; the kubelet opens another.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(5);
/// Connections served side by side. One more is accepted and waits for a place; the others wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// Longest head of a request, in bytes (hyper's least is 8 KiB).
const MAX_HEAD: usize = 16 * 1024;

const TEXT: &str = "text/plain; charset=utf-8";

/// Whether this process is ready, and if not, why. Once ready, it stays ready. Clones share one state.
#[derive(Clone, Debug)]
pub struct Health(Arc<RwLock<Option<String>>>);

impl Health {
    /// Not ready yet, because of `reason`: `/readyz` answers 503 with it.
    pub fn starting(reason: impl Into<String>) -> Self {
        Self(Arc::new(RwLock::new(Some(reason.into()))))
    }

    /// From now on `/readyz` answers 200.
    ///
    /// Nothing takes this back at the end: Kubernetes itself stops sending new callers to a pod that is being deleted, and
    /// sends them there all the same if no other pod is ready.
    pub fn ready(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn unready(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The address is taken, or not ours.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// Listens on `address`. `[::]` means every address of both families; where the kernel has no IPv6, `0.0.0.0`.
///
/// # Errors
/// The address is taken, or not ours.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let bound = match TcpListener::bind(address).await {
        Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.map_err(|source| ListenError { address, source })
}

/// Serves `/livez` and `/readyz` until the shutdown is requested. Bodies of requests are not read.
pub async fn serve(listener: TcpListener, health: Health, shutdown: Shutdown) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    connections::accept(
        listener,
        &places,
        || (),
        shutdown.requested(),
        |stream, place| {
            let (health, shutdown) = (health.clone(), shutdown.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = connection(stream, &health) => {}
                    () = tokio::time::sleep(CONNECTION_TIMEOUT) => {}
                    () = shutdown.requested() => {}
                }
            });
        },
    )
    .await;
}

async fn connection(stream: TcpStream, health: &Health) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), health);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the health endpoint ended early");
    }
}

fn answer(method: &Method, path: &str, health: &Health) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        return page(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n");
    }
    match path {
        "/livez" => page(StatusCode::OK, "ok\n"),
        "/readyz" => match health.unready() {
            None => page(StatusCode::OK, "ok\n"),
            Some(reason) => page(StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
        },
        _ => page(StatusCode::NOT_FOUND, "try /livez or /readyz\n"),
    }
}

/// A page of plain text.
pub(crate) fn page(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(TEXT));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;

    async fn started() -> (SocketAddr, Health, crate::shutdown::Trigger, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::starting("watches are not synced");
        let (trigger, shutdown) = Shutdown::by_hand();
        let server = tokio::spawn(serve(listener, health.clone(), shutdown));
        (address, health, trigger, server)
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let exchange = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        };
        tokio::time::timeout(Duration::from_secs(5), exchange).await.unwrap()
    }

    #[tokio::test]
    async fn health_follows_the_handle_and_metrics_are_elsewhere() {
        let (address, health, _trigger, _server) = started().await;
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200"));
        let unready = get(address, "/readyz").await;
        assert!(
            unready.starts_with("HTTP/1.1 503") && unready.contains("watches are not synced"),
            "{unready}"
        );
        health.ready();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_never_ends_is_cut_off() {
        let (address, _health, _trigger, _server) = started().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nx: ").await.unwrap();
        let begun = tokio::time::Instant::now();
        // Either an error page or a reset: the connection ends.
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert!(begun.elapsed() <= HEADER_TIMEOUT + Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_shutdown_ends_the_server() {
        let (_address, _health, trigger, server) = started().await;
        trigger.request();
        tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    }
}
