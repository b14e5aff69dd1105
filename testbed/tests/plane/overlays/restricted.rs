//! Pod Security: a namespace that enforces `restricted` takes reconcilers and webhooks, and of an agent it refuses the
//! volume and the `SELinux` type, without which no pod can use Bottlerocket's API. And where the overlay
//! production has the former run, as a real scheduler sees it.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{AGENT_WARNING, apply_overlay, throw_away_overlay};
use brupop_testbed::{ControlPlane, await_until, make_nodes};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

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
    // All there from the beginning: the scheduler spreads pods over the nodes that it finds, and moves none later.
    let client = control_plane.client();
    make_nodes(&client, REPLICAS).await?;
    apply_overlay(control_plane, &overlay).await?;

    are_spread_over(&client, &["node-0", "node-1", "node-2"]).await?;
    // Anyone who cordons a node and empties it gets it empty, although there is a node less than there are pods.
    control_plane.kubectl(["cordon", "node-1"]).await?;
    let empty = [
        "delete",
        "pods",
        "--wait=false",
        "-n",
        NAMESPACE,
        "--field-selector",
        "spec.nodeName=node-1",
    ];
    let gone = control_plane.kubectl(empty).await?;
    ensure!(gone.lines().count() == 2, "on node-1 were {gone}");
    are_spread_over(&client, &["node-0", "node-2"]).await?;

    let events = Api::<Event>::namespaced(client.clone(), NAMESPACE);
    let of_agents =
        ListParams::default().fields("involvedObject.kind=DaemonSet,reason=FailedCreate");
    let refusal = await_until("the agent is refused", async || {
        events
            .list(&of_agents)
            .await
            .ok()?
            .items
            .into_iter()
            .find_map(|event| event.message)
    })
    .await?;
    // The very words of the warning.
    let (_, reasons) = AGENT_WARNING
        .split_once("would violate ")
        .context("a warning")?;
    ensure!(
        refusal.ends_with(&format!("is forbidden: violates {reasons}")),
        "{refusal}"
    );
    control_plane
        .kubectl(["delete", "node", "--all"])
        .await
        .map(drop)
}

/// Awaits that all reconcilers and webhooks have a node, and that those of each kind are on all of these and no other.
async fn are_spread_over(client: &Client, nodes: &[&str]) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let nodes: BTreeSet<_> = nodes.iter().map(|name| Some((*name).to_owned())).collect();
    let mut found = BTreeMap::new();
    let spread = await_until(format!("pods on {nodes:?}"), async || {
        found = placed(pods.list(&ListParams::default()).await.ok()?.items);
        let there = |on: &Vec<_>| {
            on.len() == REPLICAS && on.iter().cloned().collect::<BTreeSet<_>>() == nodes
        };
        (found.len() == 2 && found.values().all(there)).then_some(())
    });
    spread.await.with_context(|| format!("{found:?}"))
}

/// The nodes of pods that are not leaving, by the pods' component; none where a pod waits for one.
fn placed(pods: Vec<Pod>) -> BTreeMap<String, Vec<Option<String>>> {
    let mut placed = BTreeMap::<_, Vec<_>>::new();
    for pod in pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
    {
        let mut labels = pod.metadata.labels.unwrap_or_default();
        let component = labels
            .remove("brupop.bottlerocket.aws/component")
            .unwrap_or_default();
        placed
            .entry(component)
            .or_default()
            .push(pod.spec.and_then(|spec| spec.node_name));
    }
    placed
}
