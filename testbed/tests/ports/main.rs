//! The ports of our processes, with the limits as shipped, during a flood of connections: legitimate clients are served.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod flood;

use flood::{Behaviour, Flood, OwnRuntime, Port, raise_open_files};

use anyhow::{Result, anyhow, ensure};
use brupop_runtime::connections::Drops;
use brupop_runtime::tls::Resolver;
use brupop_runtime::{Health, Shutdown, endpoint, install_crypto_provider};
use brupop_testbed::await_until;
use brupop_webhook::certificates::{Lifetimes, issue::issue};
use brupop_webhook::serve::{LIMITS, serve};
use futures::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::time::sleep;

const NAME: &str = "webhook.ns.svc";
/// So long an API server waits for a review, and the kubelet for a probe. On a busy machine, who asks is answered at least
/// before each of the flood has come once more.
const PATIENCE: Duration = Duration::from_secs(3);
const FLOOD: usize = 2000;
const KEPT_ALIVE: &[Behaviour] = &[Behaviour::KeptAlive];
const STALL: &[Behaviour] = &Behaviour::UNFINISHED;
/// Time before a connection of the flood is opened again.
const SOON: Duration = Duration::from_secs(1);
const AT_ONCE: Duration = Duration::ZERO;
const REVIEW: &str = include_str!("../../../webhook/tests/refused.json");

/// Each of these tests takes both cores of a small machine.
async fn alone() -> Result<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    install_crypto_provider();
    raise_open_files()?;
    Ok(ONE_AT_A_TIME.lock().await)
}

/// Serves a port on threads of its own, as many as the webhook has, until what is returned is dropped.
async fn start<F>(
    serve: impl FnOnce(TcpListener, Shutdown) -> F + Send + 'static,
) -> Result<(SocketAddr, OwnRuntime)>
where
    F: Future<Output = ()> + Send,
{
    let runtime = OwnRuntime::start(2)?;
    let (sender, address) = oneshot::channel();
    runtime.spawn(async move {
        let listener = endpoint::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        sender.send(listener.local_addr().unwrap()).unwrap();
        let (_trigger, shutdown) = Shutdown::by_hand();
        serve(listener, shutdown).await;
    });
    Ok((address.await?, runtime))
}

async fn start_tls<F>(
    serve: impl FnOnce(TcpListener, Arc<Resolver>, Shutdown) -> F + Send + 'static,
) -> Result<(Port, OwnRuntime)>
where
    F: Future<Output = ()> + Send,
{
    let now = Timestamp::now();
    let generation = issue(
        &[NAME.to_owned()],
        Lifetimes::of_lifetime(SignedDuration::from_hours(1)),
        now,
        now,
    )?;
    let resolver = Arc::new(Resolver::default());
    resolver.serve(&generation.certificate, &generation.key)?;
    let (address, runtime) =
        start(move |listener, shutdown| serve(listener, resolver, shutdown)).await?;
    Ok((
        Port::tls(address, NAME, generation.authority.as_bytes())?,
        runtime,
    ))
}

/// A legitimate client, on an address of its own. Like an API server, it keeps connections to use them again.
struct LegitimateClient {
    port: Port,
    from: Ipv4Addr,
    idle: std::sync::Mutex<Vec<SendRequest<Full<Bytes>>>>,
    tries: std::sync::Mutex<Tries>,
}

#[derive(Debug, Default)]
struct Tries {
    all: usize,
    failed: Vec<String>,
    longest: Duration,
}

impl LegitimateClient {
    fn of(port: &Port) -> Self {
        let (idle, tries) = Default::default();
        Self {
            port: port.clone(),
            from: Ipv4Addr::LOCALHOST,
            idle,
            tries,
        }
    }

    /// Tries to get an answer, over a connection that was used before, if there is one and `new` is not wanted.
    async fn ask(&self, flood: &Flood, request: Request<Full<Bytes>>, new: bool) {
        let began = Instant::now();
        let answered = tokio::select! {
            answered = self.answer(request, new) => answered,
            starved = starve(flood) => Err(anyhow!("others came first: {starved:?}")),
        };
        let mut tries = self.tries.lock().unwrap();
        tries.all += 1;
        tries.longest = tries.longest.max(began.elapsed());
        match answered {
            Ok(StatusCode::OK) => {}
            otherwise => tries.failed.push(format!("{otherwise:?}")),
        }
    }

    async fn answer(&self, request: Request<Full<Bytes>>, new: bool) -> Result<StatusCode> {
        let mut sender = match self.idle().filter(|_| !new) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if sender.ready().await.is_ok() {
            self.idle.lock().unwrap().push(sender);
        }
        Ok(status)
    }

