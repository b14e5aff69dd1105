//! The admission endpoint over real sockets: TLS that is swapped, limits, and an end without a gap.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use brupop_runtime::connections::Limits;
use brupop_runtime::{Shutdown, shutdown::Trigger, tls::Resolver};
use brupop_webhook::certificates::{CertificateGeneration, Lifetimes, issue::issue};
use brupop_webhook::metrics::Metrics;
use brupop_webhook::serve::{LIMITS, serve};
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
use tokio_rustls::{TlsConnector, client::TlsStream};

const NAME: &str = "webhook.ns.svc";
const DEADLINE: Duration = Duration::from_secs(30);
const REFUSED: &str = include_str!("refused.json");

struct Server {
    address: SocketAddr,
    resolver: Arc<Resolver>,
    metrics: Arc<Metrics>,
    trigger: Trigger,
    task: JoinHandle<()>,
}

fn generation() -> CertificateGeneration {
    let now = Timestamp::now();
    let lifetimes = Lifetimes::of_lifetime(SignedDuration::from_hours(1));
    issue(&[NAME.to_owned()], lifetimes, now, now).unwrap()
}

async fn start(limits: Limits) -> Server {
    brupop_runtime::install_crypto_provider();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (resolver, metrics) = (Arc::new(Resolver::default()), Arc::new(Metrics::default()));
    let (trigger, shutdown) = Shutdown::by_hand();
    let served = serve(
        listener,
        Arc::clone(&resolver),
        limits,
        "ns".to_owned(),
        Arc::clone(&metrics),
        None,
        shutdown,
    );
    let task = tokio::spawn(served);
    Server {
        address,
        resolver,
        metrics,
        trigger,
        task,
    }
}

/// The server goes over to this certificate; says whether that is a change.
fn put(server: &Server, generation: &CertificateGeneration) -> bool {
    server
        .resolver
        .serve(&generation.certificate, &generation.key)
        .unwrap()
}

/// A server with these limits that has a certificate.
async fn serving(limits: Limits) -> (Server, CertificateGeneration) {
    let server = start(limits).await;
    let generation = generation();
    put(&server, &generation);
    (server, generation)
}

/// Connects as an API server does that trusts these authorities.
async fn connect(
    address: SocketAddr,
    trusted: &[&CertificateGeneration],
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_for(address, trusted, &[]).await
}

/// Connects, and offers these protocols, if there are any.
async fn connect_for(
    address: SocketAddr,
    trusted: &[&CertificateGeneration],
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for generation in trusted {
        roots
            .add(CertificateDer::from_pem_slice(generation.authority.as_bytes()).unwrap())
            .unwrap();
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    timeout(
        DEADLINE,
        connector.connect(ServerName::try_from(NAME).unwrap(), stream),
    )
    .await
    .unwrap()
}

async fn open(server: &Server, trusted: &[&CertificateGeneration]) -> SendRequest<Full<Bytes>> {
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
    let request = Request::post(path)
        .header("host", NAME)
        .body(Full::from(body.to_owned()))
        .unwrap();
    let response = timeout(DEADLINE, sender.send_request(request))
        .await
        .unwrap()?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec()).unwrap()))
}

/// Whether a review is answered over this connection.
async fn answers(sender: &mut SendRequest<Full<Bytes>>) -> bool {
    post(sender, "/validate", REFUSED)
        .await
        .is_ok_and(|(status, _)| status == StatusCode::OK)
}

#[tokio::test]
async fn only_reviews_are_answered_and_counted() {
    let (server, generation) = serving(LIMITS).await;
    let mut sender = open(&server, &[&generation]).await;

    let (status, answer) = post(&mut sender, "/validate", REFUSED).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let response = &answer["response"];
    assert_eq!(
        (&response["uid"], &response["allowed"]),
        (&"u-1".into(), &false.into())
    );
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
        assert_eq!(
            post(&mut sender, path, body).await.unwrap().0,
            expected,
            "{path} {body:.20}"
        );
    }
    let too_long = Request::post("/validate")
        .header("content-length", 8 * 1024 * 1024)
        .body(Full::default());
    let refused = timeout(DEADLINE, sender.send_request(too_long.unwrap()))
        .await
        .unwrap();
    assert!(
        refused.is_err()
            || refused.is_ok_and(|answer| answer.status() == StatusCode::PAYLOAD_TOO_LARGE)
    );

    let metrics = server.metrics.render();
    let counted = r#"reviews_total{actor="agent",operation="UPDATE",verdict="refused",rule="agent-identity"} 1"#;
    assert!(
        metrics.contains(counted) && metrics.contains("unreadable_reviews_total 4"),
        "{metrics}"
    );
}

