//! Nodes that the operator does not manage, and may opt in.

use kube::Resource as _;
use std::collections::BTreeMap;

use super::*;
use crate::cluster::Watched as _;
use crate::objects::WatchedNode;
use brupop_api::names;
use brupop_api::{BottlerocketShadow, Item};
use serde_json::{Value, json};

const NOW: &str = "2026-11-21T04:00:00Z";
const MARKER: &str = r#"{"shadow_uid":"u","attempt":1}"#;

fn node(name: &str, label: Option<&str>, annotations: &Value, created: &str) -> WatchedNode {
    let labels = label.map(|value| BTreeMap::from([(names::UPDATER_INTERFACE_LABEL, value)]));
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("node-{name}"), "labels": labels, "annotations": annotations,
            "creationTimestamp": created},
        "status": {"nodeInfo": {"osImage": "Debian GNU/Linux 13"}},
    }))
    .unwrap()
}

#[test]
fn unmanaged_nodes_carry_nothing_of_ours() {
    let (old, new) = ("2026-11-21T03:00:00Z", "2026-11-21T03:59:00Z");
    let long = "n".repeat(names::NODE_NAME_MAX + 1);
    let none = json!({});
    let nodes = [
        node("bare", None, &none, old),
        node("has-a-shadow", None, &none, old),
        node("in", Some("2.0.0"), &none, old),
        node("marked", None, &json!({names::MARKER_ANNOTATION: MARKER}), old),
        node("new", None, &none, new),
        node("other", Some("none"), &none, old),
        node(&long, None, &none, old),
    ];
    let mut cluster = Cluster::default();
    for node in nodes {
        node.put(&mut cluster);
    }
    let shadow = json!({"apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
        "metadata": {"name": "brs-has-a-shadow"}, "spec": {"state": "Dreaming"}});
    let shadow: Item<BottlerocketShadow> = serde_json::from_value(shadow).unwrap();
    shadow.put(&mut cluster);

    let (unmanaged_nodes, next) = cluster.unmanaged_nodes(SignedDuration::from_mins(5), NOW.parse().unwrap());
    let seen: Vec<_> = unmanaged_nodes.iter().map(|one| (one.name, one.label, one.young)).collect();
    assert_eq!(seen, [("bare", None, false), ("new", None, true), ("other", Some("none"), false)]);
    assert_eq!(
        unmanaged_nodes[0],
        UnmanagedNode {
            shadow_name: "brs-bare",
            name: "bare",
            uid: "node-bare",
            label: None,
            os_image: "Debian GNU/Linux 13",
            young: false,
        }
    );
    assert_eq!(next, Some("2026-11-21T04:04:00Z".parse().unwrap()), "when the new one is old enough");
}

#[test]
fn bottlerocket_nodes_that_are_not_opted_in_are_counted() {
    let runs = |name: &str, label, os_image: &str| {
        let mut node = node(name, label, &json!({}), NOW);
        os_image.clone_into(&mut node.facts.os_image);
        node
    };
    let bottlerocket = "Bottlerocket OS 1.19.4 (aws-k8s-1.29)";
    let mut cluster = Cluster::default();
    let nodes = [
        runs("in", Some("2.0.0"), bottlerocket),
        runs("out", Some("none"), bottlerocket),
        runs("unlabelled", None, bottlerocket),
        runs("other", None, "Debian GNU/Linux 13"),
    ];
    cluster.replace(nodes);
    let (known, leader) = (Known::default(), Leader { term: 1, enforced: true, alone: true, own_node: None });
    let now = Now { time: NOW.parse().unwrap(), text: NOW };
    let policy = Policy::default();
    let pools = pools_at(&cluster, &known, &policy, now.time);
    let observed = observe(&cluster, &known, &pools, &policy, &leader, now);
    assert_eq!(observed.not_opted_in, 2);
    assert_eq!(decide::fleet(&observed).counts.not_opted_in, 2);
}
