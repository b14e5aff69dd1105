//! A loop that is held up, on the thread that it runs on.

use std::convert::Infallible;
use std::sync::{Mutex, mpsc};
use std::thread;

use super::*;
use crate::lease::tests::{api_server, election, of_another, watched};
use brupop_core::rules::Policy;
use clap::Parser as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, interval, timeout};

/// A table, one row a line: what is given, and what is expected of it. Each row is a tuple of all of these.
macro_rules! rows {
    ($($($given:expr),+ => $expected:expr;)+) => { [$(($($given,)+ $expected)),+] };
}
pub(crate) use rows;

/// The shortest that there is.
const LEASE: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(30);

/// Plays an API server that has nothing. While it looks at a write, it holds the thread that asks.
pub(crate) fn holds_up(writes: UnboundedSender<Method>, go_on: mpsc::Receiver<()>) -> Client {
    let go_on = Arc::new(Mutex::new(go_on));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (writes, go_on) = (writes.clone(), Arc::clone(&go_on));
        async move {
            if let Some(answer) = watched(request.uri().clone()).await {
                return Ok::<_, Infallible>(answer);
            }
            let list = json!({"kind": "List", "items": [], "metadata": {"resourceVersion": "1"}});
            let (status, answer) = if request.method() == Method::GET {
                (StatusCode::OK, list)
            } else {
                writes.send(request.method().clone()).unwrap();
                let _ = go_on.lock().unwrap().recv();
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    json!({"kind": "Status", "code": 503}),
                )
            };
            let answer = Full::<Bytes>::from(answer.to_string());
            Ok(Response::builder().status(status).body(answer).unwrap())
        }
    });
    Client::new(service, "ns")
}

pub(crate) fn reconciler(client: Client, elected: Elected) -> Reconciler {
    let watches = Arc::new(Watches::start(&client, "ns"));
    let recorder = Recorder::new(
        client.clone(),
        Reporter {
            controller: "c".into(),
            instance: None,
        },
    );
    let settings = Settings::try_parse_from(["reconciler"]).unwrap();
    let api = ApiServer {
        client,
        namespace: "ns".to_owned(),
        own_node: None,
    };
    Reconciler::new(
        Policy::default(),
        settings,
        api,
        recorder,
        watches,
        elected,
        Metrics::default(),
    )
}

/// One that does not lead, and the writes that it makes.
pub(crate) fn not_leading() -> (Reconciler, UnboundedReceiver<Method>) {
    let (wrote, writes) = unbounded_channel();
    let (_, elected) = watch::channel(None);
    let client = holds_up(wrote, mpsc::channel().1);
    (reconciler(client, elected), writes)
}

async fn until(holds: impl Fn() -> bool) {
    let mut look_again = interval(Duration::from_millis(10));
    let held = async {
        while !holds() {
            look_again.tick().await;
        }
    };
    timeout(DEADLINE, held).await.unwrap();
}

/// A loop that is held up for a while keeps the Lease; one that is stuck loses it, and sends nothing after that.
#[tokio::test]
async fn the_lease_is_held_up_by_nothing_but_a_stuck_loop() {
    let lease = Arc::new(Mutex::new(of_another("1")));
    let (wrote, mut writes) = unbounded_channel();
    let (go_on, held) = mpsc::channel();
    let (end, shutdown) = Shutdown::by_hand();
    let heartbeat = Heartbeat::new(LEASE);
    let the_loop = thread::spawn({
        let (lease, heartbeat) = (Arc::clone(&lease), heartbeat.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let beside = OwnThread::start("lease").unwrap();
            let of_lease = beside.make(|| api_server(lease));
            let us = election("us", LEASE);
            let client = runtime.block_on(async { holds_up(wrote, held) });
            let reconciler = |elected| reconciler(client, elected);
            runtime.block_on(lead_in_turn(
                &beside, us, of_lease, heartbeat, reconciler, shutdown,
            ));
        }
    });
    let version = || {
        let lease = lease.lock().unwrap();
        lease["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap()
    };
    timeout(DEADLINE, writes.recv()).await.unwrap().unwrap();
    let (held_up, before) = (Instant::now(), version());
    until(|| version() >= before + 2).await;
    assert!(!heartbeat.is_stuck(), "{:?}", held_up.elapsed());

    let (sender, mut other) = watch::channel(None);
    let (_resign, competes) = Shutdown::by_hand();
    let (well, client) = (Heartbeat::new(2 * DEADLINE), api_server(Arc::clone(&lease)));
    tokio::spawn(lease::run(
        election("other", LEASE),
        client,
        competes,
        well,
        sender,
    ));
    timeout(DEADLINE, other.wait_for(Option::is_some))
        .await
        .unwrap()
        .unwrap();
    assert!(heartbeat.is_stuck());

    drop(go_on);
    until(|| !heartbeat.is_stuck()).await;
    assert!(lease::leads_now(&other).is_some());
    end.request();
    until(|| the_loop.is_finished()).await;
    assert_eq!(writes.recv().await, None, "it wrote without the Lease");
}
