//! Chooses the nodes that the reconciler opts in by itself (`AUTO_LABEL`).

use std::collections::BTreeMap;

use crate::decide::opt_in;
use crate::facts::FleetFacts;
use crate::objects::NodeFacts;
use crate::tests::world::rows;
use crate::window::{Starts, Until};
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

fn decided<'n>(
    node: &'n NodeFacts,
    starts: Starts<'static>,
    ledger_term: u64,
) -> Option<Write<'n>> {
    let fleet = FleetFacts {
        ledger_term: Some(ledger_term),
        starts,
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
    for (says, node, starts, term, wanted) in rows! {
        "a host without the label", bare(), Starts::Open, 4 => true;
        "outside of the window", bare(), Starts::OutsideWindow(Until::Unknown), 4 => true;
        "before there is a shadow to prove admission on", bare(), Starts::AdmissionNotEnforced, 4 => true;
        "a paused fleet", bare(), Starts::Paused, 4 => false;
        "another leads", bare(), Starts::Open, 5 => false;
        "left out", label("none"), Starts::Open, 4 => false;
        "of an earlier interface", label("1.0.0"), Starts::Open, 4 => false;
        "labelled with nothing", label(""), Starts::Open, 4 => false;
        "labelled already", label("2.0.0"), Starts::Open, 4 => false;
        "Debian", os("Debian GNU/Linux 13 (trixie)"), Starts::Open, 4 => false;
        "a name that contains it", os("Not Bottlerocket OS 1.19.4"), Starts::Open, 4 => false;
        "its kubelet has said nothing yet", os(""), Starts::Open, 4 => false;
    } {
        assert_eq!(decided(&node, starts, term).is_some(), wanted, "{says}");
    }
}

#[test]
fn the_label_needs_the_node_as_seen() {
    let seen = bare();
    let write = decided(&seen, Starts::Open, 4).unwrap();
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
