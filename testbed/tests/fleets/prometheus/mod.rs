//! A real Prometheus scrapes the operator: with a right, with none, and what it then tells of the fleet.

#![allow(
    clippy::float_cmp,
    reason = "Prometheus' numbers are floats; what is compared is counts"
)]

mod dashboard;
mod gates;
mod rules;
mod scraping;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::fleet::BottlerocketFleetStatus;
use brupop_api::{BottlerocketShadow, State, names};
use brupop_testbed::fleet::Records as _;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::host::Faults;
use brupop_testbed::scrape::Scraper;
use brupop_testbed::{Fleet, await_until};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams};
use scraping::{Job, Prometheus, Vector};
use serde_json::json;

/// Two reconcilers and webhooks each.
const PROCESSES: f64 = 4.0;

#[tokio::test(flavor = "multi_thread")]
async fn what_prometheus_tells_is_what_the_objects_say() -> Result<()> {
    let mut fleet = Fleet::quick(3, &[]).await?;
    let reader = documented_account(&fleet).await?;
    let stranger = Scraper::start(&fleet.control_plane, None).await?;
    let jobs = [
        Job {
            name: "reader",
            token: reader.token()?,
        },
        Job {
            name: "stranger",
            token: stranger.token()?,
        },
    ];
    let prometheus = Prometheus::start(&fleet.control_plane, &jobs).await?;

    let up = async || {
        aim(&fleet, &prometheus).await.ok()?;
        let up = prometheus.query("sum by (job) (up)", &["job"]).await.ok()?;
        let asked = prometheus
            .query("count by (job) (up)", &["job"])
            .await
            .ok()?;
        (up.get("reader") == Some(&PROCESSES) && asked.get("stranger") >= Some(&PROCESSES))
            .then_some((up, asked))
    };
    let (up, asked) = await_until("each process is scraped", up).await?;
    ensure!(up["stranger"] == 0.0, "{up:?}");
    ensure!(
        asked["reader"] == PROCESSES && asked["stranger"] == PROCESSES,
        "others are scraped, too: {asked:?}"
    );
    agree(&fleet, &prometheus, "nothing is to be done").await?;
    alerts_are(&prometheus, &[]).await?;

    // Whichever is the first.
    fleet.set_faults(&Faults {
        bad_images: [NEW.to_owned()].into(),
        ..Faults::default()
    });
    fleet.publish(NEW)?;
    let halted = |status: &BottlerocketFleetStatus| {
        status.slots.is_empty() && status.record(NEW).halted_at.is_some()
    };
    fleet
        .until_ledger("the version is halted and nothing runs", halted)
        .await?;
    let said = agree(&fleet, &prometheus, "a version is halted").await?;
    ensure!(
        said["halted"][""] == 1.0 && said["failed"]["FellBack"] == 1.0,
        "{said:?}"
    );
    ensure!(
        said["versions"][OLD] == 3.0 && said["failures"][NEW] == 1.0,
        "{said:?}"
    );
    alerts_are(&prometheus, &["BrupopNodesFailed", "BrupopVersionHalted"]).await?;

    a_foreign_write_is_refused(&fleet).await?;
    alerts_are(
        &prometheus,
        &[
            "BrupopNodesFailed",
            "BrupopVersionHalted",
            "BrupopWritesRefused",
        ],
    )
    .await?;

    let foreign = prometheus
        .query(r#"count({job="stranger",__name__=~"brupop.*"})"#, &[])
        .await?;
    ensure!(
        foreign.is_empty(),
        "who has no right was told something: {foreign:?}"
    );
    fleet.check()
}

/// The policy answers before the webhook is asked.
async fn a_foreign_write_is_refused(fleet: &Fleet) -> Result<()> {
    let lie = Patch::Merge(json!({"status": {"message": "I am another"}}));
    let shadows = fleet.agents_shadows("node-0").await?;
    let answer = shadows
        .patch_status("brs-node-1", &PatchParams::default(), &lie)
        .await;
    match answer {
        Err(kube::Error::Api(refusal)) if refusal.message.contains("agent-own-node") => Ok(()),
        other => bail!("{other:?}"),
    }
}

/// The account of docs/scrape-account.yaml, which gets `/metrics` and nothing else.
async fn documented_account(fleet: &Fleet) -> Result<Scraper> {
    const ACCOUNT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scrape-account.yaml");
    fleet.kubectl("create namespace monitoring").await?;
    fleet.kubectl(&format!("apply -f {ACCOUNT}")).await?;
    let secrets = Api::<Secret>::namespaced(fleet.client(), "monitoring");
    let token = await_until("the token", async || {
        let ByteString(token) = secrets
            .get("brupop-metrics-reader")
            .await
            .ok()?
            .data?
            .remove("token")?;
        String::from_utf8(token).ok()
    })
    .await?;
    let client = fleet.control_plane.client_for_token(&token).await?;
    for (path, may) in [
        ("/metrics", true),
        ("/api/v1/namespaces", false),
        ("/logs", false),
    ] {
        let answer = client
            .request_text(http::Request::get(path).body(vec![])?)
            .await;
        ensure!(answer.is_ok() == may, "{path}: {answer:?}");
    }
    Ok(Scraper::with_token(token))
}

/// Tells Prometheus of the pods that there are now.
async fn aim(fleet: &Fleet, prometheus: &Prometheus) -> Result<()> {
    prometheus
        .aim(&fleet.client(), &fleet.kubelets.processes())
        .await
}

fn reason(shadow: &BottlerocketShadow) -> Option<&str> {
    let conditions = &shadow.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing")
        .map(|found| &*found.reason)
}

/// Series that Prometheus must have, by name.
type Figures = BTreeMap<&'static str, Vector>;

/// Returns what shadows and ledger say.
async fn of_objects(fleet: &Fleet) -> Result<Figures> {
    let shadows = fleet.shadows().list(&ListParams::default()).await?.items;
    let ledger = fleet
        .ledger()
        .get(names::FLEET)
        .await?
        .status
        .context("a ledger without status")?;
    let statuses = || shadows.iter().filter_map(|shadow| shadow.status.as_ref());
    let mut states: Vector = State::ALL
        .into_iter()
        .map(|state| (state.to_string(), 0.0))
        .collect();
    states.extend(tally(
        statuses().filter_map(|status| Some(status.current_state?.to_string())),
    ));
    let versions = ledger.versions.iter();
    let failures =
        versions.map(|record| Ok((record.version.clone(), number(record.failures.len())?)));
    let halted = ledger.halted_versions.iter().flatten().count();
    let failed = shadows
        .iter()
        .filter_map(|shadow| Some(shadow.spec.last_failure.as_ref()?.reason.clone()));
    let one = |value: f64| Vector::from([(String::new(), value)]);
    Ok(BTreeMap::from([
        ("states", states),
        (
            "versions",
            tally(statuses().filter_map(|status| status.current_version.clone())),
        ),
        ("failed", tally(failed)),
        ("failures", failures.collect::<Result<_>>()?),
        ("slots", one(number(ledger.slots.len())?)),
        (
            "reasons",
            tally(
                shadows
                    .iter()
                    .filter_map(|shadow| reason(shadow).map(str::to_owned)),
            ),
        ),
        (
            "limit",
            one(number(ledger.counts.unavailable_limit.try_into()?)?),
        ),
        ("halted", one(number(halted)?)),
    ]))
}

async fn of_prometheus(prometheus: &Prometheus) -> Result<Figures> {
    let mut figures = Figures::new();
    for (figure, expression, label) in [
        ("states", "brupop_hosts_state", "state"),
        ("versions", "brupop_hosts_version", "bottlerocket_version"),
        ("failed", "brupop_nodes_failed", "reason"),
        (
            "failures",
            "brupop_version_failures",
            "bottlerocket_version",
        ),
        ("slots", "brupop_slots_in_use", ""),
        ("reasons", "brupop_nodes_reason > 0", "reason"),
        ("limit", "brupop_slots_limit", ""),
        ("halted", "brupop_halted_versions", ""),
    ] {
        figures.insert(figure, prometheus.query(expression, &[label]).await?);
    }
    Ok(figures)
}

/// Awaits that Prometheus and the objects say the same, and returns it.
async fn agree(fleet: &Fleet, prometheus: &Prometheus, when: &str) -> Result<Figures> {
    let mut last = None;
    let agreed = await_until(format!("the figures agree when {when}"), async || {
        // Drained nodes had pods of ours.
        aim(fleet, prometheus).await.ok()?;
        let (said, expected) = (of_prometheus(prometheus).await, of_objects(fleet).await);
        match (said, expected) {
            (Ok(said), Ok(expected)) if said == expected => Some(said),
            other => {
                last = Some(other);
                None
            }
        }
    });
    agreed
        .await
        .with_context(|| format!("Prometheus, and the objects: {last:#?}"))
}

async fn alerts_are(prometheus: &Prometheus, expected: &[&str]) -> Result<()> {
    let mut last = None;
    let so = await_until(format!("the alerts are {expected:?}"), async || {
        let mut alerts = prometheus.alerts().await;
        if let Ok(alerts) = &mut alerts {
            alerts.sort_unstable();
        }
        let so = alerts.as_ref().is_ok_and(|alerts| alerts == expected);
        last = Some(alerts);
        so.then_some(())
    });
    so.await.with_context(|| format!("{last:?}"))
}

fn tally(names: impl Iterator<Item = String>) -> Vector {
    let mut counts = Vector::new();
    for name in names {
        *counts.entry(name).or_default() += 1.0;
    }
    counts
}

fn number(count: usize) -> Result<f64> {
    Ok(u32::try_from(count)?.into())
}
