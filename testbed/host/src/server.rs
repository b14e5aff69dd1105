//! The API of a simulated host, call by call, on one connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use super::Shared;
use super::faults::{Answer, Call};
use super::machine::{Command, Refusal};

/// Serves one connection until its client or the host is done with it.
pub(super) async fn connection(stream: UnixStream, shared: Arc<Shared>) -> io::Result<()> {
    let (socket, broken) = Half::of(stream);
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, broken) = (Arc::clone(&shared), Arc::clone(&broken));
        async move {
            let path = request.uri().path();
            let call = call(request.method(), path);
            let fault = shared.record(path, call);
            Ok::<_, Infallible>(match (call, fault) {
                (_, Some(Answer::Half)) => {
                    broken.notify_one();
                    std::future::pending().await
                }
                (_, Some(Answer::Refused(sentence))) => {
                    text(StatusCode::INTERNAL_SERVER_ERROR, &sentence)
                }
                (_, Some(Answer::NotFound(sentence))) => text(StatusCode::NOT_FOUND, &sentence),
                (_, Some(Answer::NotAllowed(sentence))) => text(StatusCode::CONFLICT, &sentence),
                (_, Some(Answer::Locked)) => refusal(Refusal::Locked),
                (_, Some(Answer::Nonsense(body))) => {
                    body_of(StatusCode::OK, "application/json", body)
                }
                (Some(call), None) => answer(&shared, call),
                (Some(call), Some(Answer::Lost)) => {
                    answer(&shared, call);
                    std::future::pending().await
                }
                (_, Some(Answer::Hang | Answer::Lost)) => std::future::pending().await,
                (None, None) => text(StatusCode::NOT_FOUND, "no such resource"),
            })
        }
    });
    http1::Builder::new()
        .serve_connection(socket, service)
        .await
        .map_err(io::Error::other)
}

fn call(method: &Method, path: &str) -> Option<Call> {
    Some(match (method.as_str(), path) {
        ("GET", "/os") => Call::Os,
        ("GET", "/updates/status") => Call::Status,
        ("POST", "/actions/refresh-updates") => Call::Action(Command::Refresh),
        ("POST", "/actions/prepare-update") => Call::Action(Command::Prepare),
        ("POST", "/actions/activate-update") => Call::Action(Command::Activate),
        ("POST", "/actions/deactivate-update") => Call::Action(Command::Deactivate),
        ("POST", "/actions/reboot") => Call::Reboot,
        _ => return None,
    })
}

fn answer(shared: &Arc<Shared>, call: Call) -> Response<Full<Bytes>> {
    match call {
        Call::Os => document(&shared.machine().os()),
        Call::Status => match shared.machine().status() {
            Ok(status) => document(&json!(status)),
            Err(why) => refusal(why),
        },
        Call::Action(command) => begun(shared.start(command)),
        Call::Reboot => {
            shared.request_reboot();
            begun(Ok(()))
        }
    }
}

fn begun(result: Result<(), Refusal>) -> Response<Full<Bytes>> {
    result.map_or_else(refusal, |()| text(StatusCode::NO_CONTENT, ""))
}

fn refusal(why: Refusal) -> Response<Full<Bytes>> {
    match why {
        Refusal::NotFound(sentence) => text(StatusCode::NOT_FOUND, sentence),
        Refusal::NotAllowed(sentence) => text(StatusCode::CONFLICT, sentence),
        Refusal::Locked => text(
            StatusCode::LOCKED,
            "Update lock held: another update command is running",
        ),
    }
}

fn document(value: &Value) -> Response<Full<Bytes>> {
    body_of(StatusCode::OK, "application/json", value.to_string())
}

fn text(status: StatusCode, sentence: &str) -> Response<Full<Bytes>> {
    body_of(status, "text/plain; charset=utf-8", sentence.to_owned())
}

fn body_of(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A connection on which an answer can be broken off: hyper would not send one that is wrong.
struct Half;

impl Half {
    /// The socket for hyper, and a signal upon which half an answer is written and the connection closed.
    fn of(stream: UnixStream) -> (TokioIo<tokio::io::DuplexStream>, Arc<tokio::sync::Notify>) {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let broken = Arc::new(tokio::sync::Notify::new());
        let signal = Arc::clone(&broken);
        tokio::spawn(async move {
            let mut stream = stream;
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut stream, &mut far) => {}
                () = signal.notified() => {
                    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n\r\n{\"update_state\": \"Id";
                    // The client may be gone already.
                    let _ = stream.write_all(half).await;
                }
            }
        });
        (TokioIo::new(near), broken)
    }
}
