//! Requests to etcd itself, by its JSON gateway: a request, and the lines of its answer.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The answer to a request, line by line.
pub(crate) struct Lines {
    answer: Incoming,
    rest: Vec<u8>,
    _connection: JoinSet<hyper::Result<()>>,
}

impl Lines {
    /// Asks etcd at this address, such as `127.0.0.1:2379`.
    pub(crate) async fn of(etcd: &str, path: &str, body: String) -> Result<Self> {
        let stream = TcpStream::connect(etcd).await?;
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let request = http::Request::post(path).header("host", etcd).body(body)?;
        let answer = client.send_request(request).await?;
        ensure!(
            answer.status().is_success(),
            "etcd answers {path} with {}",
            answer.status()
        );
        Ok(Self {
            answer: answer.into_body(),
            rest: vec![],
            _connection: connections,
        })
    }

    /// The next line; `None` if there is no more.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.drain(..=end).collect()));
            }
            let Some(frame) = self.answer.frame().await else {
                return Ok(None);
            };
            if let Ok(bytes) = frame?.into_data() {
                self.rest.extend_from_slice(&bytes);
            }
        }
    }
}

/// A part of a snapshot.
#[derive(Deserialize)]
struct Part {
    result: Blob,
}

#[derive(Deserialize)]
struct Blob {
    #[serde(default)]
    remaining_bytes: String,
    blob: Option<ByteString>,
}

/// Writes what etcd holds now into a file, as `etcdctl snapshot save` does.
pub(crate) async fn save_snapshot(etcd: &str, to: &Path) -> Result<()> {
    let mut parts = Lines::of(etcd, "/v3/maintenance/snapshot", "{}".to_owned()).await?;
    let mut file = tokio::fs::File::create(to)
        .await
        .with_context(|| to.display().to_string())?;
    let mut left = None;
    while let Some(line) = parts.next().await? {
        let Part { result } = serde_json::from_slice(&line).context("a part of a snapshot")?;
        file.write_all(&result.blob.unwrap_or_default().0).await?;
        left = Some(result.remaining_bytes);
    }
    file.flush().await?;
    // Protobuf leaves out a zero.
    ensure!(
        matches!(left.as_deref(), Some("" | "0")),
        "etcd has not sent all of its snapshot"
    );
    Ok(())
}

/// Puts these objects under these keys, as they are. All are put, or none.
pub(crate) async fn put(etcd: &str, objects: &[(String, Json)]) -> Result<()> {
    let put = |(key, object): &(String, Json)| -> Result<Json> {
        let (key, value) = (
            ByteString(key.clone().into_bytes()),
            ByteString(serde_json::to_vec(object)?),
        );
        Ok(json!({"requestPut": {"key": key, "value": value}}))
    };
    let puts = objects.iter().map(put).collect::<Result<Vec<_>>>()?;
    let mut answer = Lines::of(etcd, "/v3/kv/txn", json!({"success": puts}).to_string()).await?;
    while answer.next().await?.is_some() {}
    Ok(())
}