    /// A connection that was used before and is not known to be closed.
    fn idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        std::iter::from_fn(|| self.idle.lock().unwrap().pop()).find(|idle| !idle.is_closed())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = self.port.connect(self.from).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// All tries were answered. Of a client on the flood's own address, which nothing tells apart from it before its request
    /// is there, one in twenty may have lost its connection: a busy machine takes longer for a handshake.
    fn check(&self, beside: &str, flood: &Flood) -> Result<()> {
        let tries = self.tries.lock().unwrap();
        println!(
            "{} tries beside {beside} ({}): {:?} at most",
            tries.all,
            flood.completed(),
            tries.longest
        );
        let lost = if self.from == Ipv4Addr::LOCALHOST {
            0
        } else {
            tries.all / 20
        };
        ensure!(tries.failed.len() <= lost, "beside {beside}: {tries:?}");
        Ok(())
    }
}

/// Ends when the callers have lost patience, and each of the flood has come once more.
async fn starve(flood: &Flood) -> Result<()> {
    let ((), progress) = tokio::join!(sleep(PATIENCE), wait_for_progress(flood, flood.size()));
    progress
}

fn probe() -> Request<Full<Bytes>> {
    let request = Request::get("/livez").header("host", NAME);
    request.body(Full::default()).unwrap()
}

fn review() -> Request<Full<Bytes>> {
    Request::post("/validate")
        .header("host", NAME)
        .body(Full::from(REVIEW))
        .unwrap()
}

/// Waits until the flood has sent so much more.
async fn wait_for_progress(flood: &Flood, more: usize) -> Result<()> {
    let before = flood.completed();
    let done = async || (flood.completed() >= before + more).then_some(());
    await_until("the flood makes progress", done).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_are_answered_during_a_flood() -> Result<()> {
    let _alone = alone().await?;
    let (other, same) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    for (beside, behaviours, pause, from) in [
        ("2,000 that stall", STALL, SOON, other),
        (
            "2,000 that stall and come back at once",
            STALL,
            AT_ONCE,
            other,
        ),
        (
            "2,000 kept alive that come back at once",
            KEPT_ALIVE,
            AT_ONCE,
            other,
        ),
        (
            "2,000 that stall and come back at once, beside it",
            STALL,
            AT_ONCE,
            same,
        ),
        (
            "2,000 kept alive that come back at once, beside it",
            KEPT_ALIVE,
            AT_ONCE,
            same,
        ),
    ] {
        let (port, _server) = start_tls(|listener, resolver, shutdown| {
            serve(
                listener,
                resolver,
                LIMITS,
                "ns".to_owned(),
                Arc::default(),
                None,
                shutdown,
            )
        })
        .await?;
        let api_server = LegitimateClient {
            from,
            ..LegitimateClient::of(&port)
        };
        let flood = Flood::start(&port, FLOOD, behaviours, pause)?;
        wait_for_progress(&flood, 2 * LIMITS.connections).await?;
        for _ in 0..10 {
            join_all((0..10).map(|number| api_server.ask(&flood, review(), number % 2 == 0))).await;
            wait_for_progress(&flood, 20).await?;
        }
        api_server.check(beside, &flood)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_during_a_flood() -> Result<()> {
    let _alone = alone().await?;
    let unfinished = &[Behaviour::Silent, Behaviour::HalfHead, Behaviour::HalfBody];
    for (beside, size, behaviours, pause) in [
        ("70 kept alive", 70, KEPT_ALIVE, SOON),
        (
            "2,000 kept alive that come back at once",
            FLOOD,
            KEPT_ALIVE,
            AT_ONCE,
        ),
        (
            "2,000 that stall and come back at once",
            FLOOD,
            unfinished,
            AT_ONCE,
        ),
    ] {
        let health = Health::starting("not yet");
        health.ready();
        let (address, _server) = start(|listener, shutdown| {
            endpoint::serve(listener, health, Drops::default(), shutdown)
        })
        .await?;
        let port = Port::plain(address);
        let kubelet = LegitimateClient::of(&port);
        let flood = Flood::start(&port, size, behaviours, pause)?;
        wait_for_progress(&flood, size.min(500)).await?;
        for _ in 0..50 {
            kubelet.ask(&flood, probe(), true).await;
            wait_for_progress(&flood, 1).await?;
        }
        kubelet.check(beside, &flood)?;
    }
    Ok(())
}
