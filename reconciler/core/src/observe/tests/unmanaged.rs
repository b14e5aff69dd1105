//! Nodes that the operator does not manage, and may opt in.

#![allow(
    clippy::needless_pass_by_value,
    reason = "JSON is written where it is used"
)]

use super::*;
use crate::cluster::Watched as _;
use crate::objects::NodeFacts;

/// A node that runs this and has this value of the label, if any.
fn node(
    name: &str,
    label: Option<&str>,
    os_image: &str,
    more: Value,
) -> brupop_api::Item<NodeFacts> {
    let created = json!({"metadata": {"creationTimestamp": "2026-11-21T03:00:00Z"}});
    let mut change = with(
        with(
            created,
            &json!({"status": {"nodeInfo": {"osImage": os_image}}}),
        ),
        &more,
    );
    change["metadata"]["labels"] = json!({names::UPDATER_INTERFACE_LABEL: label});
    super::node(name, change)
}

#[test]
fn unmanaged_nodes_carry_nothing_of_ours() {
    const DEBIAN: &str = "Debian GNU/Linux 13";
    let long = "n".repeat(names::NODE_NAME_MAX + 1);
    let young = json!({"metadata": {"creationTimestamp": "2026-11-21T03:59:00Z"}});
    let ours = marked(json!({"shadow_uid": "u", "attempt": 1}));
    let mut cluster = cluster(
        [],
        [("brs-has-a-shadow", json!({"state": "Dreaming"}), json!({}))],
    );
    for (name, label, more) in [
        ("bare", None, json!({})),
        ("has-a-shadow", None, json!({})),
        ("in", Some("2.0.0"), json!({})),
        ("marked", None, ours),
        ("new", None, young),
        ("other", Some("none"), json!({})),
        (&*long, None, json!({})),
    ] {
        node(name, label, DEBIAN, more).put(&mut cluster);
    }
    let (unmanaged_nodes, next) = cluster.unmanaged_nodes(SignedDuration::from_mins(5), at(NOW));
    let seen: Vec<_> = unmanaged_nodes.iter().map(|node| node.name()).collect();
    assert_eq!(seen, ["bare", "other"]);
    assert_eq!(next, Some(at("2026-11-21T04:04:00Z")), "when old enough");
}

#[test]
fn bottlerocket_nodes_that_are_not_opted_in_are_counted() {
    let bottlerocket = "Bottlerocket OS 1.19.4 (aws-k8s-1.29)";
    let mut cluster = Cluster::default();
    cluster.replace([
        node("in", Some("2.0.0"), bottlerocket, json!({})),
        node("out", Some("none"), bottlerocket, json!({})),
        node("unlabelled", None, bottlerocket, json!({})),
        node("other", None, "Debian GNU/Linux 13", json!({})),
    ]);
    let observed = observe_at(&cluster, &POLICY, NOW);
    assert_eq!(observed.not_opted_in, 2);
}
