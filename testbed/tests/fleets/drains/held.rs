//! Pods that stay on their way out until somebody lets go of them.

use anyhow::Result;
use brupop_testbed::Fleet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

/// The finalizer of such a pod.
pub const HOLD: &str = "testbed.example/hold";

/// Lets go of those of the app `held` that are on their way out; returns how many pods it had until then.
pub async fn let_go(fleet: &Fleet) -> Result<usize> {
    let pods = Api::<Pod>::default_namespaced(fleet.client());
    let held = pods
        .list(&ListParams::default().labels("app=held"))
        .await?
        .items;
    for pod in held
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_some())
    {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        pods.patch(&pod.name_any(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(held.len())
}
