//! Pod Security: a namespace that enforces `restricted` takes reconcilers and webhooks, and of an agent it refuses the
//! volume and the `SELinux` type, without which no pod can use Bottlerocket's API.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{AGENT_WARNING, apply_overlay, throw_away_overlay};
use brupop_testbed::{ControlPlane, await_until, make_nodes};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::json;
use std::collections::BTreeMap;

use crate::DEADLINE;

const NAMESPACE: &str = "nothing-but-restricted";

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
    make_nodes(&client, 1).await?;

    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let expected = BTreeMap::from([("reconciler".to_owned(), 3), ("webhook".to_owned(), 3)]);
    let mut found = BTreeMap::new();
    let admitted = await_until(format!("the pods {expected:?}"), DEADLINE, async || {
        found = count(pods.list(&ListParams::default()).await.ok()?.items);
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

/// Pods by their component.
fn count(pods: Vec<Pod>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        let mut labels = pod.metadata.labels.unwrap_or_default();
        let component = labels.remove("brupop.bottlerocket.aws/component").unwrap_or_default();
        *counts.entry(component).or_default() += 1;
    }
    counts
}
