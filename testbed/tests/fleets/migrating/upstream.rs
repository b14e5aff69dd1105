//! An installation of upstream's operator, 1.4. What runs in its pods is a program that does nothing.

use anyhow::Result;
use brupop_api::names::shadow_name;
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::objects::{kubectl, with_file};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{ControlPlane, Fleet, Program, await_until};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value as Json, json};

const CRD: &str = "bottlerocketshadows.brupop.bottlerocket.aws";
const OBJECTS: &str = include_str!("upstream.yaml");

pub(crate) async fn install(plane: &ControlPlane) -> Result<()> {
    // kubectl does not ask for all schemas first, which takes an API server seconds.
    with_file(plane, &["create", "--validate=false"], OBJECTS).await?;
    plane.wait_for_condition("Established", &["crd", CRD]).await
}

/// The shadow of the node of this number, as its apiserver makes it for its agent.
pub(crate) async fn make_shadow(fleet: &Fleet, number: usize) -> Result<()> {
    let node = Api::<Node>::all(fleet.client())
        .get(&format!("node-{number}"))
        .await?;
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid()});
    let shadow = json!({
        "apiVersion": "brupop.bottlerocket.aws/v2", "kind": "BottlerocketShadow",
        "metadata": {"name": shadow_name(&node.name_any()), "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"state": "Idle", "state_transition_timestamp": null, "version": null},
    });
    await_until("its shadow is made", async || {
        // The definition is known to the API server a moment after it is there.
        let made = kubectl(
            &fleet.control_plane,
            &["create"],
            std::slice::from_ref(&shadow),
        )
        .await;
        made.ok()
    })
    .await?;
    let status = json!({
        "current_version": OLD, "target_version": NEW, "current_state": "Idle", "crash_count": 0,
        "state_transition_failure_timestamp": null,
    });
    patch_shadow(fleet, number, "status", &status).await
}

/// It changes this part of the shadow of the node of this number.
pub(crate) async fn patch_shadow(
    fleet: &Fleet,
    number: usize,
    part: &str,
    fields: &Json,
) -> Result<()> {
    let name = shadow_name(&format!("node-{number}"));
    let patch = Patch::Merge(json!({part: fields}));
    let (shadows, params) = (fleet.shadows(), PatchParams::default());
    if part == "status" {
        shadows.patch_status(&name, &params, &patch).await?;
    } else {
        shadows.patch(&name, &params, &patch).await?;
    }
    Ok(())
}

/// Installs the definitions of cert-manager, whose certificates upstream uses, and of Prometheus' operator, which may read its
/// metrics: somewhere for their objects to be.
pub(crate) async fn install_others(plane: &ControlPlane) -> Result<()> {
    let kinds = [
        ("cert-manager.io", "Certificate", "certificate"),
        ("cert-manager.io", "Issuer", "issuer"),
        ("monitoring.coreos.com", "ServiceMonitor", "servicemonitor"),
    ];
    let crds = kinds.map(|(group, kind, singular)| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{singular}s.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "singular": singular, "plural": format!("{singular}s")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    });
    kubectl(plane, &["create"], &crds).await?;
    plane
        .wait_for_condition("Established", &["crd", "--all"])
        .await
}

/// Returns what of it is there: `<resource>/<name>`, sorted.
pub(crate) async fn what_is_left(plane: &ControlPlane) -> Result<Vec<String>> {
    let get = ["get", "-o", "name", "--ignore-not-found"];
    let found = with_file(plane, &get, OBJECTS).await?;
    let mut found: Vec<_> = found.lines().map(str::to_owned).collect();
    found.sort();
    Ok(found)
}

/// Returns what runs in its pods.
pub(crate) fn programs() -> Vec<(String, Program)> {
    let program = Program {
        binary: "/bin/sleep".into(),
        env: vec![],
    };
    ["./agent", "./apiserver", "./controller"]
        .map(|command| (command.to_owned(), program.clone()))
        .into()
}
