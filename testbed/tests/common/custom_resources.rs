//! The custom resources, installed and served.

use anyhow::{Context as _, Result};
use brupop_api::definitions;
use brupop_testbed::{ControlPlane, await_within};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::Api;
use std::time::Duration;

/// Applies the generated definitions with kubectl, as users do, and awaits that they are Established.
///
/// What kubectl warned of is returned: nothing, if all is well.
pub async fn install(control_plane: &ControlPlane) -> Result<String> {
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests");
    let files =
        ["shadow", "fleet", "pool"].map(|kind| format!("{manifests}/bottlerocket{kind}-crd.yaml"));
    let [shadow, fleet, pool] = &files;
    let output = control_plane
        .kubectl_output(["apply", "-f", shadow, "-f", fleet, "-f", pool])
        .await?;
    let said = String::from_utf8(output.stderr)?;
    anyhow::ensure!(output.status.success(), "{said}");
    let api = Api::<CustomResourceDefinition>::all(control_plane.client());
    for definition in definitions::all() {
        let name = definition.name_any();
        await_within(
            Duration::from_secs(20),
            format!("{name} is Established"),
            async || {
                let status = api.get(&name).await.ok()?.status?;
                let mut conditions = status.conditions?.into_iter();
                conditions.find(|c| c.type_ == "Established" && c.status == "True")
            },
        )
        .await
        .context("the generated definitions")?;
    }
    Ok(said)
}
