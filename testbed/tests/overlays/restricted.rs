//! Pod Security: a namespace that enforces `restricted` takes reconcilers and webhooks, and of an agent it refuses the
//! volume and the `SELinux` type, without which no pod can use Bottlerocket's API.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{AGENT_WARNING, apply_overlay, throw_away_overlay};
use brupop_testbed::{ControlPlane, await_until, make_nodes};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

use crate::DEADLINE;

const NAMESPACE: &str = "nothing-but-restricted";
/// Of the overlay production, and nodes for them.
const REPLICAS: usize = 3;

pub async fn admits_all_but_agents(control_plane: &ControlPlane) -> Result<()> {
    let enforces = r#"[{"op": "replace", "path": "/metadata/labels/pod-security.kubernetes.io~1enforce", "value": "restricted"}]"#;
    let overlay = json!({
        "namespace": NAMESPACE, "namePrefix": "restricted-",
        "resources": ["kustomize/overlays/production"],
        "patches": [{"target": {"kind": "Namespace"}, "patch": enforces}],
    });
    let overlay = throw_away_overlay(control_plane, "restricted", overlay)?;
    apply_overlay(control_plane, &overlay).await?;
    let client = control_plane.client();
    make_nodes(&client, REPLICAS).await?;

    // No two of a kind on one node, as high-availability has it.
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let expected = BTreeMap::from(["reconciler", "webhook"].map(|name| (name.to_owned(), REPLICAS)));
    let mut found = BTreeMap::new();
    let admitted = await_until(format!("pods on so many nodes: {expected:?}"), DEADLINE, async || {
        found = nodes(pods.list(&ListParams::default()).await.ok()?.items);
        (found == expected).then_some(())
    });
    admitted.await.with_context(|| format!("{found:?}"))?;

    let events = Api::<Event>::namespaced(client, NAMESPACE);
    let of_agents = ListParams::default().fields("involvedObject.kind=DaemonSet,reason=FailedCreate");
    let refusal = await_until("the agent is refused", DEADLINE, async || {
        events.list(&of_agents).await.ok()?.items.into_iter().find_map(|event| event.message)
    });
    let refusal = refusal.await?;
    // The very words of the warning.
    let (_, reasons) = AGENT_WARNING.split_once("would violate ").context("a warning")?;
    ensure!(refusal.ends_with(&format!("is forbidden: violates {reasons}")), "{refusal}");
    control_plane.kubectl(["delete", "node", "--all"]).await.map(drop)
}

/// On how many nodes pods are, by their component.
fn nodes(pods: Vec<Pod>) -> BTreeMap<String, usize> {
    let mut nodes = BTreeMap::<_, BTreeSet<_>>::new();
    for pod in pods {
        let mut labels = pod.metadata.labels.unwrap_or_default();
        let component = labels.remove("brupop.bottlerocket.aws/component").unwrap_or_default();
        nodes.entry(component).or_default().extend(pod.spec.and_then(|spec| spec.node_name));
    }
    nodes.into_iter().map(|(component, nodes)| (component, nodes.len())).collect()
}
