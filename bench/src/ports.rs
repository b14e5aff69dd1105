//! Who is served by the webhook during a flood of connections to each of its two replicas.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::flood::{Behaviour, Flood, Port, raise_open_files};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::usage::Usage;
use brupop_testbed::{await_until, scrape};
use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::admission::{PARALLEL, Variant, Variants};
use crate::say;
use crate::table::Figure;

/// The most memory that manifests/webhook-deployment.yaml expects the webhook to use, also in a flood.
const AIM_MIB: f64 = 190.0;
/// Ports of the webhook's container.
const ADMISSION: i32 = 8443;
const HEALTH: i32 = 8080;
/// As the webhook's probes have it. A scrape is given as much.
const PATIENCE: Duration = Duration::from_secs(3);
/// In each round one agent writes, then another, then all at once: over connections that the API server kept, and new ones.
const ROUNDS: usize = 10;

/// A port, and whose connections it has to bear.
struct Scenario {
    says: &'static str,
    port: i32,
    /// As many connections as are wanted, if it is not said.
    size: Option<usize>,
    behaviours: &'static [Behaviour],
}

const fn scenario(
    says: &'static str,
    port: i32,
    size: Option<usize>,
    behaviours: &'static [Behaviour],
) -> Scenario {
    Scenario { says, port, size, behaviours }
}

const STALL: &[Behaviour] = &Behaviour::UNFINISHED;
const PLAIN: &[Behaviour] = &[Behaviour::Silent, Behaviour::HalfHead, Behaviour::HalfBody];
const COSTLY: &[Behaviour] = &[Behaviour::HalfBody, Behaviour::LongBody, Behaviour::CostlyBody];
/// Connections are opened again at once.
const SCENARIOS: [Scenario; 7] = [
    scenario("no flood", ADMISSION, Some(0), STALL),
    scenario("admission, connections that stall", ADMISSION, None, STALL),
    scenario("admission, connections kept alive", ADMISSION, None, &[Behaviour::KeptAlive]),
    scenario("admission, connections that stall or send the most costly body", ADMISSION, None, COSTLY),
    scenario("health, connections that stall", HEALTH, None, PLAIN),
    scenario("metrics, connections that stall", scrape::PORT, None, STALL),
    scenario("metrics, 40 clients that make up tokens", scrape::PORT, Some(40), &[Behaviour::MadeUpTokens]),
];

/// Tries and failures, and how long the longest try took.
#[derive(Default)]
struct Tries {
    all: usize,
    failed: usize,
    longest: Duration,
}

impl Tries {
    async fn add<T>(&mut self, what: impl Future<Output = Result<T>>) {
        let began = Instant::now();
        let failed = what.await.is_err();
        self.record(began.elapsed(), failed);
    }

    fn record(&mut self, time: Duration, failed: bool) {
        self.all += 1;
        self.failed += usize::from(failed);
        self.longest = self.longest.max(time);
    }
}

/// Measures all scenarios, with this number of connections to each replica.
pub async fn measure(connections: usize) -> Result<Vec<Figure>> {
    let cluster = Variants::start().await?;
    raise_open_files()?;
    let webhooks = cluster.webhooks();
    ensure!(webhooks.len() == 2, "{webhooks:?}");
    let prometheus = Scraper::start(cluster.control_plane(), Some(READER)).await?;
    for webhook in &webhooks {
        let known = async || (prometheus.status(webhook).await.ok()? == 200).then_some(());
        await_until("the scraper is known", known).await?;
    }
    let mut figures = vec![];
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        say(scenario.says);
        let size = scenario.size.unwrap_or(connections);
        figures.extend(under(&cluster, &webhooks, &prometheus, scenario, size, number * 100).await?);
    }
    ensure!(cluster.webhooks() == webhooks, "a webhook ended: {webhooks:?} {:?}", cluster.webhooks());
    Ok(figures)
}

/// Measures one scenario; agents' reports are numbered from `report`.
async fn under(
    cluster: &Variants,
    webhooks: &[PodProcess],
    prometheus: &Scraper,
    scenario: &Scenario,
    size: usize,
    report: usize,
) -> Result<[Figure; 2]> {
    let bundle = cluster.bundle().await?;
    let name = format!("brupop-webhook.{NAMESPACE}.svc");
    let mut floods = vec![];
    for webhook in webhooks {
        let address = listens(webhook, scenario.port)?;
        let port =
            if scenario.port == HEALTH { Port::plain(address) } else { Port::tls(address, &name, &bundle)? };
        floods.push(Flood::start(&port, size, scenario.behaviours, Duration::ZERO)?);
    }
    let goes_on = async |more: usize| {
        for flood in &floods {
            let before = flood.completed();
            let more = async || (flood.completed() >= before + more).then_some(());
            await_until("the flood makes progress", more).await?;
        }
        anyhow::Ok(())
    };
    goes_on(size.min(500)).await?;
    let (mut writes, mut probes, mut scrapes) = (Tries::default(), Tries::default(), Tries::default());
    let agents = cluster.agents(Variant::Both);
    for webhook in webhooks {
        // Resets its greatest resident memory.
        std::fs::write(format!("/proc/{}/clear_refs", webhook.pid), "5")?;
    }
    for round in 0..ROUNDS {
        for group in [&agents[..1], &agents[1..2], agents] {
            let tries = join_all(group.iter().map(async |agent| {
                let began = Instant::now();
                (agent.report(report + round + group.len()).await.is_err(), began.elapsed())
            }));
            for (failed, took) in tries.await {
                writes.record(took, failed);
            }
        }
        for webhook in webhooks {
            probes.add(probe(listens(webhook, HEALTH)?)).await;
            let scrape = async {
                let status = timeout(PATIENCE, prometheus.status(webhook)).await??;
                ensure!(status == 200, "{status}");
                Ok(())
            };
            scrapes.add(scrape).await;
        }
        goes_on(size.min(20)).await?;
    }
    let mut resident: f64 = 0.0;
    for webhook in webhooks {
        resident = resident.max(Usage::of(webhook.pid)?.peak);
    }
    ensure!(writes.all == ROUNDS * (2 + PARALLEL));
    let flood =
        if size == 0 { scenario.says.to_owned() } else { format!("flood of {size}: {}", scenario.says) };
    let longest = |tries: &Tries| tries.longest.as_secs_f64();
    let note = format!(
        "failed: {} of {} writes, {} of {} probes, {} of {} scrapes; longest probe {:.2} s, scrape {:.2} s",
        writes.failed,
        writes.all,
        probes.failed,
        probes.all,
        scrapes.failed,
        scrapes.all,
        longest(&probes),
        longest(&scrapes),
    );
    Ok([
        Figure::new(format!("longest write of an agent, {flood}"), longest(&writes), "s").note(note),
        Figure::new(format!("webhook: resident at most, {flood}"), resident, "MiB").aim(AIM_MIB),
    ])
}

fn listens(webhook: &PodProcess, port: i32) -> Result<SocketAddr> {
    webhook.listens.get(&port).copied().with_context(|| format!("{} does not listen at {port}", webhook.pod))
}

/// As the kubelet does: over a new connection.
async fn probe(address: SocketAddr) -> Result<()> {
    timeout(PATIENCE, async {
        let mut stream = Port::plain(address).connect(Ipv4Addr::LOCALHOST).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: kubelet\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        Ok(())
    })
    .await?
}
