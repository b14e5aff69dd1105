//! Sources as the administrator writes them, and what answers there.

use super::*;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const NOTHING: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
const SOMETHING: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"hush"},"value":[1,"1"]}]}}"#;

/// A folder with these files, which is gone with it.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("brupop-gates-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = Self(path);
        for (name, text) in files {
            std::fs::write(folder.0.join(name), text).unwrap();
        }
        folder
    }

    async fn ask(&self, query: &str, requires: Option<&str>) -> Result<GateAnswer, String> {
        client::install_crypto_provider();
        let query = GateQuery {
            source: "main".to_owned(),
            expression: query.to_owned(),
            requires: requires.map(str::to_owned),
        };
        ask(&self.0, &query).await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Heads of requests, by the expression at their end.
type Heads = Arc<Mutex<BTreeMap<String, String>>>;

/// Answers each request by its expression, and keeps what it was asked.
struct Server {
    address: std::net::SocketAddr,
    heads: Heads,
}

/// An HTTP answer with this status and body.
fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Server {
    /// By TLS, if there is a certificate.
    async fn start(
        certificate: Option<&CertifiedKey<rcgen::KeyPair>>,
        answers: &[(&str, String)],
    ) -> Self {
        client::install_crypto_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, heads) = (listener.local_addr().unwrap(), Heads::default());
        let answers: BTreeMap<String, String> = answers
            .iter()
            .map(|(query, answer)| ((*query).to_owned(), answer.clone()))
            .collect();
        let tls = certificate.map(|CertifiedKey { cert, signing_key }| {
            let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
            let config = ServerConfig::builder()
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key);
            TlsAcceptor::from(Arc::new(config.unwrap()))
        });
        let kept = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answers, kept) = (tls.clone(), answers.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &answers, &kept).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &answers, &kept).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, heads }
    }

    fn head(&self, query: &str) -> String {
        self.heads.lock().unwrap()[query].clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answers: &BTreeMap<String, String>,
    heads: &Heads,
) -> Option<()> {
    loop {
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).ok()?;
        let query = head.split_once("&query=")?.1.split_once(' ')?.0.to_owned();
        let answer = answers.get(&query)?;
        heads.lock().unwrap().insert(query, head);
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

#[tokio::test]
async fn a_source_is_asked_for_both_expressions() {
    let answers = [
        ("bad%7Ba%3D%22b%20c%22%7D", http("200 OK", NOTHING)),
        ("Watchdog", http("200 OK", SOMETHING)),
    ];
    let server = Server::start(None, &answers).await;
    let folder = Folder::with(&[(
        "main.url",
        &format!("http://{}/prometheus/\n", server.address),
    )]);
    assert_eq!(
        folder
            .ask("bad{a=\"b c\"}", Some("Watchdog"))
            .await
            .unwrap(),
        GateAnswer::Good
    );
    let head = server.head("bad%7Ba%3D%22b%20c%22%7D");
    assert!(
        head.starts_with("GET /prometheus/api/v1/query?limit=1&timeout=5s&query=bad%7B"),
        "{head}"
    );
    assert!(!head.to_lowercase().contains("authorization"), "{head}");
    assert_eq!(folder.ask("Watchdog", None).await.unwrap(), GateAnswer::Bad);
    assert_eq!(
        folder
            .ask("bad{a=\"b c\"}", Some("bad{a=\"b c\"}"))
            .await
            .unwrap(),
        GateAnswer::Bad
    );
}

#[tokio::test]
async fn a_token_is_sent_to_who_has_the_certificate_and_to_nobody_else() {
    let certificate = generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let other = generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let server = Server::start(Some(&certificate), &[("up", http("200 OK", NOTHING))]).await;
    let url = format!("https://{}", server.address);
    let ask = async |authority: &str| {
        let files = [
            ("main.url", url.as_str()),
            ("main.ca", authority),
            ("main.token", "s3cret\n"),
        ];
        Folder::with(&files).ask("up", None).await
    };
    let refused = ask(&other.cert.pem()).await.unwrap_err();
    assert!(
        refused.starts_with("it cannot be reached: none of the authorities"),
        "{refused}"
    );
    assert!(server.heads.lock().unwrap().is_empty(), "it was asked");
    let both = format!("{}{}", other.cert.pem(), certificate.cert.pem());
    assert_eq!(ask(&both).await.unwrap(), GateAnswer::Good);
    assert!(
        server
            .head("up")
            .contains("authorization: Bearer s3cret\r\n")
    );
    for (authority, key) in [("", "main.ca"), ("no PEM", "main.ca")] {
        let why = ask(authority).await.unwrap_err();
        assert!(why.starts_with(key), "{why}");
    }
}

#[tokio::test]
async fn what_is_no_answer_says_nothing() {
    let huge = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}",
        "x".repeat(200_000)
    );
    let answers = [
        (
            "refused",
            http("400 Bad Request", r#"{"status":"error","error":"hush"}"#),
        ),
        (
            "up%20%3D",
            http(
                "400 Bad Request",
                r#"{"errorType":"bad_data","error":"1:4: parse error"}"#,
            ),
        ),
        ("busy", http("503 Service Unavailable", "hush")),
        (
            "login",
            http("302 Found", "hush").replacen("\r\n", "\r\nlocation: http://127.0.0.1:1/\r\n", 1),
        ),
        ("html", http("200 OK", "<html>hush</html>")),
        ("huge", huge),
        (
            "half",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhush".to_owned(),
        ),
        (
            "long%20head",
            format!(
                "HTTP/1.1 200 OK\r\na: {}\r\n\r\n{NOTHING}",
                "x".repeat(100_000)
            ),
        ),
        ("no%20HTTP", "hush\r\n\r\n".to_owned()),
        ("good", http("200 OK", NOTHING)),
    ];
    let server = Server::start(None, &answers).await;
    let folder = Folder::with(&[("main.url", &format!("http://{}", server.address))]);
    for (query, expected) in [
        (
            "refused",
            "it refuses the expression of prometheus.query (HTTP status 400 Bad Request)",
        ),
        (
            "up =",
            r#"it refuses the expression of prometheus.query (bad_data: "1:4: parse error")"#,
        ),
        ("busy", "it answers with the HTTP status 503"),
        ("login", "it answers with the HTTP status 302"),
        ("html", "its answer is not that of a Prometheus"),
        ("huge", "its answer is longer than 64 KiB"),
        ("unanswered", "its answer broke off"),
        (
            "long head",
            "its answer broke off, is not HTTP, or has too long a head",
        ),
        ("no HTTP", "its answer broke off, is not HTTP"),
    ] {
        let why = folder.ask(query, None).await.unwrap_err();
        assert!(
            why.starts_with(expected) && !why.contains("hush"),
            "{query}: {why}"
        );
        // Each of both expressions has to have an answer.
        let why = folder.ask("good", Some(query)).await.unwrap_err();
        assert!(
            why.starts_with(&expected.replace(".query", ".requires")),
            "{query}: {why}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_source_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = Folder::with(&[(
        "main.url",
        &format!("http://{}", listener.local_addr().unwrap()),
    )]);
    let started = tokio::time::Instant::now();
    let why = folder.ask("up", None).await.unwrap_err();
    assert_eq!(why, "it did not answer in 10 s");
    assert!(
        started.elapsed() <= TIMEOUT + Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_source_is_said() {
    let long = "x".repeat(300_000);
    let good = "http://127.0.0.1:1";
    for (files, expected) in [
        (&[][..], "names no such source: it has no key main.url"),
        (
            &[("other.url", good)],
            "names no such source: it has no key main.url",
        ),
        (
            &[("main.url", "")],
            "main.url of the Secret brupop-gate-sources: write a URL",
        ),
        (&[("main.url", "prometheus:9090")], "write a URL"),
        (&[("main.url", "ftp://prometheus")], "write a URL"),
        (
            &[("main.url", "https://user:s3cret@prometheus")],
            "write a URL",
        ),
        (&[("main.url", "https://prometheus/?a=b")], "write a URL"),
        (&[("main.url", "https://prometheus/#a")], "write a URL"),
        (
            &[("main.url", &long)],
            "main.url of the Secret brupop-gate-sources is too long",
        ),
        (
            &[("main.url", "https://prometheus")],
            "main.ca of the Secret brupop-gate-sources has to hold",
        ),
        (
            &[("main.url", "https://prometheus"), ("main.ca", &long)],
            "main.ca of the Secret",
        ),
        (
            &[("main.url", good), ("main.token", "s3cret")],
            "main.token of the Secret brupop-gate-sources is sent by TLS",
        ),
        (
            &[("main.url", "https://p"), ("main.token", " \n")],
            "main.token of the Secret brupop-gate-sources is no token",
        ),
        (
            &[("main.url", "https://p"), ("main.token", "s3\ncret")],
            "is no token",
        ),
        (
            &[("main.url", "http://prometheus.invalid:9090/xxx")],
            "the host prometheus.invalid cannot be reached: dns error: ",
        ),
    ] {
        let why = Folder::with(files).ask("up", None).await.unwrap_err();
        assert!(
            why.contains(expected) && !why.contains("s3cret") && !why.contains("xxx"),
            "{files:?}: {why}"
        );
    }
    // What is no text.
    let folder = Folder::with(&[]);
    std::fs::write(folder.0.join("main.url"), [0xff, 0xfe]).unwrap();
    let why = folder.ask("up", None).await.unwrap_err();
    assert!(why.contains("gate-sources cannot be read: "), "{why}");
    // As kubelets write it: all files of one version, behind one link.
    let folder = Folder::with(&[("main.url", "of another version")]);
    let version = folder.0.join("..2026_11_21");
    std::fs::create_dir(&version).unwrap();
    std::fs::write(version.join("main.url"), good).unwrap();
    std::os::unix::fs::symlink("..2026_11_21", folder.0.join("..data")).unwrap();
    let why = folder.ask("up", None).await.unwrap_err();
    assert!(why.starts_with("the host 127.0.0.1 cannot"), "{why}");
}

/// What a certificate says is the other side's choice.
#[tokio::test]
async fn no_name_of_a_certificate_is_told() {
    let certificate = generate_simple_self_signed(vec!["hush.example".to_owned()]).unwrap();
    let server = Server::start(Some(&certificate), &[]).await;
    let url = format!("https://{}", server.address);
    let files = [
        ("main.url", url.as_str()),
        ("main.ca", &certificate.cert.pem()),
    ];
    let why = Folder::with(&files).ask("up", None).await.unwrap_err();
    assert_eq!(
        why,
        "it cannot be reached: its certificate is for another name"
    );
    // Who does not speak TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"hush hush hush\r\n").await.unwrap();
    });
    let files = [
        ("main.url", url.as_str()),
        ("main.ca", &certificate.cert.pem()),
    ];
    let why = Folder::with(&files).ask("up", None).await.unwrap_err();
    assert_eq!(
        why,
        "it cannot be reached: it does not speak TLS as it should"
    );
}
