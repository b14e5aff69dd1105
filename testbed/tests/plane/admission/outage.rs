//! Tests of requests while the webhook does not answer.

use super::bed::Bed;
use anyhow::{Context as _, Result, ensure};
use brupop_admission_cases::{Actor, Host};
use brupop_testbed::await_until;
use http::Method;
use serde_json::json;
use std::time::{Duration, Instant};

/// Callers about whom the webhook is not asked do not wait for it; its time-out is 3 s.
const AT_ONCE: Duration = Duration::from_millis(1500);

/// The webhook does not answer: agents are refused, and nobody else so much as waits.
pub async fn only_agents_depend_on_the_webhook(bed: &Bed, how: &str) -> Result<()> {
    bed.idle_shadow(Host::First).await?;
    // The API server's own calls to a webhook that it has just lost are not retried by us.
    let mut last = None;
    let failing = await_until(
        format!("a refusal while the webhook is {how}"),
        async || {
            let path = format!("{}/status", bed.shadow_path(Host::First));
            match bed
                .ask(
                    Actor::Agent,
                    Method::PATCH,
                    &path,
                    &json!({"status": {"message": how}}),
                )
                .await
            {
                Ok(Err((500, message))) if message.contains("failed calling webhook") => {
                    Some(message)
                }
                answer => {
                    last = Some(answer);
                    None
                }
            }
        },
    );
    let failing = failing.await;
    println!("{how}: {}", failing.with_context(|| format!("{last:?}"))?);
    // In its marker stands whatever the reconciler changes.
    let uncordon = json!({"metadata": {"annotations": {brupop_api::names::MARKER_ANNOTATION: "{}"}},
        "spec": {"unschedulable": null}});
    let (shadow, node) = (bed.shadow_path(Host::First), "/api/v1/nodes/node-0");
    for (actor, method, path, body) in [
        (
            Actor::Admin,
            Method::PATCH,
            shadow.clone(),
            json!({"metadata": {"labels": {"by": "hand"}}}),
        ),
        (
            Actor::Admin,
            Method::PATCH,
            format!("{shadow}/status"),
            json!({"status": {"message": "by hand"}}),
        ),
        (
            Actor::Admin,
            Method::PATCH,
            node.to_owned(),
            json!({"spec": {"unschedulable": true}}),
        ),
        (Actor::Reconciler, Method::PATCH, node.to_owned(), uncordon),
    ] {
        let began = Instant::now();
        let answer = bed.ask(actor, method, &path, &body).await?;
        ensure!(answer.is_ok(), "{how}: {actor:?}: {path}: {answer:?}");
        ensure!(
            began.elapsed() < AT_ONCE,
            "{how}: {actor:?}: {path} took {:?}",
            began.elapsed()
        );
    }
    Ok(())
}
