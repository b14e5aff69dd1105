//! What the webhook refuses of pools, and what becomes of a pool that nobody refused in time.

use anyhow::{Context as _, Result, ensure};
use brupop_api::BottlerocketPool;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{Fleet, await_until};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use serde_json::{Value, from_value, json};

use super::{apply, condition, fleet, until_pool};

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
    let pool: BottlerocketPool = from_value(
        json!({"metadata": {"name": "web"}, "spec": {"nodeSelector": {}},
        "apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool"}),
    )?;
    let refused = elsewhere
        .create(&PostParams::default(), &pool)
        .await
        .map(drop);
    let refused = refused
        .err()
        .context("a pool elsewhere was stored")?
        .to_string();
    ensure!(
        refused.contains(
            "nobody reads a BottlerocketPool in this namespace: make it in brupop-bottlerocket-aws"
        ),
        "{refused}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_means_nothing_is_refused() -> Result<()> {
    let mut fleet = fleet(&["web"], &[]).await?;
    // What the schema refuses by itself is in the tests of the definitions.
    let rows = [
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
            json!({"nodeSelector": {}, "gates": [{"name": "quiet",
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
    ];
    // The webhook is not there at once: until then, what only it refuses is stored.
    await_until("the webhook refuses", async || {
        refusal(&fleet, &windows("0 2 30 2 *", "4h", "UTC"))
            .await
            .ok()?
            .map(drop)
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
    fleet.signal("webhook", Signal::STOP);
    apply(
        &fleet,
        "bad",
        &json!({"nodeSelector": {}, "priority": 7,
        "windows": [{"schedule": "0 2 30 2 *", "duration": "4h"}]}),
    )
    .await?;
    let bad = until_pool(&fleet, "bad", "is seen", |status| {
        !status.conditions.is_empty()
    })
    .await?;
    for (type_, status) in [
        ("Accepted", "False"),
        ("Ready", "False"),
        ("Stalled", "True"),
    ] {
        ensure!(
            condition(&bad, type_) == Some((status.into(), "PoolInvalid".into())),
            "{bad:?}"
        );
    }
    fleet.publish(brupop_testbed::fleet::NEW)?;
    fleet.signal("webhook", Signal::CONT);
    fleet.until_waits("node-0", "PoolInvalid").await?;
    let said = fleet.progressing("node-0").await?.message;
    ensure!(
        said.contains("spec.windows[0].schedule: it never fires"),
        "{said}"
    );
    fleet.check()
}
