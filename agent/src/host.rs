//! Bottlerocket's own API, over its Unix socket: each call with a time-out, each answer read into a type.
//!
//! The source of all rules is the `OpenAPI` file of Bottlerocket's API server: action calls answer 204 as soon as the
//! command has begun; what became of it stands in `/updates/status`.

mod error;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

pub use brupop_agent_core::answer::{UpdateStatus, parse_boot_id};
pub use error::HostError;

use brupop_agent_core::answer::{Nonsense, parse_os};
use brupop_agent_core::step::{Command, HostCall};
use brupop_api::printable::printable;

/// Longest answer that is read, in bytes. A status document with 40,000 versions has less than a quarter of it.
const BODY_MAX: usize = 4 << 20;
/// Longest sentence of an error that is told, in bytes.
const SENTENCE_MAX: usize = 512;

#[derive(Clone, Debug)]
pub struct Host {
    socket: PathBuf,
    timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusAnswer {
    /// 404: no update command has run since boot.
    Unknown,
    /// 423: an update command runs.
    Busy,
    /// Status 200, with an answer that is understood.
    Known(UpdateStatus),
}

/// The host's answer to a command; sentences are the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// Status 204: the command has begun, and is not done.
    Begun,
    /// It is not done; 423 while another command runs. Holds why.
    Refused(String),
}

impl Host {
    /// The API behind `socket`; each call takes at most `timeout`.
    pub fn new(socket: impl Into<PathBuf>, timeout: Duration) -> Self {
        Self {
            socket: socket.into(),
            timeout,
        }
    }

    /// `GET /os`: the version that runs.
    ///
    /// # Errors
    /// No answer in time, or not one that the API may give.
    pub async fn os(&self) -> Result<String, HostError> {
        const CALL: &str = "GET /os";
        match self.exchange(CALL).await? {
            (StatusCode::OK, body) => parse_os(&body).map_err(nonsense(CALL)),
            other => Err(unexpected(CALL, &other)),
        }
    }

    /// `GET /updates/status`: where updates stand.
    ///
    /// # Errors
    /// No answer in time, or not one that the API may give.
    pub async fn status(&self) -> Result<StatusAnswer, HostError> {
        const CALL: &str = "GET /updates/status";
        match self.exchange(CALL).await? {
            (StatusCode::OK, body) => UpdateStatus::parse(&body)
                .map(StatusAnswer::Known)
                .map_err(nonsense(CALL)),
            (StatusCode::NOT_FOUND, _) => Ok(StatusAnswer::Unknown),
            (StatusCode::LOCKED, _) => Ok(StatusAnswer::Busy),
            other => Err(unexpected(CALL, &other)),
        }
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// No answer in time, or not one that the API may give: then it may have begun all the same.
    pub async fn call(&self, call: HostCall) -> Result<CommandAnswer, HostError> {
        let name = match call {
            HostCall::Command(Command::Refresh) => "POST /actions/refresh-updates",
            HostCall::Command(Command::Prepare) => "POST /actions/prepare-update",
            HostCall::Command(Command::Activate) => "POST /actions/activate-update",
            HostCall::Command(Command::Deactivate) => "POST /actions/deactivate-update",
            HostCall::Reboot => "POST /actions/reboot",
        };
        let answer = self.exchange(name).await?;
        match answer.0 {
            StatusCode::NO_CONTENT => Ok(CommandAnswer::Begun),
            // There is nothing to do it with, such as no chosen update; not in the present state; another command runs; or
            // it failed.
            StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::LOCKED
            | StatusCode::INTERNAL_SERVER_ERROR => Ok(CommandAnswer::Refused(sentence(&answer.1))),
            _ => Err(unexpected(name, &answer)),
        }
    }

    async fn exchange(&self, call: &'static str) -> Result<(StatusCode, Bytes), HostError> {
        tokio::time::timeout(self.timeout, exchange(&self.socket, call))
            .await
            .map_err(|_| HostError::TimedOut {
                call,
                after: self.timeout,
            })?
    }
}

/// Makes one call, named by its method and path, on a connection of its own, so that none is left half open. An API server that
/// is restarted is not reached: the container's mount stays with the old socket until the container is replaced.
async fn exchange(socket: &Path, call: &'static str) -> Result<(StatusCode, Bytes), HostError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| HostError::Unreachable {
            socket: socket.to_owned(),
            source,
        })?;
    let broken = |source: hyper::Error| HostError::Broken {
        call,
        source: source.into(),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // It ends with this. What goes wrong comes up where the answer is awaited.
    let mut speaking = JoinSet::new();
    speaking.spawn(connection);
    let (method, path) = call.split_once(' ').unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| nonsense(call)(Nonsense("the request cannot be written".to_owned())))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), BODY_MAX)
        .collect()
        .await
        .map_err(|source| HostError::Broken { call, source })?;
    Ok((status, body.to_bytes()))
}

fn nonsense(call: &'static str) -> impl Fn(Nonsense) -> HostError {
    move |Nonsense(why)| HostError::Nonsense { call, why }
}

fn unexpected(call: &'static str, (status, body): &(StatusCode, Bytes)) -> HostError {
    HostError::Unexpected {
        call,
        status: status.as_u16(),
        sentence: sentence(body),
    }
}

/// Returns the host's sentence, printable and at most [`SENTENCE_MAX`] bytes.
fn sentence(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SENTENCE_MAX)]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&line, SENTENCE_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_short_line() {
        assert_eq!(sentence(b"  Update lock\n held \r\n"), "Update lock held");
        assert!(sentence(&vec![b'x'; 100_000]).len() <= SENTENCE_MAX);
        assert!(
            sentence(&[0xff; 4])
                .chars()
                .all(|c| c == char::REPLACEMENT_CHARACTER)
        );
        assert!(sentence(&vec![0xff; 100_000]).len() <= SENTENCE_MAX);
        assert_eq!(
            sentence("\u{9b}2J\u{202e}no".as_bytes()),
            "\\u{9b}2J\\u{202e}no"
        );
    }
}
