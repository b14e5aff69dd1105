//! Every state that every object ever had, in the one order that there is: that of etcd's revisions.
//!
//! etcd is asked itself, by its JSON gateway, so nothing is missed while API servers are away, and nothing that they
//! say is believed. It needs an API server that stores JSON ([`crate::Options::under_faults`]).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::control_plane::BUMP;
use crate::etcd::ask;

/// Pause before etcd is asked again.
const RETRY: Duration = Duration::from_millis(200);

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Its place in the order; objects show it as their `resourceVersion`.
    pub number: u64,
    /// The object's key, such as `/registry/minions/node-0`.
    pub key: String,
    /// The object as it is from then on; `None`: it is deleted.
    pub object: Option<Json>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Revision(Revision),
    /// etcd was restored from a snapshot. What came after this revision is forgotten.
    Restored(u64),
}

/// The revisions of the objects whose keys are `wanted`, from the first on.
pub struct Revisions {
    received: mpsc::UnboundedReceiver<(Instant, News)>,
    _watching: JoinSet<()>,
}

impl Revisions {
    /// Begins to read them from etcd at this address.
    pub fn of(etcd: &str, wanted: fn(&str) -> bool) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let mut watching = JoinSet::new();
        watching.spawn(follow(
            etcd.trim_start_matches("http://").to_owned(),
            wanted,
            sender,
        ));
        Self {
            received,
            _watching: watching,
        }
    }

    /// The next one, if it has come, and when it came.
    pub fn take(&mut self) -> Option<(Instant, News)> {
        self.received.try_recv().ok()
    }
}

/// A line of the answer to a watch.
#[derive(Deserialize)]
struct Line {
    result: Watched,
}

#[derive(Deserialize)]
struct Watched {
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    compact_revision: String,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: ByteString,
    mod_revision: String,
    value: Option<ByteString>,
}

async fn follow(
    etcd: String,
    wanted: fn(&str) -> bool,
    sender: mpsc::UnboundedSender<(Instant, News)>,
) {
    let mut next = 1;
    while !sender.is_closed() {
        if let Err(error) = watch(&etcd, wanted, &sender, &mut next).await {
            tracing::debug!(error = format!("{error:#}"), "etcd");
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads from revision `next` on, until the connection ends.
async fn watch(
    etcd: &str,
    wanted: fn(&str) -> bool,
    sender: &mpsc::UnboundedSender<(Instant, News)>,
    next: &mut u64,
) -> Result<()> {
    // From `/registry/` to `/registry0`.
    let range = r#""key": "L3JlZ2lzdHJ5Lw==", "range_end": "L3JlZ2lzdHJ5MA==""#;
    let body = format!(r#"{{"create_request": {{{range}, "start_revision": "{next}"}}}}"#);
    let mut lines = ask(etcd, "/v3/watch", body).await?;
    while let Some(line) = lines.try_next().await? {
        let watched = serde_json::from_str::<Line>(&line)
            .context("a line of etcd")?
            .result;
        if let Some((restored_to, goes_on_at)) = watched.restored(*next) {
            *next = goes_on_at;
            sender.send((Instant::now(), News::Restored(restored_to)))?;
            bail!("etcd was restored");
        }
        ensure!(!watched.canceled, "etcd has ended the watch");
        for event in watched.events {
            let revision = event.read(wanted)?;
            *next = revision.0 + 1;
            if let Some(revision) = revision.1 {
                sender.send((Instant::now(), News::Revision(revision)))?;
            }
        }
    }
    Ok(())
}

impl Watched {
    /// If etcd was restored since it was asked from revision `next` on: to which revision, and where those after it begin. A
    /// restore marks all revisions up to its own as compacted, and is far above those of before.
    fn restored(&self, next: u64) -> Option<(u64, u64)> {
        let compacted: u64 = self.compact_revision.parse().ok()?;
        let restored = self.canceled && compacted > next.saturating_add(BUMP / 2);
        restored.then_some((compacted.saturating_sub(BUMP), compacted + 1))
    }
}

impl Event {
    /// Its revision; and what changed, if that is wanted.
    fn read(self, wanted: fn(&str) -> bool) -> Result<(u64, Option<Revision>)> {
        let number = self.kv.mod_revision.parse()?;
        let key = String::from_utf8(self.kv.key.0)?;
        if !wanted(&key) {
            return Ok((number, None));
        }
        let object = match self.kv.value.filter(|_| self.kind != "DELETE") {
            None => None,
            Some(value) => {
                let mut object: Json =
                    serde_json::from_slice(&value.0).with_context(|| key.clone())?;
                if let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut) {
                    metadata.remove("managedFields");
                }
                Some(object)
            }
        };
        Ok((
            number,
            Some(Revision {
                number,
                key,
                object,
            }),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_etcd_is_read() {
        let line = r#"{"result":{"header":{"revision":"9"},"events":[
            {"kv":{"key":"L2E=","mod_revision":"8","value":"eyJtZXRhZGF0YSI6eyJtYW5hZ2VkRmllbGRzIjpbXX19"}},
            {"type":"DELETE","kv":{"key":"L2E=","mod_revision":"9"}}]}}"#;
        let events = serde_json::from_str::<Line>(line).unwrap().result.events;
        let read: Vec<_> = events
            .into_iter()
            .map(|event| event.read(|_| true).unwrap().1.unwrap())
            .collect();
        let object = Some(serde_json::json!({"metadata": {}}));
        assert_eq!(
            read[0],
            Revision {
                number: 8,
                key: "/a".to_owned(),
                object
            }
        );
        assert_eq!(
            read[1],
            Revision {
                number: 9,
                key: "/a".to_owned(),
                object: None
            }
        );
    }

    #[test]
    fn a_restore_is_told_from_a_compaction() {
        let restored = |compacted: u64, next| {
            let line =
                format!(r#"{{"result":{{"canceled":true,"compact_revision":"{compacted}"}}}}"#);
            serde_json::from_str::<Line>(&line)
                .unwrap()
                .result
                .restored(next)
        };
        assert_eq!(restored(800, 7), None);
        assert_eq!(restored(BUMP + 800, 900), Some((800, BUMP + 801)));
        assert_eq!(
            restored(2 * BUMP + 5, BUMP + 100),
            Some((BUMP + 5, 2 * BUMP + 6))
        );
    }
}
