//! `kubectl logs`: what a pod's processes have said, all of them in one log.

use super::Kubelet;
use super::answer::{Body, plain};
use futures::{Stream, TryStreamExt as _, stream};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use std::io::{Result, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes that are read at once.
const CHUNK: u64 = 16 * 1024;

impl Kubelet {
    /// The log of a pod, with the options `tailLines` and `follow`.
    pub(super) fn logs(
        self: &Arc<Self>,
        namespace: &str,
        pod: &str,
        query: &[(String, String)],
    ) -> Response<Body> {
        if !self.runs(namespace, pod) {
            return plain(StatusCode::NOT_FOUND, "only pods of the operator run as processes, and have logs");
        }
        let option = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let tail = option("tailLines").and_then(|lines| lines.parse().ok());
        let followed = option("follow") == Some("true");
        let log = self.shared.sandbox.logs().join(format!("{pod}.log"));
        let (kubelet, namespace, pod) = (Arc::clone(self), namespace.to_owned(), pod.to_owned());
        let said = said(log, tail, move || followed && kubelet.runs(&namespace, &pod));
        Response::new(StreamBody::new(said.map_ok(Frame::data)).boxed_unsync())
    }

    fn runs(&self, namespace: &str, pod: &str) -> bool {
        self.lock().pods.values().any(|entry| entry.is(namespace, pod))
    }
}

/// The last lines of a log, or all of them, and what is added to it as long as it `goes_on`.
fn said(
    log: PathBuf,
    tail: Option<usize>,
    goes_on: impl Fn() -> bool + Send + 'static,
) -> impl Stream<Item = Result<Bytes>> + Send {
    stream::try_unfold((log, None, goes_on), move |(log, at, goes_on)| async move {
        let mut at = match at {
            Some(at) => at,
            None => begin(&tokio::fs::read(&log).await?, tail),
        };
        loop {
            // Asked before the look, which so sees all that was said.
            let more = goes_on();
            let read = read_from(&log, at).await?;
            if !read.is_empty() {
                at += read.len() as u64;
                return Ok(Some((read.into(), (log, Some(at), goes_on))));
            }
            if !more {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}

/// Where the last lines begin.
fn begin(log: &[u8], tail: Option<usize>) -> u64 {
    let Some(lines) = tail else { return 0 };
    let text = log.strip_suffix(b"\n").unwrap_or(log);
    let ends = text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    [log.len()].into_iter().chain(ends).nth(lines).unwrap_or(0) as u64
}

async fn read_from(log: &Path, at: u64) -> Result<Vec<u8>> {
    let mut file = File::open(log).await?;
    file.seek(SeekFrom::Start(at)).await?;
    let mut bytes = vec![];
    file.take(CHUNK).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_log_are_found() {
        let log = b"a\nbc\nd\n";
        let begins = [None, Some(0), Some(1), Some(2), Some(3), Some(9)].map(|tail| begin(log, tail));
        assert_eq!(begins, [0, 7, 5, 2, 0, 0]);
        assert_eq!((begin(b"a\nb", Some(1)), begin(b"", Some(1))), (2, 0));
    }
}
