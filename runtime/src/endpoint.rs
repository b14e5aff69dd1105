//! The plain HTTP endpoint of a process, for the kubelet: `/livez` and `/readyz`.

use crate::connections::{self, Drops, Limits, Pages};
use crate::{Heartbeat, Shutdown};
use arc_swap::ArcSwapOption;
use http::StatusCode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use warp::reply::{Reply as _, Response, with_status};
use warp::{Filter as _, path};

/// The kubelet opens a connection for each probe. There is no TLS, and no body is read.
const LIMITS: Limits = Limits {
    port: "health",
    connections: 64,
    all_bodies: 0,
    request: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    linger: Duration::ZERO,
    closing: Duration::from_secs(1),
};

/// Connections that the kernel keeps until they are accepted (or fewer: it has a limit of its own). A client that comes while it has
/// that many must try again a second later.
const BACKLOG: u32 = 4096;

/// Whether this process is alive; whether it is ready, and if not, why. Once ready, it stays ready. Clones share one state.
#[derive(Clone, Debug)]
pub struct Health {
    unready: Arc<ArcSwapOption<String>>,
    heartbeat: Option<Heartbeat>,
}

impl Health {
    /// Not ready yet, because of `reason`: `/readyz` answers 503 with it.
    pub fn starting(reason: impl Into<String>) -> Self {
        Self {
            unready: Arc::new(ArcSwapOption::from_pointee(reason.into())),
            heartbeat: None,
        }
    }

    /// Lets `/livez` answer 503 while the loop of this heartbeat is stuck.
    #[must_use]
    pub fn with_loop(self, heartbeat: Heartbeat) -> Self {
        Self {
            heartbeat: Some(heartbeat),
            ..self
        }
    }

    /// From now on `/readyz` answers 200.
    ///
    /// Nothing takes this back at the end: Kubernetes itself stops sending new callers to a pod that is being deleted, and
    /// sends them there all the same if no other pod is ready.
    pub fn ready(&self) {
        self.unready.store(None);
    }

    fn is_stuck(&self) -> bool {
        self.heartbeat.as_ref().is_some_and(Heartbeat::is_stuck)
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

/// Listens on `address`. `[::]` means every address of both families; where the kernel has no IPv6, `0.0.0.0`. Needs a running
/// tokio runtime.
///
/// # Errors
/// The address is taken, or not ours.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let bind = |address: SocketAddr| {
        let socket = if address.is_ipv6() {
            TcpSocket::new_v6()
        } else {
            TcpSocket::new_v4()
        }?;
        // As servers do: or a port could not be taken again while a connection of it is in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let bound = match bind(address) {
        Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    };
    bound.map_err(|source| ListenError { address, source })
}

/// Serves `/livez` and `/readyz` until the shutdown is requested.
pub async fn serve(listener: TcpListener, health: Health, drops: Drops, shutdown: Shutdown) {
    connections::serve(listener, None, LIMITS, drops, pages(health), shutdown).await;
}

fn pages(health: Health) -> Pages {
    let alive = health.clone();
    let livez = path!("livez")
        .map(move || answer(alive.is_stuck().then(|| "the loop is stuck".to_owned())));
    let readyz = path!("readyz").map(move || answer(health.unready.load().as_deref().cloned()));
    connections::reads().and(livez.or(readyz).unify()).boxed()
}

fn answer(why_not: Option<String>) -> Response {
    let (status, text) = match why_not {
        None => (StatusCode::OK, "ok".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    };
    with_status(text + "\n", status).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    async fn started() -> (SocketAddr, Health, crate::shutdown::Trigger, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::starting("watches are not synced");
        let (trigger, shutdown) = Shutdown::by_hand();
        let server = tokio::spawn(serve(listener, health.clone(), Drops::default(), shutdown));
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
        tokio::time::timeout(Duration::from_secs(5), exchange)
            .await
            .unwrap()
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

    #[tokio::test]
    async fn a_process_whose_loop_is_stuck_is_not_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, (_trigger, shutdown)) = (listener.local_addr().unwrap(), Shutdown::by_hand());
        let heartbeat = Heartbeat::new(Duration::ZERO);
        let health = Health::starting("no matter").with_loop(heartbeat);
        tokio::spawn(serve(listener, health, Drops::default(), shutdown));
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 503"));
    }
}
