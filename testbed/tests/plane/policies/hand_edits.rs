//! What people are told of edits that will be overwritten.

use super::attacks::annotation;
use super::bed::{Actor, Bed};
use anyhow::{Result, ensure};
use brupop_api::{BottlerocketFleet, BottlerocketPool, BottlerocketShadow, names};
use http::Method;
use kube::Resource as _;
use serde_json::{Value as Json, json};

/// Users that are not people, whatever their rights.
const MACHINES: [&str; 5] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:kube-controller-manager",
    "system:node:edited",
    "system:apiserver",
];

/// A Node, its shadow and a pool, to be edited.
async fn prepare(bed: &Bed, shadows: &str) -> Result<()> {
    let labels = json!({names::UPDATER_INTERFACE_LABEL: "2.0.0"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edited", "labels": labels}});
    bed.must(Method::POST, "/api/v1/nodes", &node).await?;
    let shadow = json!({"apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": "brs-edited"}, "spec": {"state": "Idle"}});
    bed.must(Method::POST, shadows, &shadow).await?;
    let pool = json!({"apiVersion": BottlerocketPool::api_version(&()), "kind": "BottlerocketPool",
        "metadata": {"name": "edited"}, "spec": {"nodeSelector": {}}});
    bed.must(
        Method::POST,
        &bed.ours(&BottlerocketPool::api_version(&()), "bottlerocketpools"),
        &pool,
    )
    .await?;
    Ok(())
}

/// Each edit goes through; people are told the words, machines nothing.
pub async fn check(bed: &Bed) -> Result<()> {
    let shadows = bed.ours(&BottlerocketShadow::api_version(&()), "bottlerocketshadows");
    let (shadow, fleet) = (
        format!("{shadows}/brs-edited"),
        bed.ours(
            &BottlerocketFleet::api_version(&()),
            "bottlerocketfleets/fleet",
        ),
    );
    let node = "/api/v1/nodes/edited".to_owned();
    prepare(bed, &shadows).await?;
    let pause = "kubectl annotate node edited brupop.bottlerocket.aws/pause=true";
    let [pause_all, pause_pool] = ["brf fleet", "brp edited"].map(|object| {
        format!(
            "kubectl patch {object} -n {} --type=merge -p '{{\"spec\":{{\"paused\":true}}}}'",
            bed.namespace
        )
    });
    let pool = bed.ours(
        &BottlerocketPool::api_version(&()),
        "bottlerocketpools/edited",
    );
    let [shadow_status, pool_status, ledger, node_status] =
        [&shadow, &pool, &fleet, &node].map(|path| format!("{path}/status"));
    let spec = |spec: Json| json!({"spec": spec});
    let status = |status: Json| json!({"status": status});
    let marker = |value: Json| annotation(names::MARKER_ANNOTATION, value);
    let paused = annotation(names::PAUSE_ANNOTATION, "true");
    let version = spec(json!({"version": "1.2.3"}));
    let uncordon = "kubectl uncordon edited";
    let edits: [(&str, &str, Json, &[&str]); 14] = [
        (
            "a spec",
            &shadow,
            version.clone(),
            &["by-hand-spec", pause, &pause_all, "update-now"],
        ),
        ("a spec as it was", &shadow, version, &[]),
        (
            "a label of a shadow",
            &shadow,
            json!({"metadata": {"labels": {"a": "b"}}}),
            &[],
        ),
        (
            "a status",
            &shadow_status,
            status(json!({"message": "m"})),
            &["by-hand-status", pause],
        ),
        ("a pool's pause", &pool, spec(json!({"paused": true})), &[]),
        (
            "a pool's status",
            &pool_status,
            status(json!({"nodes": 7})),
            &["by-hand-pool", &pause_pool],
        ),
        (
            "the fleet's pause",
            &fleet,
            spec(json!({"paused": true})),
            &[],
        ),
        (
            "the ledger",
            &ledger,
            status(json!({"term": 7})),
            &["by-hand-fleet", &pause_all],
        ),
        (
            "a marker",
            &node,
            marker(json!("{}")),
            &["by-hand-marker", pause],
        ),
        ("a pause", &node, paused, &[]),
        ("a cordon", &node, spec(json!({"unschedulable": true})), &[]),
        (
            "our cordon's end",
            &node,
            spec(json!({"unschedulable": null})),
            &["by-hand-uncordon", pause],
        ),
        (
            "a marker's end",
            &node,
            marker(Json::Null),
            &["by-hand-marker", uncordon],
        ),
        (
            "a Node's status",
            &node_status,
            status(json!({"phase": "Running"})),
            &[],
        ),
    ];
    for (says, path, body, words) in &edits {
        for machine in MACHINES {
            // Of a kubelet, NodeRestriction lets through what is its own Node's.
            let dry = format!("{path}?dryRun=All");
            let answer = bed
                .ask(Actor::Admin, Some(machine), Method::PATCH, &dry, body)
                .await?;
            ensure!(
                answer.warnings.is_empty(),
                "{machine}: {says}: {:?}",
                answer.warnings
            );
            let is_kubelet = machine.starts_with("system:node:");
            ensure!(
                answer.code == 200 || is_kubelet,
                "{machine}: {says}: {answer:?}"
            );
        }
        let answer = bed
            .ask(Actor::Admin, None, Method::PATCH, path, body)
            .await?;
        ensure!(answer.code == 200, "{says}: {answer:?}");
        told(says, &answer.warnings, words)?;
        let stored = bed.must(Method::GET, path, &Json::Null).await?;
        let mut expected = stored.clone();
        json_patch::merge(&mut expected, body);
        ensure!(stored == expected, "{says}: not stored: {stored}");
    }
    deletions(bed, &shadow, &fleet, pause, &pause_all).await
}

/// Deletions go through, too.
async fn deletions(
    bed: &Bed,
    shadow: &str,
    fleet: &str,
    pause: &str,
    pause_all: &str,
) -> Result<()> {
    for machine in MACHINES
        .iter()
        .filter(|user| !user.starts_with("system:node:"))
    {
        let dry = format!("{shadow}?dryRun=All");
        let answer = bed
            .ask(
                Actor::Admin,
                Some(machine),
                Method::DELETE,
                &dry,
                &Json::Null,
            )
            .await?;
        ensure!(
            answer.code == 200 && answer.warnings.is_empty(),
            "{machine}: {answer:?}"
        );
    }
    // A service account of somebody's pipeline is as good as a person.
    let pipeline = "system:serviceaccount:ci:deployer";
    for (path, words) in [
        (shadow, ["by-hand-delete", pause]),
        (fleet, ["by-hand-fleet", pause_all]),
    ] {
        let answer = bed
            .ask(
                Actor::Admin,
                Some(pipeline),
                Method::DELETE,
                path,
                &Json::Null,
            )
            .await?;
        ensure!(answer.code == 200, "{path}: {answer:?}");
        told(path, &answer.warnings, &words)?;
        let gone = bed
            .ask(Actor::Admin, None, Method::GET, path, &Json::Null)
            .await?;
        ensure!(gone.code == 404, "{path} is still there");
    }
    Ok(())
}

fn told(says: &str, warnings: &[String], words: &[&str]) -> Result<()> {
    if words.is_empty() {
        ensure!(warnings.is_empty(), "{says}: {warnings:?}");
        return Ok(());
    }
    let [warning] = warnings else {
        anyhow::bail!("{says}: not one warning: {warnings:?}")
    };
    let missing = words.iter().find(|word| !warning.contains(**word));
    ensure!(missing.is_none(), "{says}: {warning} lacks {missing:?}");
    Ok(())
}