#[tokio::test]
async fn the_certificate_is_swapped_while_connections_go_on() {
    let server = start(LIMITS).await;
    let (old, new) = (generation(), generation());
    assert!(
        connect(server.address, &[&old]).await.is_err(),
        "nothing is served before there is a certificate"
    );
    assert!(put(&server, &old));
    assert!(!put(&server, &old), "the same again is no change");
    let mut early = open(&server, &[&old, &new]).await;
    assert!(connect(server.address, &[&new]).await.is_err());

    assert!(put(&server, &new));
    assert!(answers(&mut early).await);
    assert!(connect(server.address, &[&old]).await.is_err());
    let mut late = open(&server, &[&old, &new]).await;
    assert!(answers(&mut late).await);

    let damaged = CertificateGeneration {
        key: generation().key,
        ..old
    };
    assert!(
        server
            .resolver
            .serve(&damaged.certificate, &damaged.key)
            .is_err(),
        "a key that does not fit"
    );
    assert!(
        connect(server.address, &[&new]).await.is_ok(),
        "what was served stays"
    );
}

#[tokio::test]
async fn it_lingers_after_the_signal_then_ends() {
    let (server, generation) = serving(Limits {
        linger: Duration::from_secs(1),
        ..LIMITS
    })
    .await;
    let mut idle = open(&server, &[&generation]).await;
    assert!(answers(&mut idle).await);

    server.trigger.request();
    let mut late = open(&server, &[&generation]).await;
    assert!(answers(&mut late).await, "a new connection");
    assert!(answers(&mut idle).await, "an old connection");

    timeout(DEADLINE, server.task).await.unwrap().unwrap();
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "nobody listens any more"
    );
    assert!(!answers(&mut idle).await, "idle connections are closed");
}

/// Tests the handshake only; `brupop_runtime` tests the rest for all ports.
#[tokio::test]
async fn a_handshake_comes_to_its_end() {
    let server = start(Limits {
        request: Duration::from_millis(300),
        ..LIMITS
    })
    .await;
    for begins in [&b""[..], &[22, 3, 1, 2, 0, 1]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begins).await.unwrap();
        let mut received = Vec::new();
        // Whether by an end or by a reset does not matter.
        let _ = timeout(DEADLINE, stream.read_to_end(&mut received))
            .await
            .unwrap();
        assert!(received.is_empty(), "{received:?}");
    }
}

/// The beginning of HTTP/2: the preface, settings, and the head of a request.
const HTTP_2: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x82";

#[tokio::test]
async fn only_http_1_is_spoken() {
    let (server, generation) = serving(LIMITS).await;
    let both: &[&[u8]] = &[b"h2", b"http/1.1"];
    let stream = connect_for(server.address, &[&generation], both)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert!(answers(&mut sender).await);

    assert!(
        connect_for(server.address, &[&generation], &[b"h2"])
            .await
            .is_err(),
        "nothing else is offered"
    );
    for agreed in [&[][..], &[&b"http/1.1"[..]]] {
        let mut stream = connect_for(server.address, &[&generation], agreed)
            .await
            .unwrap();
        stream.write_all(HTTP_2).await.unwrap();
        let mut received = Vec::new();
        // Less than the time for the head of a request: it is refused, not waited for.
        let _ = timeout(LIMITS.request, stream.read_to_end(&mut received))
            .await
            .unwrap();
        // A frame of settings is what HTTP/2 would answer with.
        assert!(
            received.is_empty() || received.starts_with(b"HTTP/1.1 4"),
            "{received:?}"
        );
    }
}
