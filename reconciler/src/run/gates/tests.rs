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

    async fn ask(&self, query: &str, requires: Option<&str>) -> Result<GateState, String> {
        client::install_crypto_provider();
        let query = PrometheusGate {
            source: "main".to_owned(),
            query: query.to_owned(),
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
        ("bad%7Ba%3D%22b+c%22%7D", http("200 OK", NOTHING)),
        ("Watchdog", http("200 OK", SOMETHING)),
    ];
    let server = Server::start(None, &answers).await;
    let url = format!("http://{}/prometheus/\n", server.address);
    let folder = Folder::with(&[("main.url", &url)]);
    let bad = "bad{a=\"b c\"}";
    for (query, requires, expected) in [
        (bad, Some("Watchdog"), GateState::Open),
        ("Watchdog", None, GateState::Closed),
        (bad, Some(bad), GateState::Closed),
    ] {
        assert_eq!(folder.ask(query, requires).await.unwrap(), expected);
    }
    let head = server.head("bad%7Ba%3D%22b+c%22%7D");
    let asked = "GET /prometheus/api/v1/query?limit=1&timeout=5s&query=bad%7B";
    assert!(head.starts_with(asked), "{head}");
    assert!(!head.to_lowercase().contains("authorization"), "{head}");
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
    let of_others = "it cannot be reached: none of the authorities";
    assert!(refused.starts_with(of_others), "{refused}");
    assert!(server.heads.lock().unwrap().is_empty(), "it was asked");
    let both = format!("{}{}", other.cert.pem(), certificate.cert.pem());
    assert_eq!(ask(&both).await.unwrap(), GateState::Open);
    let head = server.head("up");
    assert!(head.contains("authorization: Bearer s3cret\r\n"));
    for authority in ["", "no PEM"] {
        let why = ask(authority).await.unwrap_err();
        assert!(why.starts_with("main.ca"), "{why}");
    }
}

#[tokio::test]
async fn what_is_no_answer_says_nothing() {
    let ok = |rest: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{rest}\r\n\r\n{body}");
    let bad = |body| http("400 Bad Request", body);
    let error = r#"{"errorType":"bad_data","error":"1:4: parse error"}"#;
    let elsewhere = "\r\nlocation: http://127.0.0.1:1/\r\n";
    let (long, head) = ("x".repeat(200_000), format!("a: {}", "x".repeat(100_000)));
    let answers = [
        ("refused", bad(r#"{"status":"error","error":"hush"}"#)),
        ("up+%3D", bad(error)),
        ("busy", http("503 Service Unavailable", "hush")),
        (
            "login",
            http("302 Found", "hush").replacen("\r\n", elsewhere, 1),
        ),
        ("html", http("200 OK", "<html>hush</html>")),
        ("huge", ok("content-length: 1000000", &long)),
        ("long+head", ok(&head, NOTHING)),
        ("no+HTTP", "hush\r\n\r\n".to_owned()),
        ("good", http("200 OK", NOTHING)),
    ];
    let server = Server::start(None, &answers).await;
    let folder = Folder::with(&[("main.url", &format!("http://{}", server.address))]);
    let refuses = |why| format!("it refuses the expression of prometheus.query ({why})");
    let status = |code| format!("it answers with the HTTP status {code}");
    for (query, expected) in [
        ("refused", refuses("HTTP status 400 Bad Request")),
        ("up =", refuses(r#"bad_data: "1:4: parse error""#)),
        ("busy", status(503)),
        ("login", status(302)),
        ("html", "its answer is not that of a Prometheus".to_owned()),
        ("huge", "its answer is longer than 64 KiB".to_owned()),
        ("unanswered", BROKE_OFF.to_owned()),
        ("long head", BROKE_OFF.to_owned()),
        ("no HTTP", BROKE_OFF.to_owned()),
    ] {
        // Each of both expressions has to have an answer.
        let of_other = expected.replace(".query", ".requires");
        for (why, expected) in [
            (folder.ask(query, None).await, expected),
            (folder.ask("good", Some(query)).await, of_other),
        ] {
            let why = why.unwrap_err();
            assert!(why.starts_with(&expected), "{query}: {why}");
            assert!(!why.contains("hush"), "{query}: {why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_source_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let started = tokio::time::Instant::now();
    let why = Folder::with(&[("main.url", &url)]).ask("up", None).await;
    assert_eq!(why.unwrap_err(), "it did not answer in 10 s");
    assert!(started.elapsed() <= TIMEOUT + Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_wrong_with_a_source_is_said() {
    let long = "x".repeat(300_000);
    let good = "http://127.0.0.1:1";
    let (url, ca, token) = ("main.url", "main.ca", "main.token");
    let no_url = "names no such source: it has no key main.url";
    let wrong_url = "main.url of the Secret brupop-gate-sources: write a URL";
    let no_host = "http://prometheus.invalid:9090/xxx";
    for (files, expected) in [
        (&[][..], no_url),
        (&[("other.url", good)], no_url),
        (&[(url, "")], wrong_url),
        (&[(url, "prometheus:9090")], wrong_url),
        (&[(url, "ftp://prometheus")], wrong_url),
        (&[(url, "https://user:s3cret@prometheus")], wrong_url),
        (&[(url, "https://prometheus/?a=b")], wrong_url),
        (&[(url, "https://prometheus/#a")], wrong_url),
        (
            &[(url, &long)],
            "main.url of the Secret brupop-gate-sources is too long",
        ),
        (
            &[(url, "https://p")],
            "main.ca of the Secret brupop-gate-sources has to hold",
        ),
        (&[(url, "https://p"), (ca, &long)], "main.ca of the Secret"),
        (
            &[(url, good), (token, "s3cret")],
            "main.token of the Secret brupop-gate-sources is sent by TLS",
        ),
        (
            &[(url, "https://p"), (token, " \n")],
            "main.token of the Secret brupop-gate-sources is no token",
        ),
        (&[(url, "https://p"), (token, "s3\ncret")], "is no token"),
        (
            &[(url, no_host)],
            "the host prometheus.invalid cannot be reached: dns error: ",
        ),
    ] {
        let why = Folder::with(files).ask("up", None).await.unwrap_err();
        let is_secret = why.contains("s3cret") || why.contains("xxx");
        assert!(why.contains(expected) && !is_secret, "{files:?}: {why}");
    }
    // A value that is no text.
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

/// The other side chooses the text of its certificate.
#[tokio::test]
async fn no_name_of_a_certificate_is_told() {
    let certificate = generate_simple_self_signed(vec!["hush.example".to_owned()]).unwrap();
    let server = Server::start(Some(&certificate), &[]).await;
    let ask = async |address: std::net::SocketAddr| {
        let (url, pem) = (format!("https://{address}"), certificate.cert.pem());
        let files = [("main.url", url.as_str()), ("main.ca", &pem)];
        Folder::with(&files).ask("up", None).await.unwrap_err()
    };
    let of_another = "it cannot be reached: its certificate is for another name";
    assert_eq!(ask(server.address).await, of_another);
    // A client that does not speak TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"hush hush hush\r\n").await.unwrap();
    });
    let no_tls = "it cannot be reached: it violates the TLS protocol";
    assert_eq!(ask(address).await, no_tls);
}
