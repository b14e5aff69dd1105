//! `kubectl exec`, by WebSocket and without standard input. API servers that translate to SPDY, as those before Kubernetes
//! 1.36 do, are refused.

use super::answer::plain;
use super::{Kubelet, PodEntry};
use anyhow::{Context as _, Result};
use futures::{SinkExt as _, Stream, StreamExt as _, stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{self, Message};

/// The messages of the WebSocket.
const PROTOCOL: &str = "v5.channel.k8s.io";
/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;

/// The first byte of a message.
#[derive(Clone, Copy)]
enum Channel {
    Stdout = 1,
    Stderr = 2,
    /// Its end, as a Status.
    Error = 3,
}

impl Kubelet {
    /// Returns what runs beside a pod's process as that one does: in its folder, with its environment.
    pub(super) fn command(&self, namespace: &str, pod: &str, words: &[String]) -> Result<Command> {
        let running = |entry: &PodEntry| {
            entry
                .process
                .as_ref()
                .filter(|_| entry.is(namespace, pod))
                .map(|process| process.pid)
        };
        let pid = self
            .lock()
            .pods
            .values()
            .find_map(running)
            .context("the container is not running")?;
        let (name, arguments) = words.split_first().context("no command")?;
        let program = self.program(name)?;
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
        let environment = environment
            .split('\0')
            .filter_map(|variable| variable.split_once('='));
        let mut command = Command::new(&program.binary);
        command
            .args(arguments)
            .env_clear()
            .envs(environment)
            .current_dir(format!("/proc/{pid}/cwd"))
            .process_group(self.shared.sandbox.group())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Agrees to a WebSocket, and runs the command in it.
pub(super) fn upgraded(
    mut request: Request<Incoming>,
    command: Result<Command>,
) -> Response<Full<Bytes>> {
    let headers = request.headers();
    let protocols = headers
        .get(header::SEC_WEBSOCKET_PROTOCOL)
        .and_then(|it| it.to_str().ok());
    let speaks =
        protocols.is_some_and(|it| it.split(',').any(|protocol| protocol.trim() == PROTOCOL));
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| speaks);
    let accepted =
        key.and_then(|key| HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok());
    let Some(accepted) = accepted else {
        return plain(
            StatusCode::BAD_REQUEST,
            "the test bed's kubelets speak v5.channel.k8s.io only",
        );
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let ran = async { anyhow::Ok(run(upgrade.await?, command).await?) };
        if let Err(error) = ran.await {
            tracing::debug!(error = format!("{error:#}"), "exec");
        }
    });
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
    response.headers_mut().extend([
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(PROTOCOL),
        ),
        (header::SEC_WEBSOCKET_ACCEPT, accepted),
    ]);
    response
}

/// Sends what the command says, and how it ended. It does not outlive the connection.
async fn run(connection: Upgraded, command: Result<Command>) -> tungstenite::Result<()> {
    let socket =
        WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await;
    let (mut to, from) = socket.split();
    let started = command.and_then(|mut command| Ok(command.spawn()?));
    let ran = async {
        let status = match started {
            Ok(mut child) => {
                let out = child
                    .stdout
                    .take()
                    .map(|from| messages(Channel::Stdout, from).boxed());
                let err = child
                    .stderr
                    .take()
                    .map(|from| messages(Channel::Stderr, from).boxed());
                to.send_all(&mut stream::select_all(out.into_iter().chain(err)))
                    .await?;
                status(child.wait().await?)
            }
            Err(error) => failure("InternalError", &format!("{error:#}")),
        };
        to.send(message(Channel::Error, status.to_string().as_bytes()))
            .await?;
        to.send(Message::Close(Some(CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        })))
        .await
    };
    // A client that closes only its standard input goes on to read.
    let gone = from.any(async |message| message.is_ok_and(|message| message.is_close()));
    tokio::select! {
        ran = ran => ran,
        _ = gone => Ok(()),
    }
}

fn messages(
    channel: Channel,
    from: impl AsyncRead + Unpin + Send + 'static,
) -> impl Stream<Item = tungstenite::Result<Message>> + Send {
    stream::try_unfold(from, move |mut from| async move {
        let mut bytes = vec![0; CHUNK];
        let read = from.read(&mut bytes).await?;
        Ok((read > 0).then(|| (message(channel, &bytes[..read]), from)))
    })
}

fn message(channel: Channel, bytes: &[u8]) -> Message {
    Message::binary([&[channel as u8], bytes].concat())
}

/// Returns what kubectl and our plugin read of a command that has ended.
fn status(ended: ExitStatus) -> Value {
    if ended.success() {
        return json!({"metadata": {}, "status": "Success"});
    }
    let code = ended.code().unwrap_or(137).to_string();
    let mut status = failure(
        "NonZeroExitCode",
        &format!("the command ended with {ended}"),
    );
    status["details"] = json!({"causes": [{"reason": "ExitCode", "message": code}]});
    status
}

fn failure(reason: &str, message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "reason": reason, "message": message})
}
