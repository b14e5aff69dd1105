//! The dashboard that is shipped, asked of a Prometheus that watched a roll-out by pools.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brupop_testbed::fleet::NEW;
use brupop_testbed::sandbox::Sandbox;
use brupop_testbed::scrape::{READER, Scraper};
use brupop_testbed::{Fleet, await_until, read, tiers};
use jiff::Timestamp;
use kube::Error;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::aim;
use super::scraping::{Job, Prometheus, SCRAPE_SECONDS};

const NODES: usize = 4;
/// Between two looks at which pods there are.
const LOOK: Duration = Duration::from_millis(500);
/// A gate of the database, which the same Prometheus answers.
const GATE: &str = "  gates:
  - name: no-critical
    prometheus:
      source: main
      query: 'ALERTS{severity=\"critical\",alertstate=\"firing\"}'
";

#[tokio::test(flavor = "multi_thread")]
async fn each_query_of_the_dashboard_finds_something() -> Result<()> {
    let dashboard: Value = serde_json::from_str(&read(
        "kustomize/components/prometheus-operator/dashboard.json",
    )?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let queries: Vec<_> = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
        .collect();
    ensure!(queries.len() > 25, "only {} queries", queries.len());

    let sources = Sandbox::new()?;
    let folder = sources.dir().display().to_string();
    let gates = [
        ("GATE_SOURCES", folder.as_str()),
        ("GATE_INTERVAL_SECONDS", "1"),
    ];
    let mut fleet = Fleet::quick(NODES, &gates).await?;
    let reader = Scraper::start(&fleet.control_plane, Some(READER)).await?;
    let job = Job {
        name: "brupop",
        token: reader.token()?,
    };
    let prometheus = Prometheus::start(&fleet.control_plane, &[job]).await?;
    std::fs::write(
        sources.dir().join("main.url"),
        format!("http://{}\n", prometheus.address()),
    )?;

    let roll_out = Box::pin(roll_out(&fleet, &prometheus));
    let began = while_scraped(&fleet, &prometheus, roll_out).await?;
    let mut missed = vec![];
    let found = await_until("each query finds something", async || {
        let (window, mut wrong) = (since(began, 10), vec![]);
        for query in &queries {
            if let Err(error) = finds_something(&prometheus, query, window).await {
                wrong.push(format!("{error:#}"));
            }
        }
        // All at once: the deadline may end a look in its midst.
        missed = wrong;
        missed.is_empty().then_some(())
    });
    found.await.with_context(|| missed.join("\n"))?;
    let alerts = prometheus.alerts().await?;
    ensure!(alerts.is_empty(), "all went well, and yet {alerts:?}");
    fleet.check()
}

/// Tells Prometheus of the pods that there are, again and again, for drains move some.
async fn while_scraped<T>(
    fleet: &Fleet,
    prometheus: &Prometheus,
    what: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut what = std::pin::pin!(what);
    loop {
        aim(fleet, prometheus).await?;
        tokio::select! {
            done = &mut what => return done,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Once each process of the operator is scraped, rolls out a release: the canary first, then `web`, while the database
/// waits. At last a report is refused. Returns when it began.
async fn roll_out(fleet: &Fleet, prometheus: &Prometheus) -> Result<Timestamp> {
    let scraped = await_until("each process is scraped", async || {
        let up = prometheus
            .query(r#"sum(up{job="brupop"})"#, &[])
            .await
            .ok()?;
        (up.get("") == Some(&4.0)).then_some(())
    });
    scraped.await?;
    fleet.deploy("cart", NODES * 2, "50%").await?;
    tiers::apply(fleet, NODES, &tiers::manifest(GATE)).await?;

    let began = Timestamp::now();
    fleet.publish(NEW)?;
    let waits: Vec<_> = tiers::nodes_of("db", NODES).collect();
    let so = fleet.until("canary and web are updated, and db waits", |history| {
        history.now().all(|(node, seen)| {
            if waits.iter().any(|name| name == node) {
                ["OutsideWindow", "GateClosed"].contains(&seen.reason.as_str())
            } else {
                seen.runs(NEW)
            }
        })
    });
    so.await?;
    fleet.until_no_slot_is_taken().await?;
    let updated = NODES - waits.len();
    let ended = format!(
        "max(brupop_nodes_reason{{reason=\"NoUpdate\"}}) == {updated} unless max(brupop_slots_in_use) > 0"
    );
    await_until("Prometheus has seen the end", async || {
        prometheus.query(&ended, &[]).await.ok()?.get("").map(drop)
    })
    .await?;
    a_report_is_refused(fleet, prometheus).await?;
    Ok(began)
}

/// The policies let an agent write the status of its own node, but only the webhook knows which step comes next.
async fn a_report_is_refused(fleet: &Fleet, prometheus: &Prometheus) -> Result<()> {
    let lie = Patch::Merge(json!({"status": {"current_state": "MonitoringUpdate"}}));
    let shadows = fleet.agents_shadows("node-0").await?;
    match shadows
        .patch_status("brs-node-0", &PatchParams::default(), &lie)
        .await
    {
        Ok(_) => bail!("an agent may skip steps"),
        Err(Error::Api(refusal)) => ensure!(refusal.message.contains("agent-"), "{refusal:?}"),
        Err(error) => return Err(error.into()),
    }
    let refused = r#"sum(brupop_webhook_reviews_total{actor="agent",verdict="refused"})"#;
    await_until("Prometheus knows of it", async || {
        prometheus.query(refused, &[]).await.ok()?.get("").map(drop)
    })
    .await
}

/// From and until, in seconds since 1970, and the seconds between two answers.
#[derive(Clone, Copy)]
struct Window {
    from: f64,
    until: f64,
    step: f64,
}

/// From then until now, in this many steps.
fn since(began: Timestamp, steps: u32) -> Window {
    let seconds = |time: Timestamp| time.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
    let (from, until) = (seconds(began), seconds(Timestamp::now()));
    Window {
        from,
        until,
        step: (until - from) / f64::from(steps),
    }
}

/// Asks Prometheus a query, as Grafana would with this window and all pools, of a cluster without a name.
async fn finds_something(prometheus: &Prometheus, query: &Value, window: Window) -> Result<()> {
    let Window { from, until, step } = window;
    let rate_interval = (4.0 * SCRAPE_SECONDS).max(step + SCRAPE_SECONDS);
    let milliseconds = |seconds: f64| format!("{:.0}ms", seconds * 1000.0);
    let expression = query["expr"].as_str().context("no expression")?;
    let expression = expression
        .replace("$__rate_interval", &milliseconds(rate_interval))
        .replace("$__range_s", &(until - from).to_string())
        .replace("$__range", &milliseconds(until - from))
        .replace("$cluster", "")
        .replace("$pool", ".*");
    ensure!(
        !expression.contains('$'),
        "a variable that nobody knows: {expression}"
    );
    let (path, when) = if query["instant"] == true {
        ("query", format!("&time={until}"))
    } else {
        (
            "query_range",
            format!("&start={from}&end={until}&step={step}"),
        )
    };
    let found = prometheus.series(path, &expression, &when).await?;
    let is_finite = |point: &Value| {
        let value = point[1]
            .as_str()
            .and_then(|value| value.parse::<f64>().ok());
        value.is_some_and(f64::is_finite)
    };
    let is_number = |series: &Value| match series["values"].as_array() {
        Some(points) => points.iter().any(is_finite),
        None => is_finite(&series["value"]),
    };
    // In a roll-out that goes well, nothing is halted, and no alert fires.
    let is_of_trouble = expression.contains("halted{") || expression.contains("(ALERTS{");
    let finds = is_of_trouble || found.iter().any(is_number);
    ensure!(finds, "{expression} finds {found:?}");
    Ok(())
}
