//! Objects of an agent that no test runs: its pod, a token of that, and its node's shadow.

use anyhow::{Context as _, Result};
use brupop_api::BottlerocketShadow;
use brupop_api::names::{COMPONENT_LABEL, shadow_name};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{from_value, json};

use crate::operator::NAMESPACE;
use crate::{ControlPlane, await_until};

/// A token as the agent on this node has it, once its pod is there.
pub async fn token(control_plane: &ControlPlane, node: &str) -> Result<String> {
    let pods = Api::<Pod>::namespaced(control_plane.client(), NAMESPACE);
    let agents = format!("{COMPONENT_LABEL}=agent");
    let agents = ListParams::default()
        .labels(&agents)
        .fields(&format!("spec.nodeName={node}"));
    let pod = await_until(format!("the agent's pod on {node}"), async || {
        pods.list(&agents).await.ok()?.items.pop()
    })
    .await?;
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref());
    control_plane
        .bound_token(
            NAMESPACE,
            account.context("a pod without an account")?,
            &pod.name_any(),
        )
        .await
}

/// Makes the shadow of this node, Idle, as the reconciler does.
pub async fn idle_shadow(
    control_plane: &ControlPlane,
    node: &Node,
) -> kube::Result<BottlerocketShadow> {
    let name = node.name_any();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid()});
    let shadow = from_value(json!({
        "metadata": {"name": shadow_name(&name), "ownerReferences": [owner]}, "spec": {"state": "Idle"},
    }));
    let shadows = Api::namespaced(control_plane.client(), NAMESPACE);
    shadows
        .create(
            &PostParams::default(),
            &shadow.map_err(kube::Error::SerdeError)?,
        )
        .await
}
