//! A change of the configuration replaces the pods that it concerns, and no others; what is left over can be pruned.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, throw_away_overlay};
use brupop_testbed::read;
use brupop_testbed::{ControlPlane, Options};
use serde_json::{Value as Json, json};

use crate::overlays::apply;

const RECONCILER: &str = "brupop-configuration";
const WEBHOOK: &str = "brupop-webhook-configuration";
const AGENT: &str = "brupop-agent-configuration";
const PRUNE: &[&str] = &[
    "--prune",
    "-l",
    "app.kubernetes.io/part-of=brupop",
    "--prune-allowlist=core/v1/ConfigMap",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_rolls_what_it_concerns() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    let overlay = |map: &str, key: &str, value: &str| {
        let patch = json!([{"op": "add", "path": format!("/data/{key}"), "value": value}]);
        let kustomization = json!({
            "resources": ["kustomize/overlays/default"],
            "patches": [{"target": {"kind": "ConfigMap", "name": map}, "patch": patch.to_string()}],
        });
        throw_away_overlay(
            &control_plane,
            &format!("{key}-{value}").to_lowercase(),
            kustomization,
        )
    };
    let mut before = BTreeMap::new();
    for (map, key, value, rolled) in [
        (
            RECONCILER,
            "MAX_CONCURRENT_UPDATE",
            "1",
            &["agent", "reconciler", "webhook"][..],
        ),
        (RECONCILER, "MAX_CONCURRENT_UPDATE", "1", &[]),
        (RECONCILER, "MAX_CONCURRENT_UPDATE", "3", &["reconciler"]),
        (WEBHOOK, "LINGER_SECONDS", "9", &["reconciler", "webhook"]),
        (AGENT, "PREFETCH", "true", &["agent", "webhook"]),
        (AGENT, "PREFETCH", "false", &["agent"]),
    ] {
        apply(&control_plane, &[], "-k", &overlay(map, key, value)?).await?;
        let now = generations(&control_plane).await?;
        let changed = now
            .iter()
            .filter(|(name, generation)| before.get(*name) != Some(*generation));
        let changed: BTreeSet<_> = changed.map(|(name, _)| name.as_str()).collect();
        ensure!(
            changed == rolled.iter().copied().collect(),
            "{key}={value} replaced {changed:?}"
        );
        before = now;
    }

    // Somebody's own, and one without a hash, as it was shipped before.
    let unhashed = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": RECONCILER, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "brupop"}},
    });
    let others = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "others", "namespace": NAMESPACE},
    });
    let file = crate::overlays::documents(&control_plane, "left-over", &[unhashed, others])?;
    apply(&control_plane, &[], "-f", &file).await?;
    ensure!(
        maps(&control_plane).await?.len() == 9,
        "{:?}",
        maps(&control_plane).await?
    );
    ensure!(
        read("docs/install.md")?.contains(&PRUNE.join(" ")),
        "docs/install.md has it otherwise"
    );
    apply(
        &control_plane,
        PRUNE,
        "-k",
        &overlay(AGENT, "PREFETCH", "false")?,
    )
    .await?;
    let left = maps(&control_plane).await?;
    let of = |map: &str| {
        left.iter()
            .filter(|name| name.starts_with(&format!("{map}-")))
            .count()
    };
    ensure!(
        left.len() == 4 && [RECONCILER, WEBHOOK, AGENT].iter().all(|map| of(map) == 1),
        "{left:?}"
    );
    ensure!(
        generations(&control_plane).await? == before,
        "pruning replaced pods"
    );
    Ok(())
}

/// Of the three workloads, by component: it grows when pods are to be replaced.
async fn generations(control_plane: &ControlPlane) -> Result<BTreeMap<String, i64>> {
    let listed = control_plane
        .kubectl([
            "get",
            "deployments,daemonsets",
            "-n",
            NAMESPACE,
            "-o",
            "json",
        ])
        .await?;
    let listed: Json = serde_json::from_str(&listed)?;
    let items = listed["items"].as_array().context("no list")?.iter();
    items
        .map(|object| {
            let component = &object["metadata"]["labels"]["app.kubernetes.io/component"];
            let generation = object["metadata"]["generation"]
                .as_i64()
                .context("no generation")?;
            Ok((
                component.as_str().context("no component")?.to_owned(),
                generation,
            ))
        })
        .collect()
}

/// Names of the `ConfigMap` objects in the operator's namespace.
async fn maps(control_plane: &ControlPlane) -> Result<Vec<String>> {
    let names = [
        "get",
        "configmaps",
        "-n",
        NAMESPACE,
        "-o",
        "custom-columns=NAME:.metadata.name",
        "--no-headers",
    ];
    Ok(control_plane
        .kubectl(names)
        .await?
        .lines()
        .map(str::to_owned)
        .collect())
}
