//! Tests of the kept objects and of their parsing.

use super::*;
use crate::tests::world::{self, rows};
use brupop_api::{Item, names};
use serde_json::{Value, json};

fn node(json: Value) -> NodeFacts {
    serde_json::from_value(json).unwrap()
}

#[test]
fn the_version_is_read_out_of_the_image() {
    for (image, version) in [
        ("Bottlerocket OS 1.19.4 (aws-k8s-1.29)", Some("1.19.4")),
        (
            "Bottlerocket OS 1.20.0-rc.1+b2 (metal-k8s-1.30)",
            Some("1.20.0-rc.1+b2"),
        ),
        ("Bottlerocket OS 1.19.4", Some("1.19.4")),
        ("Bottlerocket OS ", None),
        ("Debian GNU/Linux 12", None),
        ("", None),
    ] {
        let node = node(json!({"metadata": {}, "status": {"nodeInfo": {"osImage": image}}}));
        assert_eq!(node.version.as_deref(), version, "{image}");
    }
    let longest = "v".repeat(48);
    for (of, architecture, variant) in [
        (" (aws-k8s-1.29)", "", Some("aws-k8s-1.29")),
        (" (aws-k8s-1.36)", "arm64", Some("aws-k8s-1.36-arm64")),
        (&format!(" ({longest})"), "", Some(longest.as_str())),
        (&format!(" ({longest})"), "a", None),
        (" (aws) (metal)", "", None),
        (" (aws", "", None),
        (" ()", "arm64", None),
        ("", "arm64", None),
    ] {
        let image = format!("Bottlerocket OS 1.19.4{of}");
        let info = json!({"osImage": image, "architecture": architecture});
        let node = node(json!({"metadata": {}, "status": {"nodeInfo": info}}));
        assert_eq!(node.variant.as_deref(), variant, "{image}");
    }
}

#[test]
fn a_patch_quotes_what_was_read() {
    let taint = json!({"key": "a", "effect": "NoExecute", "timeAdded": "2026-11-21T04:00:00.5Z", "novel": 1});
    let node = node(json!({
        "metadata": {"name": "n", "uid": "u", "labels": {}, "managedFields": []},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [taint]},
    }));
    assert_eq!(
        node.quoted(),
        json!({"metadata": {"uid": "u", "labels": {}}, "spec": {"taints": [taint]}}),
        "labels are there; annotations are not"
    );
}

#[test]
fn heartbeats_change_nothing() {
    let beat = |version: &str, time: &str, ready: &str| {
        node(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": version},
            "status": {"conditions": [
                {"type": "Ready", "status": ready, "lastHeartbeatTime": time},
                {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": time},
            ]},
        }))
    };
    let first = beat("1", "2026-11-21T04:00:00Z", "True");
    assert_eq!(first, beat("2", "2026-11-21T04:05:00Z", "True"));
    assert_ne!(first, beat("2", "2026-11-21T04:05:00Z", "False"));
}

#[test]
fn an_unreadable_marker_is_an_error() {
    let with = |marker: &str| {
        node(json!({"metadata": {"annotations": {names::MARKER_ANNOTATION: marker, "other": "x"}}}))
    };
    let unreadable = with("[]").marker.unwrap().unwrap_err();
    assert!(
        unreadable.contains(names::MARKER_ANNOTATION),
        "{unreadable}"
    );
    let read = with(r#"{"shadow_uid":"u","attempt":3}"#);
    assert_eq!(read.marker().unwrap().attempt, 3);
}

#[test]
fn soft_cluster_autoscaler_taint_does_not_hold_node() {
    for (taint, leaves) in rows! {
        "DeletionCandidateOfClusterAutoscaler" => false;
        "ToBeDeletedByClusterAutoscaler" => true;
        "karpenter.sh/disrupted" => true;
        "aws-node-termination-handler/spot-itn" => true;
        "aws-node-termination-handler/scheduled-maintenance" => true;
        "aws-node-termination-handler/asg-lifecycle-termination" => true;
        "aws-node-termination-handler/rebalance-recommendation" => true;
        "example.com/other" => false;
    } {
        let taints = json!([{"key": taint, "effect": "PreferNoSchedule"}]);
        let node = node(json!({"metadata": {}, "spec": {"taints": taints}}));
        assert_eq!(node.leaving, leaves, "{taint}");
    }
}

#[test]
fn a_pod_asks_not_to_be_disrupted_in_the_words_of_autoscalers() {
    let (karpenter, autoscaler) = (
        names::DO_NOT_DISRUPT_ANNOTATION,
        names::SAFE_TO_EVICT_ANNOTATION,
    );
    for (annotations, asks) in [
        (json!(null), None),
        (json!({"a": "true"}), None),
        (json!({karpenter: "true"}), Some(karpenter)),
        (json!({karpenter: "false"}), None),
        (json!({autoscaler: "false"}), Some(autoscaler)),
        (json!({autoscaler: "true"}), None),
        (
            json!({autoscaler: "false", karpenter: "false"}),
            Some(autoscaler),
        ),
    ] {
        let pod: Item<Pod> =
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        let pod = pod.body.unwrap();
        assert_eq!(
            (pod.do_not_disrupt, pod.is_mirror),
            (asks, false),
            "{annotations}"
        );
    }
}

#[test]
fn a_pod_tolerates_the_cordon_by_any_matching_toleration() {
    let key = "node.kubernetes.io/unschedulable";
    for (toleration, tolerates) in rows! {
        json!({"operator": "Exists"}) => true;
        json!({"operator": "Exists", "effect": "NoExecute"}) => false;
        json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}) => true;
        json!({"key": key}) => true;
        json!({"key": key, "operator": "Equal", "value": "x"}) => false;
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}) => false;
    } {
        let pod = world::pod("a", json!({"spec": {"tolerations": [{}, toleration]}}));
        assert_eq!(
            pod.ok().unwrap().tolerates_cordon,
            tolerates,
            "{toleration}"
        );
    }
}
