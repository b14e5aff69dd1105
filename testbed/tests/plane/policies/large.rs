//! Nodes to which their kubelet has given as many labels and annotations as fit.

use super::attacks::{self, Row, Verdict, annotation, label, with_marker};
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
    bed.must(
        Method::PATCH,
        &path(node),
        &json!({"spec": {"taints": null}}),
    )
    .await?;
    let flood: Map<String, Json> = (0..count)
        .map(|at| (format!("{at:04x}"), json!("")))
        .collect();
    let body = json!({"metadata": {kind: flood}});
    let kubelet = format!("system:node:{node}");
    let answer = bed
        .ask(
            Actor::Admin,
            Some(&kubelet),
            Method::PATCH,
            &path(node),
            &body,
        )
        .await?;
    ensure!(answer.code == 200, "{}", answer.message());
    Ok(())
}

/// What the reconciler tries on such a Node: what it does on every Node, and what has to do with this kind.
fn rows(node: &str, kind: &str) -> Vec<Row> {
    let marked = |says, patch: Json, verdict| -> Row {
        (
            says,
            Actor::Reconciler,
            Method::PATCH,
            path(node),
            with_marker(patch),
            verdict,
        )
    };
    let taint = json!([{"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"}]);
    let cordoned = json!({"spec": {"unschedulable": true, "taints": taint}});
    let mut rows = vec![marked(
        "cordon, taint and marker",
        cordoned,
        Verdict::Allowed,
    )];
    if kind == "labels" {
        let rule = Verdict::Policy("reconciler-node-labels");
        rows.extend([
            marked(
                "exclusion and marker",
                label(names::EXCLUDE_FROM_LB_LABEL, "true"),
                Verdict::Allowed,
            ),
            marked("a label added", label("x", "y"), rule),
            marked(
                "a label removed",
                label(names::UPDATER_INTERFACE_LABEL, ()),
                rule,
            ),
        ]);
    } else {
        let rule = Verdict::Policy("reconciler-node-annotations");
        rows.push(marked("an annotation added", annotation("x", "y"), rule));
    }
    rows
}

/// On such Nodes the reconciler may do what it may do on others, and no more. Prints how long each takes.
pub async fn check(bed: &Bed) -> Result<()> {
    let nodes = [
        ("labels", USUAL),
        ("annotations", USUAL),
        ("labels", MANY),
        ("annotations", MANY),
    ];
    for (kind, count) in nodes {
        let node = format!("{count}-{kind}");
        flooded(bed, &node, kind, count).await?;
        // A refusal of one of the largest proves nothing: too costly a rule refuses, too.
        for row in rows(&node, kind)
            .iter()
            .filter(|row| count == USUAL || row.5 == Verdict::Allowed)
        {
            let began = Instant::now();
            attacks::check(bed, row).await?;
            println!(
                "a Node with {count} {kind}: {}: {:.2} s",
                row.0,
                began.elapsed().as_secs_f32()
            );
        }
        let body = json!({"spec": {"unschedulable": true}});
        let row = (
            "a cordon",
            Actor::Admin,
            Method::PATCH,
            path(&node),
            body,
            Verdict::Allowed,
        );
        let began = Instant::now();
        attacks::check(bed, &row).await?;
        println!(
            "a Node with {count} {kind}: a cordon by hand: {:.2} s",
            began.elapsed().as_secs_f32()
        );
    }
    Ok(())
}
