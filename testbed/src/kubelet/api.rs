//! Serves the kubelets' API to the API server: `kubectl logs`, and `kubectl exec` by WebSocket and without standard input. API
//! servers that translate to SPDY, as those before Kubernetes 1.36 do, are refused.
//!
//! One server stands for the kubelets of all nodes. Connections come from [`crate::services`], so only the API server
//! reaches it. Each connection is for one request.

use super::{Kubelet, PodEntry};
use crate::services::read_head;
use anyhow::{Context as _, Result};
use futures::{SinkExt as _, StreamExt as _};
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{self, Message};

/// The messages of the WebSocket.
const PROTOCOL: &str = "v5.channel.k8s.io";
/// The first byte of a message: of output, or of its end as a Status.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// Serves each connection until it ends.
pub(super) async fn serve(kubelet: Arc<Kubelet>, mut connections: UnboundedReceiver<UnixStream>) {
    let acceptor = match acceptor() {
        Ok(acceptor) => acceptor,
        Err(error) => {
            return tracing::error!(error = format!("{error:#}"), "kubelets serve nothing");
        }
    };
    // They end with this task.
    let mut served = JoinSet::new();
    while let Some(stream) = connections.recv().await {
        let (kubelet, acceptor) = (Arc::clone(&kubelet), acceptor.clone());
        served.spawn(async move {
            let answered = async { answer(&kubelet, acceptor.accept(stream).await?).await };
            if let Err(error) = answered.await {
                tracing::debug!(error = format!("{error:#}"), "API server to kubelet");
            }
        });
    }
}

/// With a certificate that the API server, which knows no authority of kubelets, does not check.
fn acceptor() -> Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(["kubelet".to_owned()])?;
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    Ok(TlsAcceptor::from(Arc::new(
        config.with_single_cert(vec![made.cert.der().clone()], key)?,
    )))
}

async fn answer(
    kubelet: &Kubelet,
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin,
) -> Result<()> {
    let head = read_head(&mut stream).await?;
    let asked: http::Uri = head.split(' ').nth(1).context("no request")?.parse()?;
    let path: Vec<&str> = asked.path().split('/').collect();
    let (status, body) = match path[..] {
        // All that its processes have said, whatever the options: people look at it, and no test.
        ["", "containerLogs", _namespace, pod, _container] => {
            let log = kubelet.shared.sandbox.logs().join(format!("{pod}.log"));
            std::fs::read(log).map_or(("404 Not Found", vec![]), |log| ("200 OK", log))
        }
        ["", "exec", namespace, pod, _container] => {
            let key = header(&head, "sec-websocket-key");
            let protocols = header(&head, "sec-websocket-protocol").unwrap_or_default();
            if let Some(key) = key.filter(|_| protocols.contains(PROTOCOL)) {
                let accepted = derive_accept_key(key.as_bytes());
                let agreed = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Protocol: {PROTOCOL}\r\nSec-WebSocket-Accept: {accepted}\r\n\r\n"
                );
                stream.write_all(agreed.as_bytes()).await?;
                let query = asked.query().unwrap_or_default().as_bytes();
                let words = form_urlencoded::parse(query).filter(|(key, _)| key == "command");
                let words: Vec<String> = words.map(|(_, word)| word.into_owned()).collect();
                return Ok(run(stream, kubelet.command(namespace, pod, &words)).await?);
            }
            ("400 Bad Request", PROTOCOL.into())
        }
        _ => ("404 Not Found", vec![]),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream
        .write_all(&[head.into_bytes(), body].concat())
        .await?;
    Ok(stream.shutdown().await?)
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    values.next().map(|(_, value)| value.trim())
}

impl Kubelet {
    /// Returns what runs beside a pod's process as that one does: in its folder, with its environment.
    fn command(&self, namespace: &str, pod: &str, words: &[String]) -> Result<Command> {
        let running = |entry: &PodEntry| {
            let process = entry.process.as_ref().filter(|_| entry.is(namespace, pod));
            process.map(|process| process.pid)
        };
        let pid = self.lock().pods.values().find_map(running);
        let pid = pid.context("the container is not running")?;
        let (name, arguments) = words.split_first().context("no command")?;
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
        let variables = environment.split('\0');
        let mut command = Command::new(&self.program(name)?.binary);
        command
            .args(arguments)
            .env_clear()
            .envs(variables.filter_map(|variable| variable.split_once('=')))
            .current_dir(format!("/proc/{pid}/cwd"))
            .process_group(self.shared.sandbox.group())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Sends what the command said, and how it ended. It does not outlive the connection.
async fn run(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    command: Result<Command>,
) -> tungstenite::Result<()> {
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let (mut to, from) = socket.split();
    let ran = async {
        let output = async { anyhow::Ok(command?.output().await?) };
        let (code, said) = match output.await {
            Ok(ended) => (
                ended.status.code().unwrap_or(137),
                [ended.stdout, ended.stderr],
            ),
            Err(error) => (126, [vec![], format!("{error:#}\n").into_bytes()]),
        };
        for (channel, bytes) in [STDOUT, STDERR].into_iter().zip(said) {
            if !bytes.is_empty() {
                to.send(message(channel, &bytes)).await?;
            }
        }
        to.send(message(ERROR, status(code).to_string().as_bytes()))
            .await?;
        let normal = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        to.send(Message::Close(Some(normal))).await
    };
    // A client that closes only its standard input goes on to read.
    let gone = from.any(async |message| message.is_ok_and(|message| message.is_close()));
    tokio::select! {
        ran = ran => ran,
        _ = gone => Ok(()),
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}

/// Returns what kubectl and our plugin read of a command that has ended.
fn status(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("the command ended with exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}
