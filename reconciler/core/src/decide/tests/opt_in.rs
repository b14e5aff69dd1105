//! Chooses the nodes that the reconciler opts in by itself (`AUTO_LABEL`).

use std::collections::BTreeMap;

use crate::decide::opt_in;
use crate::facts::FleetFacts;
use crate::objects::NodeFacts;
use crate::tests::world::rows;
use brupop_api::{Write, names};
use brupop_apply::apply;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

const OS_IMAGE: &str = "Bottlerocket OS 1.19.4 (aws-k8s-1.29)";

/// A host that nobody has decided about.
pub(super) fn bare() -> NodeFacts {
    NodeFacts {
        name: "n".to_owned(),
        uid: "u".to_owned(),
        os_image: OS_IMAGE.to_owned(),
        ..NodeFacts::default()
    }
}

fn decided(node: &NodeFacts, paused: bool, ledger_term: u64) -> Option<Write<'_>> {
    let fleet = FleetFacts {
        ledger_term: Some(ledger_term),
        // Before there is a shadow, nothing proves admission.
        enforced: false,
        paused,
        ..FleetFacts::EXAMPLE
    };
    assert_eq!(
        opt_in(
            &FleetFacts {
                alone: false,
                ..fleet
            },
            node
        ),
        None,
        "another operator is here"
    );
    opt_in(&fleet, node)
}

#[test]
fn only_undecided_bottlerocket_nodes_are_opted_in() {
    let os = |os_image: &str| NodeFacts {
        os_image: os_image.to_owned(),
        ..bare()
    };
    let label = |label: &str| {
        let key = names::UPDATER_INTERFACE_LABEL.to_owned();
        NodeFacts {
            labels: Some([(key, label.to_owned())].into()),
            ..bare()
        }
    };
    for (says, node, paused, term, wanted) in rows! {
        "a host without the label", bare(), false, 4 => true;
        "a paused fleet", bare(), true, 4 => false;
        "another leads", bare(), false, 5 => false;
        "left out", label("none"), false, 4 => false;
        "of an earlier interface", label("1.0.0"), false, 4 => false;
        "labelled with nothing", label(""), false, 4 => false;
        "labelled already", label("2.0.0"), false, 4 => false;
        "Debian", os("Debian GNU/Linux 13 (trixie)"), false, 4 => false;
        "a name that contains it", os("Not Bottlerocket OS 1.19.4"), false, 4 => false;
        "its kubelet has said nothing yet", os(""), false, 4 => false;
    } {
        assert_eq!(decided(&node, paused, term).is_some(), wanted, "{says}");
    }
}

#[test]
fn the_label_needs_the_node_as_seen() {
    let seen = bare();
    let write = decided(&seen, false, 4).unwrap();
    let node = |uid: &str, os_image: &str, label: Option<&str>| -> Node {
        let labels = label.map(|value| BTreeMap::from([(names::UPDATER_INTERFACE_LABEL, value)]));
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": uid, "labels": labels},
            "status": {"nodeInfo": {"osImage": os_image, "architecture": "", "bootID": "", "kernelVersion": "",
                "containerRuntimeVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "systemUUID": ""}},
        }))
        .unwrap()
    };
    for (says, node, taken) in rows! {
        "as it was seen", node("u", OS_IMAGE, None) => true;
        "another of this name", node("v", OS_IMAGE, None) => false;
        "another system", node("u", "Debian GNU/Linux 13", None) => false;
        "somebody was faster", node("u", OS_IMAGE, Some("none")) => false;
    } {
        let mut after = node.clone();
        assert_eq!(apply(&write, &mut after).is_ok(), taken, "{says}");
        let labelled = after.metadata.labels.unwrap_or_default();
        let value = labelled
            .get(names::UPDATER_INTERFACE_LABEL)
            .map(String::as_str);
        assert_eq!(
            value == Some(names::UPDATER_INTERFACE_VERSION),
            taken,
            "{says}"
        );
    }
}
