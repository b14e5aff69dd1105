//! Nodes to which their kubelet has given as many labels and annotations as fit.

use super::attacks::{self, ALLOWED, Row, with_marker};
use super::bed::{Actor, Bed};
use anyhow::{Result, ensure};
use brupop_api::names;
use http::Method;
use serde_json::{Map, Value as Json, json};
use std::time::Instant;

/// About what etcd stores of one object.
const MANY: usize = 60_000;
/// The reconciler does not begin with a Node that has more.
const USUAL: usize = 1_000;

fn path(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

/// A Node that has opted in, with this many labels or annotations that its kubelet gave it.
async fn flooded(bed: &Bed, node: &str, kind: &str, count: usize) -> Result<()> {
    let labels = json!({names::UPDATER_INTERFACE_LABEL: "2.0.0"});
    let new =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}});
    bed.must(Method::POST, "/api/v1/nodes", &new).await?;
    // A new Node gets the taint `not-ready` from the API server.
    let untainted = json!({"spec": {"taints": null}});
    bed.must(Method::PATCH, &path(node), &untainted).await?;
    let flood: Map<String, Json> = (0..count)
        .map(|at| (format!("{at:04x}"), json!("")))
        .collect();
    let body = json!({"metadata": {kind: flood}});
    let answer = bed.patch_as(node, &path(node), &body).await?;
    ensure!(answer.code == 200, "{}", answer.message());
    Ok(())
}

/// Returns what is tried on such a Node: a patch, and what comes of it.
fn tries(node: &str, actor: Actor, says: &str, body: Json, verdict: &str) -> Row {
    Row {
        says: says.to_owned(),
        actor,
        method: Method::PATCH,
        path: path(node),
        body,
        verdict: verdict.to_owned(),
    }
}

/// Returns what the reconciler tries: what it does on every Node, and what has to do with this kind.
fn rows(node: &str, kind: &str) -> Vec<Row> {
    let marked = |says, patch: Json, verdict| {
        tries(node, Actor::Reconciler, says, with_marker(patch), verdict)
    };
    let changed = |key: &str, value: Json| json!({"metadata": {kind: {key: value}}});
    let taint = json!([{"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"}]);
    let cordoned = json!({"spec": {"unschedulable": true, "taints": taint}});
    let rule = format!("reconciler-node-{kind}");
    let mut rows = vec![
        marked("cordon, taint and marker", cordoned, ALLOWED),
        marked("one added", changed("x", json!("y")), &rule),
    ];
    if kind == "labels" {
        let excluded = changed(names::EXCLUDE_FROM_LB_LABEL, json!("true"));
        let left = changed(names::UPDATER_INTERFACE_LABEL, Json::Null);
        rows.extend([
            marked("exclusion and marker", excluded, ALLOWED),
            marked("a label removed", left, &rule),
        ]);
    }
    rows
}

/// On such Nodes the reconciler may do what it may do on others, and no more. Prints how long each takes.
pub async fn check(bed: &Bed) -> Result<()> {
    for (kind, count) in [
        ("labels", USUAL),
        ("annotations", USUAL),
        ("labels", MANY),
        ("annotations", MANY),
    ] {
        let node = format!("{count}-{kind}");
        flooded(bed, &node, kind, count).await?;
        let cordon = json!({"spec": {"unschedulable": true}});
        let by_hand = tries(&node, Actor::Admin, "a cordon by hand", cordon, ALLOWED);
        // A refusal of one of the largest proves nothing: too costly a rule refuses, too.
        for row in rows(&node, kind)
            .iter()
            .filter(|row| count == USUAL || row.verdict == ALLOWED)
            .chain([&by_hand])
        {
            let began = Instant::now();
            attacks::check(bed, row).await?;
            println!(
                "a Node with {count} {kind}: {}: {:.2} s",
                row.says,
                began.elapsed().as_secs_f32()
            );
        }
    }
    Ok(())
}
