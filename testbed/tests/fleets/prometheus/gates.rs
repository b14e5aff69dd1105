//! Gates of pools, which a real Prometheus closes and opens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use brupop_api::conditions::{ConditionStatus, READY};
use brupop_api::{BottlerocketPool, State, names};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::{self, Answer, Call, Faults};
use brupop_testbed::objects::with_file;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Sandbox;
use brupop_testbed::{Fleet, await_until};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::documents::{blocks, read, section};
use brupop_testbed::prometheus::{Prometheus, Served};

/// A scraped application that says whether it is broken.
struct App {
    address: SocketAddr,
    broken: Arc<AtomicBool>,
    _serves: JoinSet<()>,
}

impl App {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (address, broken) = (listener.local_addr()?, Arc::<AtomicBool>::default());
        let (mut serves, is_broken) = (JoinSet::new(), Arc::clone(&broken));
        serves.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let is = u8::from(is_broken.load(Ordering::Relaxed));
                let body = format!("app_broken {is}\n");
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n";
                let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Ok(Self {
            address,
            broken,
            _serves: serves,
        })
    }

    fn is(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }
}

/// A Prometheus that watches the application, by TLS.
struct Watching {
    folder: PathBuf,
    served: Served,
    configuration: Value,
}

impl Watching {
    async fn of(fleet: &Fleet, app: &App) -> Result<Self> {
        let folder = fleet.control_plane.dir().join("watching");
        std::fs::create_dir_all(&folder)?;
        let rules = folder.join("rules.yml");
        let alert = |alert: &str, expr: &str, severity: &str| json!({"alert": alert, "expr": expr, "labels": {"severity": severity}});
        let alerts = [
            alert("Watchdog", "up == 1", "none"),
            alert("AppBroken", "app_broken == 1", "critical"),
        ];
        std::fs::write(
            &rules,
            json!({"groups": [{"name": "app", "rules": alerts}]}).to_string(),
        )?;
        let configuration = json!({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [app.address]}]}],
        });
        let address = TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?;
        let certificate = Some(rcgen::generate_simple_self_signed(vec![
            "127.0.0.1".to_owned(),
        ])?);
        Ok(Self {
            folder,
            served: Served {
                address,
                certificate,
            },
            configuration,
        })
    }

    async fn start(&self, fleet: &Fleet) -> Result<Prometheus> {
        Prometheus::run(
            &fleet.control_plane,
            self.folder.clone(),
            &self.configuration,
            &self.served,
        )
        .await
    }
}

/// Waits until this node waits for this reason, and says so of this gate.
async fn waits(fleet: &Fleet, node: &str, reason: &str) -> Result<()> {
    fleet
        .until_node(node, reason, |seen| seen.reason == reason)
        .await?;
    let said = fleet.progressing(node).await?.message;
    ensure!(said.contains("the gate no-critical of its pool"), "{said}");
    Ok(())
}

fn pools(fleet: &Fleet) -> Api<BottlerocketPool> {
    Api::namespaced(fleet.client(), NAMESPACE)
}

/// Waits until this pool is not ready for this reason.
async fn says_at_once(fleet: &Fleet, pool: &str, words: &str) -> Result<()> {
    let says = await_until(format!("{pool} says {words:?}"), async || {
        let status = pools(fleet).get(pool).await.ok()?.status?;
        let ready = status.conditions.into_iter().find(|it| it.type_ == READY)?;
        let unready = ready.status == ConditionStatus::False && ready.reason == "GateUnknown";
        (unready && ready.message.contains(words)).then_some(())
    });
    says.await
}

/// The pool of docs/pools.md as it is written, but of all nodes, and verifies nodes for as long as a test can wait.
async fn apply(fleet: &Fleet) -> Result<()> {
    const TIER: &str = "  nodeSelector: {matchLabels: {tier: web}}\n";
    let document = read("docs/pools.md")?;
    let yaml = *blocks(section(&document, "## Gates")?, "yaml")
        .first()
        .context("no YAML")?;
    ensure!(yaml.contains(TIER), "it selects other nodes:\n{yaml}");
    let of_all = "  nodeSelector: {}\n  verify: {readyFor: 8s, workloadsTimeout: 0s}\n";
    let yaml = yaml.replace(TIER, of_all);
    with_file(&fleet.control_plane, &["apply", "-n", NAMESPACE], &yaml)
        .await
        .map(drop)
}

