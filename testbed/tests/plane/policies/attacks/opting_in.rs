//! The reconciler and the label by which Nodes are looked after.

use super::*;

const LABEL: &str = names::UPDATER_INTERFACE_LABEL;
const BOTTLEROCKET: &str = "Bottlerocket OS 1.19.4 (aws-k8s-1.29)";

/// Hosts of which nobody has said anything, one that was left out, and another system's.
pub(super) async fn prepare(bed: &Bed) -> Result<()> {
    for (name, labels, os_image) in [
        ("host", json!({"a": "b"}), BOTTLEROCKET),
        ("bare-host", Json::Null, BOTTLEROCKET),
        ("left-out", json!({LABEL: "none"}), BOTTLEROCKET),
        (
            "debian",
            json!({}),
            "Debian GNU/Linux 13, formerly Bottlerocket OS ",
        ),
    ] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}});
        bed.must(Method::POST, NODES, &node).await?;
        let status = json!({"status": {"nodeInfo": {"osImage": os_image}}});
        bed.must(Method::PATCH, &format!("{NODES}/{name}/status"), &status)
            .await?;
    }
    Ok(())
}

fn labelled(mut patch: Json) -> Json {
    patch["metadata"]["labels"][LABEL] = json!(names::UPDATER_INTERFACE_VERSION);
    patch
}

/// What is allowed, and not, with that right and without it.
pub fn opting_in(with_the_right: bool) -> Vec<Row> {
    let labels = Policy(names::LABEL_RULE);
    let (allowed, alone) = if with_the_right {
        (Allowed, Policy("reconciler-node-opt-in"))
    } else {
        (labels, labels)
    };
    let rest = if with_the_right {
        Policy("reconciler-node-rest")
    } else {
        labels
    };
    let row = |node: &str, says, patch: Json, verdict| -> Row {
        (
            says,
            Reconciler,
            Method::PATCH,
            format!("{NODES}/{node}"),
            patch,
            verdict,
        )
    };
    let as_it_does = json!([
        {"op": "test", "path": "/status/nodeInfo/osImage", "value": BOTTLEROCKET},
        {"op": "test", "path": "/metadata/labels", "value": null},
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": "/metadata/labels/bottlerocket.aws~1updater-interface-version", "value": "2.0.0"},
    ]);
    let ours =
        json!({"spec": {"taints": [{"key": names::UPDATING_TAINT, "effect": "PreferNoSchedule"}]}});
    let excluded = labelled(label(names::EXCLUDE_FROM_LB_LABEL, "true"));
    let finalizer = labelled(json!({"metadata": {"finalizers": ["a.b/c"]}}));
    let cordoned = json!({"spec": {"unschedulable": true}});
    let taken_out = with_marker(cordoned.clone());
    vec![
        row("host", "opted in", labelled(json!({})), allowed),
        row(
            "bare-host",
            "opted in, as the reconciler does it",
            as_it_does,
            allowed,
        ),
        row(
            "host",
            "opted in with another value",
            label(LABEL, "1.0.0"),
            labels,
        ),
        row("host", "left out", label(LABEL, "none"), labels),
        row(
            "host",
            "opted in, and another label",
            labelled(label("x", "y")),
            labels,
        ),
        row(
            "host",
            "opted in, and a label changed",
            labelled(label("a", "c")),
            labels,
        ),
        row(
            "host",
            "opted in, and a label removed",
            labelled(label("a", ())),
            labels,
        ),
        row("host", "opted in and excluded", excluded, alone),
        row(
            "host",
            "opted in and marked",
            labelled(with_marker(json!({}))),
            alone,
        ),
        row("host", "opted in and cordoned", labelled(cordoned), alone),
        row("host", "opted in and tainted", labelled(ours), alone),
        row("host", "opted in with a finalizer", finalizer, rest),
        row(
            "debian",
            "another system opted in",
            labelled(json!({})),
            labels,
        ),
        row(
            "out",
            "one opted in that says nothing of itself",
            labelled(json!({})),
            labels,
        ),
        row(
            "left-out",
            "one opted in that was left out",
            labelled(json!({})),
            labels,
        ),
        row("left-out", "its word taken back", label(LABEL, ()), labels),
        row(
            "left-out",
            "out of service, left out",
            taken_out,
            Policy("reconciler-node-opted-in"),
        ),
    ]
}
