//! Somebody with the reconciler's token, once a run is at rest. Each source that the checker reads must show what is done with
//! it; otherwise the checker was blind, and what it has not found in the run says nothing.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_api::names::MARKER_ANNOTATION;
use brupop_testbed::Fleet;
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::checker::processes::logs;
use crate::checker::{Found, Violation};
use crate::people::{node_name, shadows};
use crate::watch::Watch;
use crate::world::SECRET;

/// The rule that is violated in each source, and the source.
const SOURCES: [(&str, &str); 3] = [
    ("limit", "the store's history"),
    ("writes", "the audit log"),
    ("logs", "the programs' logs"),
];
/// The time that the sources may take to show it, and how often it is done until they do.
const SEEN_WITHIN: Duration = Duration::from_secs(40);
const AGAIN: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(100);

/// The sources that do not show what somebody does with the reconciler's token.
pub(crate) async fn unseen(fleet: &Fleet, watch: &mut Watch) -> Result<Vec<Violation>> {
    println!("-- somebody has the reconciler's token now, and three sources must show it:");
    let of_the_run = std::mem::take(&mut watch.found);
    let done = until_seen(fleet, watch).await;
    let found = std::mem::replace(&mut watch.found, of_the_run);
    done?;
    let blind = |source: &str| {
        Violation::new(
            "blind",
            format!("{source} did not show a stolen token's work"),
        )
    };
    Ok(SOURCES
        .iter()
        .filter(|(rule, _)| !found.violates(rule))
        .map(|(_, source)| blind(source))
        .collect())
}

async fn until_seen(fleet: &Fleet, watch: &mut Watch) -> Result<()> {
    let reconciler = fleet
        .processes("reconciler")
        .into_iter()
        .next()
        .context("no reconciler runs")?;
    let token = fleet
        .control_plane
        .bound_token(NAMESPACE, "brupop-reconciler", &reconciler.pod)
        .await?;
    let client = fleet.control_plane.client_for_token(&token).await?;
    let began = Instant::now();
    let mut done: Option<Instant> = None;
    let is_seen = |found: &Found| SOURCES.iter().all(|(rule, _)| found.violates(rule));
    while !is_seen(&watch.found) && began.elapsed() < SEEN_WITHIN {
        if done.is_none_or(|done| done.elapsed() > AGAIN) {
            // So often that its writes are more than anybody has cause for at rest.
            misuse(&client).await?;
            misuse(&client).await?;
            done = Some(Instant::now());
        }
        sleep(LOOK).await;
        watch.look(fleet)?;
        watch
            .found
            .add(logs(&fleet.control_plane.sandbox().logs())?);
    }
    Ok(())
}

/// Cordons the first node, which has no slot, takes that back, and has the webhook log a secret.
async fn misuse(client: &Client) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let marker = r#"{"shadow_uid": "stolen", "attempt": 1, "cordoned_at": "2026-01-01T00:00:00Z"}"#;
    for (marker, cordoned) in [(Some(marker), Some(true)), (None, None)] {
        let patch = json!({"metadata": {"annotations": {MARKER_ANNOTATION: marker}}, "spec": {"unschedulable": cordoned}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        // A refusal is no failure: the sources are looked at.
        let _ = nodes.patch(&node_name(0), &params, &patch).await;
    }
    let shadow = json!({"apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
        "metadata": {"name": format!("brs-{SECRET}")}, "spec": {"state": "Idle"}});
    let dry_run = PostParams {
        dry_run: true,
        field_manager: None,
    };
    let _ = shadows(client.clone())
        .create(&dry_run, &serde_json::from_value(shadow)?)
        .await;
    Ok(())
}
