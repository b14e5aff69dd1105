use super::*;
use crate::authorizer::{Authorizer, Refusals, Requirement};
use kube::Client;
use kube::client::Body;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use warp::{Filter as _, Reply as _};

pub(super) const LIMITS: Limits = Limits {
    port: "test",
    connections: 4,
    all_bodies: 2000,
    request: Duration::from_secs(1),
    idle: Duration::from_secs(2),
    linger: Duration::ZERO,
    closing: Duration::from_secs(1),
};
/// Times that no test waits for.
const PATIENT: Limits = Limits {
    request: Duration::from_hours(1),
    idle: Duration::from_hours(1),
    ..LIMITS
};
const DEADLINE: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(500);

/// A server that says how long each body is. It answers one request at a time.
struct Echo {
    address: SocketAddr,
    drops: Drops,
    turns: Arc<Semaphore>,
    trigger: crate::shutdown::Trigger,
    task: tokio::task::JoinHandle<()>,
}

impl Echo {
    async fn start(limits: Limits) -> Self {
        Self::start_for(limits, None).await
    }

    /// It answers those whom the authorizer lets in.
    async fn start_for(limits: Limits, authorizer: Option<Arc<Authorizer>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (turns, drops) = (Arc::new(Semaphore::new(1)), Drops::default());
        let (trigger, shutdown) = Shutdown::by_hand();
        let answering = Arc::clone(&turns);
        let answer = move |body: Vec<u8>| {
            let turns = Arc::clone(&answering);
            async move {
                let _turn = turns.acquire().await;
                format!("{} bytes!", body.len()).into_response()
            }
        };
        let pages = admitted(authorizer, |_| "who are you?!")
            .and(body(1000))
            .then(answer)
            .boxed();
        let task = tokio::spawn(serve(
            listener,
            None,
            limits,
            drops.clone(),
            pages,
            shutdown,
        ));
        Self {
            address,
            drops,
            turns,
            trigger,
            task,
        }
    }

    /// Returns how many connections made room.
    fn dropped(&self) -> u64 {
        self.drops.0.get(&[("port", "test")]).unwrap().get()
    }
}

/// A connection of the caller at 127.0.0.`from`.
async fn connect(to: SocketAddr, from: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind((Ipv4Addr::new(127, 0, 0, from), 0).into())
        .unwrap();
    socket.connect(to).await.unwrap()
}

/// Asks over a connection, and returns the answer; nothing if there was none.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let whole = async {
        while !answer.ends_with(b"!")
            && stream
                .read_buf(&mut answer)
                .await
                .is_ok_and(|read| read > 0)
        {}
    };
    timeout(DEADLINE, whole).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Waits until the server has ended a connection.
async fn ended(stream: &mut TcpStream) {
    let _ = timeout(DEADLINE, stream.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
}

fn post(length: usize, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}")
}

#[tokio::test]
async fn a_crowd_makes_room_for_others() {
    let server = Echo::start(PATIENT).await;
    let mut known = connect(server.address, 1).await;
    assert!(ask(&mut known, &post(3, "abc")).await.ends_with("3 bytes!"));
    let mut crowd = Vec::new();
    for number in 0..9 {
        let mut one = connect(server.address, 2).await;
        one.write_all(&post(3, "ab").as_bytes()[..number * 6])
            .await
            .unwrap();
        crowd.push(one);
    }
    for _ in 0..9 {
        let mut new = connect(server.address, 1).await;
        assert!(ask(&mut new, &post(3, "abc")).await.ends_with("3 bytes!"));
        assert!(ask(&mut known, &post(3, "abc")).await.ends_with("3 bytes!"));
    }
    for one in &mut crowd[..6] {
        ended(one).await;
    }
    assert!(server.dropped() >= 6);
}

#[tokio::test(start_paused = true)]
async fn each_phase_comes_to_its_end() {
    let server = Echo::start(LIMITS).await;
    let turn = server.turns.acquire().await.unwrap();
    for (sent, longest) in [
        ("", LIMITS.idle),
        ("POST / HT", LIMITS.idle),
        (&post(3, "ab"), LIMITS.request),
        (&post(3, "abc"), LIMITS.request),
    ] {
        let mut stream = connect(server.address, 1).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let began = Instant::now();
        ended(&mut stream).await;
        let took = began.elapsed();
        assert!(
            longest <= took + SOON && took <= longest + SOON,
            "{sent}: {took:?}"
        );
    }
    drop(turn);
    let mut stream = connect(server.address, 1).await;
    assert!(ask(&mut stream, &post(0, "")).await.ends_with("0 bytes!"));
    ended(&mut stream).await;
    assert_eq!(server.dropped(), 0);
}

#[tokio::test]
async fn a_body_needs_a_length_within_the_limit() {
    let server = Echo::start(PATIENT).await;
    for (head, expected) in [
        ("content-length: 1001", "413 "),
        ("content-length: 18446744073709551615", "4"),
        ("transfer-encoding: chunked", "411 "),
    ] {
        let mut stream = connect(server.address, 1).await;
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}\r\n\r\n");
        let answer = ask(&mut stream, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected}")),
            "{head}: {answer}"
        );
    }
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_answers_the_rest() {
    let server = Echo::start(PATIENT).await;
    let mut idle = connect(server.address, 1).await;
    assert!(ask(&mut idle, &post(0, "")).await.ends_with("0 bytes!"));
    let mut asking = connect(server.address, 1).await;
    asking.write_all(post(3, "ab").as_bytes()).await.unwrap();
    // It is known before the end.
    assert!(ask(&mut idle, &post(0, "")).await.ends_with("0 bytes!"));
    server.trigger.request();
    ended(&mut idle).await;
    let answer = ask(&mut asking, "c").await;
    assert!(
        answer.ends_with("3 bytes!") && answer.contains("connection: close"),
        "{answer}"
    );
    timeout(DEADLINE, server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn nobody_is_let_in_by_a_body() {
    let asks_nobody = tower::service_fn(|_: Request<Body>| async {
        Err::<http::Response<Body>, _>("nobody is asked")
    });
    let client = Client::new(asks_nobody, "ns");
    let authorizer = Authorizer::new(client, Requirement::Token, Refusals::default());
    let server = Echo::start_for(PATIENT, Some(authorizer)).await;
    // Nothing of the body is waited for, and too long a one is no other error for those who are not let in.
    for length in [3, 1001] {
        let mut stream = connect(server.address, 1).await;
        let answer = ask(&mut stream, &post(length, "")).await;
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.contains("www-authenticate: Bearer"),
            "{answer}"
        );
        assert!(answer.ends_with("who are you?!"), "{answer}");
    }
}
