//! Tests of requests while the webhook does not answer.

use super::bed::Bed;
use anyhow::{Context as _, Result, ensure};
use brupop_admission_cases::{Actor, Host};
use brupop_testbed::await_until;
use serde_json::json;
use std::time::{Duration, Instant};

/// Callers about whom the webhook is not asked do not wait for it; its time-out is 3 s.
const AT_ONCE: Duration = Duration::from_millis(1500);

/// The webhook does not answer: agents are refused, and nobody else so much as waits.
pub async fn only_agents_depend_on_the_webhook(bed: &Bed, how: &str) -> Result<()> {
    bed.idle_shadow(Host::First).await?;
    // The API server's own calls to a webhook that it has just lost are not retried by us.
    let mut last = None;
    let (shadow, node) = (bed.shadow_path(Host::First), "/api/v1/nodes/node-0");
    let status = format!("{shadow}/status");
    let what = format!("a refusal while the webhook is {how}");
    let failing = await_until(what, async || {
        let news = json!({"status": {"message": how}});
        let answer = bed.patch(Actor::Agent, &status, &news).await;
        let fails = matches!(&answer, Ok(Err((500, message))) if message.contains("failed calling webhook"));
        last = Some(answer);
        fails.then_some(())
    });
    failing.await.with_context(|| format!("{last:?}"))?;
    // In its marker stands whatever the reconciler changes.
    let uncordon = json!({"metadata": {"annotations": {brupop_api::names::MARKER_ANNOTATION: "{}"}},
        "spec": {"unschedulable": null}});
    let label = json!({"metadata": {"labels": {"by": "hand"}}});
    let message = json!({"status": {"message": "by hand"}});
    let cordon = json!({"spec": {"unschedulable": true}});
    for (actor, path, body) in [
        (Actor::Admin, shadow.as_str(), label),
        (Actor::Admin, &status, message),
        (Actor::Admin, node, cordon),
        (Actor::Reconciler, node, uncordon),
    ] {
        let began = Instant::now();
        let answer = bed.patch(actor, path, &body).await?;
        let took = began.elapsed();
        ensure!(answer.is_ok(), "{how}: {actor:?}: {path}: {answer:?}");
        ensure!(took < AT_ONCE, "{how}: {actor:?}: {path} took {took:?}");
    }
    Ok(())
}
