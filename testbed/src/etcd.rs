//! Requests to etcd itself, by its JSON gateway: a request, and the lines of its answer.

use std::io;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use futures::{AsyncBufReadExt as _, Stream, TryStreamExt as _};
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;

/// Asks etcd at this address, such as `127.0.0.1:2379`; the answer comes line by line.
pub(crate) async fn ask(
    etcd: &str,
    path: &str,
    body: String,
) -> Result<impl Stream<Item = io::Result<String>> + Unpin + use<>> {
    let client = kube::Client::try_from(kube::Config::new(format!("http://{etcd}").parse()?))?;
    let request = http::Request::post(path).body(body.into_bytes())?;
    let answer = client.request_stream(request).await;
    let answer = answer.with_context(|| format!("etcd is asked {path}"))?;
    Ok(Box::pin(answer).lines())
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
    let mut parts = ask(etcd, "/v3/maintenance/snapshot", "{}".to_owned()).await?;
    let mut file = tokio::fs::File::create(to)
        .await
        .with_context(|| to.display().to_string())?;
    let mut left = None;
    while let Some(line) = parts.try_next().await? {
        let Part { result } = serde_json::from_str(&line).context("a part of a snapshot")?;
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
    let answer = ask(etcd, "/v3/kv/txn", json!({"success": puts}).to_string()).await?;
    Ok(answer.try_for_each(|_| async { Ok(()) }).await?)
}
