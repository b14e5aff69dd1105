//! A way of its own to the API server for each pod of ours, on which the weather can be bad: slow, silent, deaf or shut.
//!
//! A gateway hands bytes on and knows nothing of them, so TLS, tokens and names are those of a direct connection.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ControlPlane;
use crate::host::lock;

const SLOW: Duration = Duration::from_millis(500);

/// The fate of bytes on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weather {
    #[default]
    Clear,
    /// They arrive, half a second later.
    Slow,
    /// They are taken, and kept until the weather changes: connections are half open.
    Silent,
    /// Requests arrive, answers are lost; the connection ends when the weather changes.
    Deaf,
    /// Connections end, and no new one comes about.
    Shut,
}

/// The gateways, by name of the pod; cheap to clone. They end with the last clone.
#[derive(Clone)]
pub struct Gateways {
    upstream: String,
    doors: Arc<Mutex<HashMap<String, Door>>>,
}

struct Door {
    url: String,
    weather: watch::Sender<Weather>,
    _serving: JoinSet<()>,
}

impl Gateways {
    /// Gateways to the API server of this control plane.
    pub fn of(control_plane: &ControlPlane) -> Self {
        let upstream = control_plane
            .server()
            .url
            .trim_start_matches("https://")
            .to_owned();
        Self {
            upstream,
            doors: Arc::default(),
        }
    }

    /// Returns where the pod of this name finds the API server.
    pub(crate) fn url(&self, pod: &str) -> Result<String> {
        let mut doors = lock(&self.doors);
        if let Some(door) = doors.get(pod) {
            return Ok(door.url.clone());
        }
        let upstream: SocketAddr = self.upstream.parse().context("the API server's address")?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("https://{}", listener.local_addr()?);
        let listener = TcpListener::from_std(listener)?;
        let weather = watch::Sender::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, upstream, weather.subscribe()));
        doors.insert(
            pod.to_owned(),
            Door {
                url: url.clone(),
                weather,
                _serving: serving,
            },
        );
        Ok(url)
    }

    /// From now on the weather is so for this pod, if it has ever been started.
    pub fn set(&self, pod: &str, weather: Weather) {
        if let Some(door) = lock(&self.doors).get(pod) {
            door.weather.send_replace(weather);
        }
    }

    /// From now on the weather is clear for every pod.
    pub fn clear(&self) {
        for door in lock(&self.doors).values() {
            door.weather.send_replace(Weather::Clear);
        }
    }
}

async fn serve(listener: TcpListener, upstream: SocketAddr, weather: watch::Receiver<Weather>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted && *weather.borrow() != Weather::Shut {
                    connections.spawn(connection(client, upstream, weather.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(
    client: TcpStream,
    upstream: SocketAddr,
    mut weather: watch::Receiver<Weather>,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    if client
        .set_nodelay(true)
        .and_then(|()| server.set_nodelay(true))
        .is_err()
    {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (asks, answers) = (weather.clone(), weather.clone());
    tokio::select! {
        () = pump(from_client, to_server, asks, false) => {}
        () = pump(from_server, to_client, answers, true) => {}
        // Without the sender there is no gateway any more.
        _ = weather.wait_for(|weather| *weather == Weather::Shut) => {}
    }
}

/// Hands on what comes, as the weather lets it, until either side has ended.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
    answers: bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let now = *weather.borrow();
        let changed = match now {
            Weather::Slow => {
                tokio::time::sleep(SLOW).await;
                true
            }
            Weather::Silent => weather
                .wait_for(|weather| *weather != Weather::Silent)
                .await
                .is_ok(),
            // Bytes after a gap are useless.
            Weather::Deaf if answers => {
                let _ = weather.wait_for(|weather| *weather != Weather::Deaf).await;
                return;
            }
            Weather::Clear | Weather::Deaf | Weather::Shut => true,
        };
        if !changed || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
