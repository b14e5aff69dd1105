//! `make bench-ports`: who is served by the webhook during a flood of connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::flood::{Behaviour, Flood, Port, raise_open_files};
use brupop_testbed::kubelet::PodProcess;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{await_until, scrape};
use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::variants::{DEADLINE, PARALLEL, Variant};

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
    size: usize,
    behaviours: &'static [Behaviour],
    pause: Duration,
}

const SECOND: Duration = Duration::from_secs(1);
const PLAIN: &[Behaviour] = &[Behaviour::Silent, Behaviour::HalfHead, Behaviour::HalfBody];
const COSTLY: [Behaviour; 3] = [Behaviour::HalfBody, Behaviour::LongBody, Behaviour::CostlyBody];
const SCENARIOS: [Scenario; 9] = [
    Scenario {
        says: "no flood",
        port: ADMISSION,
        size: 0,
        behaviours: &Behaviour::UNFINISHED,
        pause: SECOND,
    },
    Scenario {
        says: "admission: 2,000 that stall",
        port: ADMISSION,
        size: 2000,
        behaviours: &Behaviour::UNFINISHED,
        pause: SECOND,
    },
    Scenario {
        says: "admission: 2,000 that stall, opened again at once",
        port: ADMISSION,
        size: 2000,
        behaviours: &Behaviour::UNFINISHED,
        pause: Duration::ZERO,
    },
    Scenario {
        says: "admission: 2,000 kept alive, opened again at once",
        port: ADMISSION,
        size: 2000,
        behaviours: &[Behaviour::KeptAlive],
        pause: Duration::ZERO,
    },
    Scenario {
        says: "admission: 2,000 that stall or send the most costly body",
        port: ADMISSION,
        size: 2000,
        behaviours: &COSTLY,
        pause: Duration::ZERO,
    },
    Scenario {
        says: "health: 70 kept alive",
        port: HEALTH,
        size: 70,
        behaviours: &[Behaviour::KeptAlive],
        pause: SECOND,
    },
    Scenario {
        says: "health: 2,000 that stall, opened again at once",
        port: HEALTH,
        size: 2000,
        behaviours: PLAIN,
        pause: Duration::ZERO,
    },
    Scenario {
        says: "metrics: 2,000 that stall, opened again at once",
        port: scrape::PORT,
        size: 2000,
        behaviours: &Behaviour::UNFINISHED,
        pause: Duration::ZERO,
    },
    Scenario {
        says: "metrics: 40 that make up tokens",
        port: scrape::PORT,
        size: 40,
        behaviours: &[Behaviour::MadeUpTokens],
        pause: Duration::ZERO,
    },
];

/// How often something was tried, how often in vain, and how long the longest try took.
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

    fn cell(&self) -> String {
        format!("{} of {}, {:.2} s", self.failed, self.all, self.longest.as_secs_f32())
    }
}

/// Measures all scenarios, and prints a table.
///
/// # Errors
/// The cluster does not come up, or a replica of the webhook ended.
pub async fn bench() -> Result<()> {
    eprintln!(
        "starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, and the webhook"
    );
    let cluster = Cluster::start().await?;
    raise_open_files()?;
    let webhooks = cluster.webhooks();
    ensure!(webhooks.len() == 2, "{webhooks:?}");
    let prometheus = Scraper::start(cluster.control_plane(), Some(READER)).await?;
    for webhook in &webhooks {
        let known = async || (prometheus.status(webhook).await.ok()? == 200).then_some(());
        await_until("the scraper is known", DEADLINE, known).await?;
    }
    println!(
        "| flood, at each of two replicas | writes failed, longest | probes failed, longest | scrapes failed, longest | \
         TokenReviews/s | most resident memory |\n|---|---|---|---|---|---|"
    );
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        println!("{}", measure(&cluster, &webhooks, &prometheus, scenario, number).await?);
    }
    for webhook in &webhooks {
        println!("resident memory of {} at the end: {:.0} MiB", webhook.pod, memory(webhook.pid, "VmRSS:")?);
    }
    ensure!(cluster.webhooks() == webhooks, "a webhook ended: {webhooks:?} {:?}", cluster.webhooks());
    Ok(())
}

async fn measure(
    cluster: &Cluster,
    webhooks: &[PodProcess],
    prometheus: &Scraper,
    scenario: &Scenario,
    number: usize,
) -> Result<String> {
    let mut audit = cluster.control_plane().audit().from_now();
    let bundle = cluster.bundle().await?;
    let name = format!("brupop-webhook.{NAMESPACE}.svc");
    let mut floods = Vec::new();
    for webhook in webhooks {
        let address = listens(webhook, scenario.port)?;
        let port =
            if scenario.port == HEALTH { Port::plain(address) } else { Port::tls(address, &name, &bundle)? };
        floods.push(Flood::start(&port, scenario.size, scenario.behaviours, scenario.pause)?);
    }
    let goes_on = async |more: usize| {
        for flood in &floods {
            let before = flood.completed();
            let more = async || (flood.completed() >= before + more).then_some(());
            await_until("the flood makes progress", DEADLINE, more).await?;
        }
        anyhow::Ok(())
    };
    goes_on(scenario.size.min(500)).await?;
    let began = Instant::now();
    let (mut writes, mut probes, mut scrapes) = (Tries::default(), Tries::default(), Tries::default());
    let agents = cluster.agents(Variant::Both);
    for webhook in webhooks {
        // Resets its greatest resident memory.
        std::fs::write(format!("/proc/{}/clear_refs", webhook.pid), "5")?;
    }
    for round in 0..ROUNDS {
        for group in [&agents[..1], &agents[1..2], agents] {
            let report = number * 100 + round;
            let tries = join_all(group.iter().map(async |agent| {
                let began = Instant::now();
                (agent.report(report + group.len()).await.is_err(), began.elapsed())
            }));
            for (failed, took) in tries.await {
                writes.record(took, failed);
            }
        }
        for webhook in webhooks {
            probes.add(probe(listens(webhook, HEALTH)?)).await;
            scrapes
                .add(async {
                    let status = timeout(PATIENCE, prometheus.status(webhook)).await??;
                    ensure!(status == 200, "{status}");
                    Ok(())
                })
                .await;
        }
        goes_on(scenario.size.min(20)).await?;
    }
    let mut resident: f64 = 0.0;
    for webhook in webhooks {
        resident = resident.max(memory(webhook.pid, "VmHWM:")?);
    }
    let seconds = began.elapsed().as_secs_f64();
    let of_webhook = |event: &&brupop_testbed::audit::Event| {
        event.object_ref.as_ref().is_some_and(|object| object.resource == "tokenreviews")
            && event.user.username.ends_with(":brupop-webhook")
    };
    let reviews = u32::try_from(audit.read()?.iter().filter(of_webhook).count())?;
    ensure!(writes.all == ROUNDS * (2 + PARALLEL));
    Ok(format!(
        "| {} | {} | {} | {} | {:.1} | {resident:.0} MiB |",
        scenario.says,
        writes.cell(),
        probes.cell(),
        scrapes.cell(),
        f64::from(reviews) / seconds,
    ))
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

/// A line of what the kernel says of a process, in MiB.
fn memory(pid: u32, line: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|found| found.strip_prefix(line)).context("no such line")?;
    let kib: f64 = line.split_whitespace().next().context("no number")?.parse()?;
    Ok(kib / 1024.0)
}
