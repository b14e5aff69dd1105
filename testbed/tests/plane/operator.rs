//! The shipped manifests and programs on the test bed: what no crate can test alone.

use anyhow::{Context as _, Result};
use brupop_api::BottlerocketShadow;
use brupop_testbed::operator::{NAMESPACE, apply_overlay, binaries, programs};
use brupop_testbed::{ControlPlane, Kubelets, Options, await_until, make_nodes};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_calls_the_webhooks_service() -> Result<()> {
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_test_writer().try_init();
    let binaries = binaries(&["brupop-webhook"])?;
    let control_plane = ControlPlane::start(Options::CLUSTER).await?;
    apply_overlay(&control_plane, "default").await?;
    let client = control_plane.client();
    let nodes = make_nodes(&client, 2).await?;
    let webhook = programs(&binaries, &[]).into_iter().filter(|(command, _)| command == "/brupop-webhook");
    let _kubelets = Kubelets::start(&control_plane, webhook);

    // In an agent's own shadow, by an agent's own token, what only the webhook can know to be wrong: another's boot.
    let shadows = Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE);
    for node in &nodes {
        let shadow: BottlerocketShadow = from_value(json!({
            "metadata": {
                "name": format!("brs-{}", node.name_any()),
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid()},
                ],
            },
            "spec": {"state": "Idle"},
        }))?;
        shadows.create(&PostParams::default(), &shadow).await?;
    }
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let agents = ListParams::default().labels("brupop.bottlerocket.aws/component=agent");
    let agent = await_until("the agents' pods", DEADLINE, async || {
        let list = pods.list(&agents).await.ok()?.items;
        list.into_iter()
            .find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some("node-0")))
    });
    let agent = agent.await?;
    let account =
        agent.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).context("account")?;
    let token = control_plane.bound_token(NAMESPACE, &account, &agent.name_any()).await?;
    let as_agent =
        Api::<BottlerocketShadow>::namespaced(control_plane.client_for_token(&token).await?, NAMESPACE);
    let patch = async |shadow: &str, status: serde_json::Value| {
        as_agent.patch_status(shadow, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await
    };

    // Until the webhook is there, the gate is closed: allowed means that it answered.
    let status = json!({"current_version": "1.19.4", "current_state": "Idle", "crash_count": 0});
    let mut last = String::new();
    let allowed = await_until("the agent may report on its own node", DEADLINE, async || {
        patch("brs-node-0", status.clone()).await.map_err(|error| last = error.to_string()).ok()
    });
    let allowed = allowed.await;
    assert!(allowed.is_ok(), "{allowed:?}: {last}\n{}", control_plane.log("kube-apiserver"));

    // A claim without a grant: RBAC, schema and policy have nothing against it.
    let claim =
        patch("brs-node-0", json!({"reboot_requested": "5f0c9b1e-0000-4000-8000-000000000000"})).await;
    let refused = claim.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("denied the request"), "{refused}");

    let refused = patch("brs-node-1", status).await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("agent-own-node"), "{refused}");
    let events = control_plane.audit().from_start().read()?;
    let event = events
        .iter()
        .find(|event| event.verb == "patch" && event.is_about("bottlerocketshadows", "brs-node-1"));
    let event = event.context("no line in the audit log")?;
    assert_eq!(event.code(), 403);
    assert_eq!(event.user.extra["authentication.kubernetes.io/node-name"], ["node-0"]);
    Ok(())
}
