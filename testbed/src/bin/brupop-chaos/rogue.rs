//! Somebody with an agent's token.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value as Json, json};

use crate::people::{node_name, shadow_name, shadows};

/// Tries with an agent's token what no agent may do, and then to lie about its own host.
pub(crate) async fn tries(client: Client, node: usize, nodes: usize) -> Result<()> {
    let (own, other) = (shadow_name(node), shadow_name((node + 1) % nodes));
    let shadows = shadows(client.clone());
    let params = PatchParams::default();
    let lie = |status: Json| Patch::Merge(json!({"status": status}));
    // Whatever is answered: the checker looks at what is stored.
    let _ = shadows.patch_status(&other, &params, &lie(json!({"message": "I was here"}))).await;
    let spec = Patch::Merge(json!({"spec": {"state": "RebootedIntoUpdate"}}));
    let _ = shadows.patch(&own, &params, &spec).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"mine": "true"}}}));
    let _ = shadows.patch(&own, &params, &labels).await;
    let _ = shadows.patch_status(&own, &params, &labels).await;
    let _ = shadows.delete(&other, &DeleteParams::default()).await;
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let _ = Api::<Node>::all(client).patch(&node_name(node), &params, &cordon).await;
    let lies = [
        json!({"message": "\u{1b}[2J\nforged\u{202e}"}),
        json!({"target_version": "9.9.9"}),
        json!({"reboot_requested": "11111111-2222-4333-8444-555555555555"}),
        json!({"current_state": "Idle", "target_version": null}),
    ];
    for status in lies {
        let _ = shadows.patch_status(&own, &params, &lie(status)).await;
    }
    Ok(())
}
