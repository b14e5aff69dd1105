//! What the API server, the policy and the webhook refuse, and what becomes of a pool that nobody refused in time.

use anyhow::{Context as _, Result, ensure};
use brupop_api::BottlerocketPool;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use serde_json::{Value, from_value, json};

use super::{DEADLINE, apply, condition, fleet, until_pool, waits};

fn windows(schedule: &str, duration: &str, zone: &str) -> Value {
    json!({"nodeSelector": {}, "windows": [{"schedule": schedule, "duration": duration, "timeZone": zone}]})
}

/// What kubectl shows to somebody who makes this pool; `None` if it was made.
async fn refusal(fleet: &Fleet, spec: &Value) -> Result<Option<String>> {
    match apply(fleet, "tried", spec).await {
        Ok(()) => Ok(None),
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
            _ => Err(error),
        },
    }
}

/// A pool in another namespace, which nobody would read, is refused.
async fn none_elsewhere(fleet: &Fleet) -> Result<()> {
    let elsewhere = Api::namespaced(fleet.client(), "default");
    let pool: BottlerocketPool =
        from_value(json!({"metadata": {"name": "web"}, "spec": {"nodeSelector": {}},
        "apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool"}))?;
    let refused = elsewhere.create(&PostParams::default(), &pool).await.map(drop);
    let refused = refused.err().context("a pool elsewhere was stored")?.to_string();
    ensure!(refused.contains("pool-namespace: nobody reads"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_means_nothing_is_refused() -> Result<()> {
    let mut fleet = fleet(&["web"], &[]).await?;
    let requires = |operator: &str, values: Value| json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}});
    let freeze = |start: &str, end: &str| json!({"nodeSelector": {}, "freezes": [{"name": "x", "start": start, "end": end}]});
    let rows = [
        ("no selector", json!({}), "spec.nodeSelector: Required value"),
        ("In without values", requires("In", json!([])), "In and NotIn need values"),
        ("Exists with values", requires("Exists", json!(["b"])), "In and NotIn need values"),
        ("another operator", requires("Gt", json!(["1"])), "Unsupported value"),
        ("a limit of none", json!({"nodeSelector": {}, "maxUnavailable": 0}), "write a number from 1"),
        ("101%", json!({"nodeSelector": {}, "maxUnavailable": "101%"}), "write a number from 1"),
        ("a word", json!({"nodeSelector": {}, "maxUnavailable": "all"}), "write a number from 1"),
        ("a priority", json!({"nodeSelector": {}, "priority": 1001}), "less than or equal to 1000"),
        (
            "a freeze that ends first",
            freeze("2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            "start comes before end",
        ),
        ("a freeze without offset", freeze("2027-01-01", "2028-01-01"), "write a time with its offset"),
        (
            "a schedule of four fields",
            windows("0 2 * *", "4h", "UTC"),
            "write five fields (minute hour day month weekday)",
        ),
        (
            "a schedule with seconds",
            windows("*/2 * * * * * *", "168h", "UTC"),
            "write five fields (minute hour",
        ),
        (
            "the 30th of February",
            windows("0 2 30 2 *", "4h", "UTC"),
            "spec.windows[0].schedule: it never fires",
        ),
        (
            "a city",
            windows("0 2 * * *", "4h", "Berlin"),
            "spec.windows[0].timeZone: write a name of the IANA database",
        ),
        (
            "eight days",
            windows("0 2 * * *", "192h", "UTC"),
            "spec.windows[0].duration: write hours, minutes and seconds from 1s up to 168h",
        ),
        (
            "an expression of blanks",
            json!({"nodeSelector": {}, "gates": [{"name": "quiet", "type": "Prometheus",
                "prometheus": {"source": "main", "query": "  "}}]}),
            "spec.gates[0].prometheus.query: write an expression of PromQL",
        ),
        (
            "half a year",
            json!({"nodeSelector": {}, "versions": {"minAge": "4380h"}}),
            "spec.versions.minAge: write hours, minutes and seconds up to 2160h",
        ),
        (
            "no time to drain",
            json!({"nodeSelector": {}, "drain": {"timeout": "0s"}}),
            "spec.drain.timeout: write hours, minutes and seconds from 1s",
        ),
        ("no duration", windows("0 2 * * *", "soon", "UTC"), "write hours, minutes and seconds, such as 24h"),
    ];
    // The webhook is not there at once: until then, what only it refuses is stored.
    await_until("the webhook refuses", DEADLINE, async || {
        refusal(&fleet, &windows("0 2 30 2 *", "4h", "UTC")).await.ok()?.map(drop)
    })
    .await?;
    for (what, spec, sentence) in rows {
        let refused = refusal(&fleet, &spec).await?;
        let refused = refused.with_context(|| format!("{what} was stored"))?;
        ensure!(refused.contains(sentence), "{what}: {refused}");
    }
    let good = windows("0 2 * * SAT", "4h", "Europe/Berlin");
    ensure!(refusal(&fleet, &good).await?.is_none());

    none_elsewhere(&fleet).await?;

    // With the webhook away, a pool is stored, and holds its nodes.
    for webhook in fleet.processes("webhook") {
        fleet.kubelets.signal(NAMESPACE, &webhook.pod, Signal::STOP);
    }
    apply(
        &fleet,
        "bad",
        &json!({"nodeSelector": {}, "priority": 7,
        "windows": [{"schedule": "0 2 30 2 *", "duration": "4h"}]}),
    )
    .await?;
    let bad = until_pool(&fleet, "bad", "is seen", |status| !status.conditions.is_empty()).await?;
    for (type_, status) in [("Accepted", "False"), ("Ready", "False"), ("Stalled", "True")] {
        ensure!(condition(&bad, type_) == Some((status.into(), "PoolInvalid".into())), "{bad:?}");
    }
    fleet.publish(brupop_testbed::fleet::NEW)?;
    for webhook in fleet.processes("webhook") {
        fleet.kubelets.signal(NAMESPACE, &webhook.pod, Signal::CONT);
    }
    waits(&fleet, "node-0", "PoolInvalid").await?;
    let said = fleet.progressing("node-0").await?.message;
    ensure!(said.contains("spec.windows[0].schedule: it never fires"), "{said}");
    fleet.check()
}
