//! A roll-out by pools that a real Prometheus watches, as a dashboard shows it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::BottlerocketShadow;
use jiff::Timestamp;
use kube::Error;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::fleet::NEW;
use crate::operator::NAMESPACE;
use crate::prometheus::{Job, Prometheus, Window};
use crate::sandbox::Sandbox;
use crate::scrape::{READER, Scraper};
use crate::{Fleet, FleetOptions, await_until, tiers};

/// Between two looks at which pods there are.
const LOOK: Duration = Duration::from_millis(500);
/// A gate of the database, which the same Prometheus answers.
const GATE: &str = "  gates:
  - name: no-critical
    type: Prometheus
    prometheus:
      source: main
      query: 'ALERTS{severity=\"critical\",alertstate=\"firing\"}'
";

/// A fleet, and who watches it.
pub struct Observed {
    /// The Prometheus.
    pub prometheus: Prometheus,
    /// The fleet.
    pub fleet: Fleet,
    nodes: usize,
    began: Timestamp,
    /// Where gates find their sources.
    _sources: Sandbox,
}

impl Observed {
    /// Starts a fleet with these options, of four nodes or more, and a Prometheus that scrapes its operator.
    pub async fn start(options: &FleetOptions, say: impl Fn(&str)) -> Result<Self> {
        let sources = Sandbox::new()?;
        let mut options = options.clone();
        let gates = [
            ("GATE_SOURCES", sources.dir().display().to_string()),
            ("GATE_INTERVAL_SECONDS", "1".to_owned()),
        ];
        options.env.extend(gates.map(|(name, value)| (name.to_owned(), value)));
        let fleet = Fleet::start(&options, say).await?;
        let reader = Scraper::start(&fleet.control_plane, Some(READER)).await?;
        let job = Job { name: "brupop", token: reader.token()? };
        let prometheus = Prometheus::start(&fleet.control_plane, &[job]).await?;
        std::fs::write(sources.dir().join("main.url"), format!("http://{}\n", prometheus.address))?;
        let began = Timestamp::now();
        Ok(Self { prometheus, fleet, nodes: options.nodes, began, _sources: sources })
    }

    /// Brings workloads and pools onto the fleet. Returns once each process of the operator is scraped.
    pub async fn prepare(&self) -> Result<()> {
        let all = async {
            let scraped = await_until("each process is scraped", async || {
                let up = self.prometheus.query("sum(up)", &[]).await.ok()?;
                (up.get("") == Some(&4.0)).then_some(())
            });
            scraped.await?;
            self.fleet.deploy("cart", self.nodes * 2, "50%").await?;
            tiers::apply(&self.fleet, self.nodes, &tiers::manifest(GATE)).await
        };
        self.while_scraped(all).await
    }

    /// Rolls out a release: the canary first, then `web`, while the database waits. At last an agent's token is used for a
    /// report that the webhook refuses.
    pub async fn roll_out(&mut self) -> Result<()> {
        self.began = Timestamp::now();
        self.while_scraped(self.updates()).await?;
        self.a_report_is_refused().await
    }

    async fn updates(&self) -> Result<()> {
        self.fleet.publish(NEW)?;
        let waits: Vec<_> = tiers::nodes_of("db", self.nodes).collect();
        let so = self.fleet.until("canary and web are updated, and db waits", |history| {
            history.now().all(|(node, seen)| {
                if waits.iter().any(|name| name == node) {
                    ["OutsideWindow", "GateClosed"].contains(&seen.reason.as_str())
                } else {
                    seen.runs(NEW)
                }
            })
        });
        so.await?;
        self.fleet.until_no_slot_is_taken().await?;
        let updated = self.nodes - waits.len();
        let ended = format!(
            "max(brupop_nodes_reason{{reason=\"NoUpdate\"}}) == {updated} unless max(brupop_slots_in_use) > 0"
        );
        await_until("Prometheus has seen the end", async || {
            self.prometheus.query(&ended, &[]).await.ok()?.get("").map(drop)
        })
        .await
    }

    /// Tells Prometheus of the pods that there are, again and again, for drains move some.
    async fn while_scraped<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        let mut what = std::pin::pin!(what);
        loop {
            let processes = [self.fleet.processes("reconciler"), self.fleet.processes("webhook")].concat();
            self.prometheus.aim(&self.fleet.client(), &processes).await?;
            tokio::select! {
                done = &mut what => return done,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// The policies let an agent write the status of its own node, but only the webhook knows which step comes next.
    async fn a_report_is_refused(&self) -> Result<()> {
        let client =
            self.fleet.control_plane.client_for_token(&self.fleet.agents_token("node-0").await?).await?;
        let shadows = Api::<BottlerocketShadow>::namespaced(client, NAMESPACE);
        let lie = Patch::Merge(json!({"status": {"current_state": "MonitoringUpdate"}}));
        match shadows.patch_status("brs-node-0", &PatchParams::default(), &lie).await {
            Ok(_) => bail!("an agent may skip steps"),
            Err(Error::Api(refusal)) => ensure!(refusal.message.contains("agent-"), "{refusal:?}"),
            Err(error) => return Err(error.into()),
        }
        let refused = r#"sum(brupop_webhook_reviews_total{actor="agent",verdict="refused"})"#;
        let counted = await_until("Prometheus knows of it", async || {
            self.prometheus.query(refused, &[]).await.ok()?.get("").copied()
        });
        self.while_scraped(async { counted.await.context("not counted") }).await?;
        Ok(())
    }

    /// From the beginning of the roll-out until now, in this many steps.
    pub fn window(&self, steps: u32) -> Window {
        let seconds = |time: Timestamp| time.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
        let (from, until) = (seconds(self.began), seconds(Timestamp::now()));
        Window { from, until, step: (until - from) / f64::from(steps) }
    }
}
