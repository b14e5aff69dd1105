//! The admission endpoint over real sockets: TLS that is swapped, limits, and an end without a gap.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use brupop_runtime::{Shutdown, shutdown::Trigger};
use brupop_webhook::certificates::{Generation, Policy, issue::issue};
use brupop_webhook::metrics::Metrics;
use brupop_webhook::serve::serve;
use brupop_webhook::tls::{Resolver, server_config};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

const NAME: &str = "webhook.ns.svc";
const DEADLINE: Duration = Duration::from_secs(30);
const REFUSED: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",
    "kind":{"group":"brupop.bottlerocket.aws","version":"v2","kind":"BottlerocketShadow"},
    "resource":{"group":"brupop.bottlerocket.aws","version":"v2","resource":"bottlerocketshadows"},
    "subResource":"status","name":"brs-n","namespace":"ns","operation":"UPDATE","dryRun":false,
    "userInfo":{"username":"system:serviceaccount:ns:brupop-agent"},
    "object":{"metadata":{"name":"brs-n"},"spec":{"state":"Idle"}},
    "oldObject":{"metadata":{"name":"brs-n"},"spec":{"state":"Idle"}}}}"#;

struct Server {
    address: SocketAddr,
    resolver: Arc<Resolver>,
    metrics: Arc<Metrics>,
    trigger: Trigger,
    task: JoinHandle<()>,
}

fn generation() -> Generation {
    let now = Timestamp::now();
    let policy = Policy::of_lifetime(SignedDuration::from_hours(1));
    issue(&[NAME.to_owned()], policy, now, now).unwrap()
}

async fn start(linger: Duration) -> Server {
    brupop_runtime::install_crypto_provider();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (resolver, metrics) = (Arc::new(Resolver::default()), Arc::new(Metrics::default()));
    let acceptor = TlsAcceptor::from(Arc::new(server_config(Arc::clone(&resolver))));
    let (trigger, shutdown) = Shutdown::by_hand();
    let task = tokio::spawn(serve(listener, acceptor, Arc::clone(&metrics), linger, shutdown));
    Server { address, resolver, metrics, trigger, task }
}

/// Connects as an API server does that trusts these authorities.
async fn connect(address: SocketAddr, trusted: &[&Generation]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for generation in trusted {
        roots.add(CertificateDer::from_pem_slice(generation.authority.as_bytes()).unwrap()).unwrap();
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    timeout(DEADLINE, connector.connect(ServerName::try_from(NAME).unwrap(), stream)).await.unwrap()
}

async fn open(server: &Server, trusted: &[&Generation]) -> SendRequest<Full<Bytes>> {
    let stream = connect(server.address, trusted).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn post(
    sender: &mut SendRequest<Full<Bytes>>,
    path: &str,
    body: &str,
) -> hyper::Result<(StatusCode, String)> {
    let request = Request::post(path).header("host", NAME).body(Full::from(body.to_owned())).unwrap();
    let response = timeout(DEADLINE, sender.send_request(request)).await.unwrap()?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec()).unwrap()))
}

#[tokio::test]
async fn a_review_is_answered_and_counted_and_anything_else_refused() {
    let server = start(Duration::ZERO).await;
    let generation = generation();
    server.resolver.serve(&generation).unwrap();
    let mut sender = open(&server, &[&generation]).await;

    let (status, answer) = post(&mut sender, "/validate", REFUSED).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&"u-1".into(), &false.into()));
    assert_eq!(
        (&response["status"]["code"], &response["status"]["reason"]),
        (&403.into(), &"Forbidden".into())
    );
    assert_eq!(response["auditAnnotations"]["rule"], "agent-identity");

    for (path, body, expected) in [
        ("/validate", "{", StatusCode::BAD_REQUEST),
        ("/validate", "{}", StatusCode::BAD_REQUEST),
        (
            "/validate",
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
            StatusCode::BAD_REQUEST,
        ),
        ("/validate", &"[".repeat(100_000), StatusCode::BAD_REQUEST),
        ("/", REFUSED, StatusCode::NOT_FOUND),
        ("/validate/more", REFUSED, StatusCode::NOT_FOUND),
    ] {
        assert_eq!(post(&mut sender, path, body).await.unwrap().0, expected, "{path} {body:.20}");
    }
    let too_long = Request::post("/validate").header("content-length", 8 * 1024 * 1024).body(Full::default());
    let refused = timeout(DEADLINE, sender.send_request(too_long.unwrap())).await.unwrap();
    assert!(refused.is_err() || refused.is_ok_and(|answer| answer.status() == StatusCode::PAYLOAD_TOO_LARGE));

    let metrics = server.metrics.render();
    let counted =
        r#"reviews_total{actor="agent",operation="UPDATE",verdict="refused",rule="agent-identity"} 1"#;
    assert!(metrics.contains(counted) && metrics.contains("unreadable_reviews_total 4"), "{metrics}");
}

#[tokio::test]
async fn the_certificate_is_swapped_while_connections_go_on() {
    let server = start(Duration::ZERO).await;
    let (old, new) = (generation(), generation());
    assert!(
        connect(server.address, &[&old]).await.is_err(),
        "nothing is served before there is a certificate"
    );
    assert!(server.resolver.serve(&old).unwrap());
    assert!(!server.resolver.serve(&old).unwrap(), "the same again is no change");
    let mut early = open(&server, &[&old, &new]).await;
    assert!(connect(server.address, &[&new]).await.is_err());

    assert!(server.resolver.serve(&new).unwrap());
    assert_eq!(post(&mut early, "/validate", REFUSED).await.unwrap().0, StatusCode::OK);
    assert!(connect(server.address, &[&old]).await.is_err());
    let mut late = open(&server, &[&old, &new]).await;
    assert_eq!(post(&mut late, "/validate", REFUSED).await.unwrap().0, StatusCode::OK);

    let damaged = Generation { key: generation().key, ..old };
    assert!(server.resolver.serve(&damaged).is_err(), "a key that does not fit");
    assert!(connect(server.address, &[&new]).await.is_ok(), "what was served stays");
}

#[tokio::test]
async fn after_the_signal_it_serves_on_and_then_lets_go() {
    let server = start(Duration::from_secs(1)).await;
    let generation = generation();
    server.resolver.serve(&generation).unwrap();
    let mut idle = open(&server, &[&generation]).await;
    assert_eq!(post(&mut idle, "/validate", REFUSED).await.unwrap().0, StatusCode::OK);

    server.trigger.request();
    let mut late = open(&server, &[&generation]).await;
    assert_eq!(post(&mut late, "/validate", REFUSED).await.unwrap().0, StatusCode::OK, "a new connection");
    assert_eq!(post(&mut idle, "/validate", REFUSED).await.unwrap().0, StatusCode::OK, "an old connection");

    timeout(DEADLINE, server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
    assert!(post(&mut idle, "/validate", REFUSED).await.is_err(), "idle connections are closed");
}

#[tokio::test]
async fn who_says_nothing_is_let_go() {
    let server = start(Duration::ZERO).await;
    let generation = generation();
    server.resolver.serve(&generation).unwrap();
    // No handshake; and a body that never comes.
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut slow = connect(server.address, &[&generation]).await.unwrap();
    slow.write_all(b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{").await.unwrap();
    let ends = async {
        // Whether by an end or by a reset does not matter.
        let _ = silent.read_to_end(&mut Vec::new()).await;
        let mut answer = Vec::new();
        let _ = slow.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    };
    timeout(DEADLINE, ends).await.unwrap();
}
