//! The API server's audit log. It is written before the answer is sent (mode `blocking`), so anyone who has an answer
//! finds its line.

use crate::waiting::await_until;
use anyhow::Result;
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// One line of the audit log (`audit.k8s.io/v1` Event), as far as tests ask about it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// `ResponseComplete`; of watches also `ResponseStarted`.
    pub stage: String,
    /// Path and query of the request.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    pub user: User,
    /// The impersonated user of a request.
    pub impersonated_user: Option<User>,
    /// The object of a request; empty for paths that name no resource.
    #[serde(default, rename = "objectRef")]
    pub object: ObjectRef,
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// The body that was sent: of our own resources only.
    pub request_object: Option<serde_json::Value>,
    /// The body that was answered: of our own resources only.
    pub response_object: Option<serde_json::Value>,
    /// When the request came in.
    pub request_received_timestamp: Timestamp,
    /// When this stage was reached.
    pub stage_timestamp: Timestamp,
    /// The annotations of authorization and admission.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A user as authentication found it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name, as `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
    pub groups: Vec<String>,
    /// Further claims of the credential, such as `authentication.kubernetes.io/node-name`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    pub resource: String,
    /// The sub-resource; empty of the object itself.
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

/// The status of an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    pub code: u16,
    /// The sentence that came with a refusal.
    pub message: String,
}

impl Event {
    /// The HTTP status code; 0 when there is none.
    pub fn code(&self) -> u16 {
        self.response_status.code
    }

    /// The sentence that came with a refusal.
    pub fn message(&self) -> &str {
        &self.response_status.message
    }

    /// Whether nothing was to be stored.
    pub fn is_dry_run(&self) -> bool {
        self.request_uri.contains("dryRun=All")
    }

    /// Whether an object was to be written.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete") && !self.is_dry_run()
    }

    /// Whether the request was about this object.
    pub fn is_about(&self, resource: &str, name: &str) -> bool {
        self.object.resource == resource && self.object.name == name
    }

    /// Whether the service account of this name has asked.
    pub fn is_by(&self, account: &str) -> bool {
        self.user.username.rsplit(':').next() == Some(account)
    }
}

/// A position in the log; a new one is before the first line.
#[derive(Debug)]
pub struct AuditReader {
    path: PathBuf,
    position: u64,
}

impl AuditReader {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, position: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what is written from now on.
    #[must_use]
    pub fn from_now(self) -> Self {
        let position = std::fs::metadata(&self.path).map_or(0, |data| data.len());
        Self { position, ..self }
    }

    /// The events since the last call. A line that is not yet complete is left for the next call; one that is no event is
    /// passed over: an API server that is killed leaves half of one.
    pub fn read(&mut self) -> std::io::Result<Vec<Event>> {
        let mut events = Vec::new();
        self.each(|event| {
            events.push(event);
            false
        })?;
        Ok(events)
    }

    /// Awaits the next event that satisfies `predicate`; reading goes on behind it.
    pub async fn wait_for(
        &mut self,
        what: &str,
        mut predicate: impl FnMut(&Event) -> bool,
    ) -> Result<Event> {
        await_until(format!("in the audit log: {what}"), async || {
            let mut found = None;
            let read = self.each(|event| {
                let hit = predicate(&event);
                if hit {
                    found = Some(event);
                }
                hit
            });
            if let Err(error) = read {
                tracing::warn!(%error, "audit log");
            }
            found
        })
        .await
    }

    /// Hands over events until `stop` says so.
    fn each(&mut self, mut stop: impl FnMut(Event) -> bool) -> std::io::Result<()> {
        let mut file = match std::fs::File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.position))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok(());
            }
            self.position += u64::try_from(read).unwrap_or(u64::MAX);
            if serde_json::from_slice(&line).is_ok_and(&mut stop) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const LINE: &str = r#"{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/a","verb":"get","user":{"username":"u","extra":{"authentication.kubernetes.io/node-name":["n"]}},"objectRef":{"resource":"nodes","name":"a"},"responseStatus":{"metadata":{},"code":403},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","stageTimestamp":"2026-01-01T00:00:00.000001Z","annotations":{"authorization.k8s.io/decision":"forbid"}}"#;

    #[tokio::test]
    async fn a_reader_takes_complete_lines_once() {
        let sandbox = crate::Sandbox::new().unwrap();
        let path = sandbox.dir().join("audit.log");
        let mut reader = AuditReader::new(path.clone());
        assert!(reader.read().unwrap().is_empty(), "no file yet");
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "{LINE}\n{LINE}\n{}", &LINE[..50]).unwrap();
        let first = reader.wait_for("the first", |_| true).await.unwrap();
        assert_eq!((first.code(), first.is_about("nodes", "a")), (403, true));
        assert_eq!(
            first.user.extra["authentication.kubernetes.io/node-name"],
            ["n"]
        );
        assert_eq!(reader.read().unwrap().len(), 1);
        writeln!(file, "{}", &LINE[50..]).unwrap();
        assert_eq!(reader.read().unwrap().len(), 1);
        assert!(reader.read().unwrap().is_empty());
        let mut later = AuditReader::new(path).from_now();
        assert!(later.read().unwrap().is_empty());
    }
}
