//! Tests of placement by a real scheduler; and of the role `view`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, apply_overlay};
use brupop_testbed::{ControlPlane, NewNode, Options, await_until};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{from_value, json};

#[tokio::test(flavor = "multi_thread")]
async fn agents_run_on_every_supported_node_even_full() -> Result<()> {
    let control_plane = ControlPlane::start(Options::CLUSTER).await?;
    let client = control_plane.client();
    for (number, architecture) in ["amd64", "arm64", "riscv64"].into_iter().enumerate() {
        let mut node = NewNode::numbered(number);
        node.labels
            .insert("kubernetes.io/arch".to_owned(), architecture.to_owned());
        node.create(&client).await?;
    }
    // It has requested all of the CPU that there is.
    let full = Api::<Pod>::namespaced(client.clone(), "default");
    let pod: Pod = from_value(json!({
        "metadata": {"name": "full"},
        "spec": {
            "nodeName": "node-0", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "full", "image": "full", "resources": {"requests": {"cpu": "4"}}}],
        },
    }))?;
    await_until("the account of pods in `default`", async || {
        full.create(&PostParams::default(), &pod).await.ok()
    })
    .await?;
    apply_overlay(&control_plane, "default").await?;

    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let mut found = BTreeMap::new();
    let placed = await_until("agents on node-0 and node-1", async || {
        let pods = pods.list(&ListParams::default()).await.ok()?.items;
        found = pods
            .into_iter()
            .map(|pod| (pod.metadata.name, pod.spec.and_then(|s| s.node_name)))
            .collect();
        let agents = found
            .iter()
            .filter(|(name, _)| name.as_deref().is_some_and(|name| name.contains("agent")));
        let mut nodes: Vec<_> = agents.filter_map(|(_, node)| node.as_deref()).collect();
        nodes.sort_unstable();
        (nodes == ["node-0", "node-1"]).then_some(())
    });
    placed.await.with_context(|| format!("{found:?}"))?;
    ensure!(
        full.get_opt("full")
            .await?
            .is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()),
        "it stayed"
    );
    let agents = Api::<DaemonSet>::namespaced(client.clone(), NAMESPACE)
        .get("brupop-agent")
        .await?;
    let wanted = agents.status.context("no status")?.desired_number_scheduled;
    ensure!(wanted == 2, "{wanted} agents are wanted");
    let others = found
        .iter()
        .filter(|(_, node)| node.as_deref() == Some("node-2"));
    ensure!(others.count() == 0, "{found:?}");

    let view = Api::<ClusterRole>::all(client);
    await_until(
        "the role `view` includes shadows and the fleet",
        async || {
            let rules = view.get("view").await.ok()?.rules?;
            let ours = rules.iter().find(|rule| {
                rule.api_groups
                    .iter()
                    .flatten()
                    .any(|group| group == "brupop.bottlerocket.aws")
            })?;
            (ours.verbs == ["get", "list", "watch"]).then_some(())
        },
    )
    .await
}