/// Two nodes, one at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_holds_what_begins_and_what_ends() -> Result<()> {
    let secret = Sandbox::new()?;
    let sources = secret.dir().display().to_string();
    let env = [
        ("GATE_SOURCES", sources.as_str()),
        ("GATE_INTERVAL_SECONDS", "1"),
    ];
    let mut fleet = Fleet::quick(2, &env).await?;
    let app = App::start().await?;
    let watching = Watching::of(&fleet, &app).await?;
    apply(&fleet).await?;
    // There is no update yet.
    says_at_once(&fleet, "gated", "it has no key main.url").await?;
    for host in &fleet.hosts {
        // Nothing can be downloaded, so what has begun stays where it is.
        host.set_faults(Faults::answer(
            Call::Action(host::Command::Prepare),
            Answer::Locked,
        ));
    }
    fleet.publish(NEW)?;
    // The administrator has named no source, and a person's annotation opens nothing.
    waits(&fleet, "node-0", "GateUnknown").await?;
    fleet
        .annotate("node-1", &format!("{}=true", names::UPDATE_NOW_ANNOTATION))
        .await?;
    waits(&fleet, "node-1", "GateUnknown").await?;
    let prometheus = watching.start(&fleet).await?;
    let certificate = watching
        .served
        .certificate
        .as_ref()
        .context("no certificate")?;
    std::fs::write(secret.dir().join("main.ca"), certificate.cert.pem())?;
    std::fs::write(
        secret.dir().join("main.url"),
        format!("https://{}\n", watching.served.address),
    )?;
    fleet
        .until_ledger("an update begins", |status| !status.slots.is_empty())
        .await?;

    given_back(&fleet, &app).await?;
    soaks_on(&fleet, &app, &watching, prometheus).await?;
    fleet.check()
}

/// An image is being downloaded when an alert begins to fire. Once it is there, the slot is given back without a failure.
async fn given_back(fleet: &Fleet, app: &App) -> Result<()> {
    let nodes = ["node-0", "node-1"];
    let begun = |node: &&str| fleet.seen(node).is_ok_and(|seen| seen.goal != State::Idle);
    let (begins, other) = await_until("one has begun", async || {
        let begins = nodes.iter().copied().find(begun)?;
        Some((begins, nodes.into_iter().find(|node| *node != begins)?))
    })
    .await?;
    // A person asked for it.
    ensure!(begins == "node-1", "{begins} was first");
    fleet
        .until_node(other, "waits for its turn", |seen| {
            seen.reason == "LimitReached"
        })
        .await?;
    app.is(true);
    waits(fleet, other, "GateClosed").await?;
    fleet.set_faults(&Faults::default());
    fleet.until_no_slot_is_taken().await?;
    for node in nodes {
        waits(fleet, node, "GateClosed").await?;
        let seen = fleet.seen(node)?;
        ensure!(seen.runs(OLD) && seen.crashes == 0, "{node}: {seen:?}");
        ensure!(
            !fleet.history().has_seen(node, |seen| seen.cordoned),
            "{node} was cordoned"
        );
    }
    let lines = [
        r#"brupop_gate_state{pool="gated",gate="no-critical",state="Closed"} 1"#,
        r#"brupop_gate_state{pool="gated",gate="no-critical",state="Unknown"} 0"#,
    ];
    fleet.wait_for_metrics("reconciler", &lines).await
}

/// A node has rebooted into its update when the alert fires again, and is held until all is well: also while nobody knows
/// whether it is, because what is scraped is away, or Prometheus.
async fn soaks_on(
    fleet: &Fleet,
    app: &App,
    watching: &Watching,
    prometheus: Prometheus,
) -> Result<()> {
    app.is(false);
    let reboots = |seen: &brupop_testbed::history::Seen| seen.goal == State::RebootedIntoUpdate;
    let nodes = ["node-0", "node-1"];
    let node = await_until("a node reboots", async || {
        nodes
            .into_iter()
            .find(|node| fleet.seen(node).is_ok_and(|seen| reboots(&seen)))
    })
    .await?;
    app.is(true);
    // It waited for the gate before, and what is said of it may be a moment old.
    fleet
        .until_node(node, "is watched", |seen| {
            seen.goal == State::MonitoringUpdate
        })
        .await?;
    waits(fleet, node, "GateClosed").await?;
    let held = |what: &'static str| {
        let seen = fleet.seen(node)?;
        ensure!(
            seen.goal == State::MonitoringUpdate && !seen.cordoned && seen.crashes == 0,
            "{what}: {seen:?}"
        );
        anyhow::Ok(())
    };
    held("an alert fires")?;
    drop(prometheus);
    waits(fleet, node, "GateUnknown").await?;
    held("Prometheus is away")?;
    app.is(false);
    let _prometheus = watching.start(fleet).await?;
    fleet.until_updated(NEW).await?;
    let shadows = fleet.shadows().list(&ListParams::default()).await?;
    ensure!(
        shadows
            .items
            .iter()
            .all(|shadow| shadow.spec.last_failure.is_none()),
        "that is no failure"
    );
    ensure!(
        fleet.history().most_slots_of("gated") == 1,
        "{} of gated",
        fleet.history().most_slots_of("gated")
    );
    Ok(())
}
