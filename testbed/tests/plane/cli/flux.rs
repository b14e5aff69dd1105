//! What Flux makes of a pause at the next sync, if the fleet and its pools are in Git.

use anyhow::{Context as _, Result, ensure};
use brupop_api::{BottlerocketFleet, BottlerocketPool};
use brupop_testbed::documents::read;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{ControlPlane, Options};
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value as Json, json};

use super::Person;
use crate::custom_resources;

const FLUX: &str = "kustomize-controller";
const ANNOTATION: &str = "kustomize.toolkit.fluxcd.io/ssa";

/// An object in Git, as the component `pools` has it.
struct InGit {
    api: Api<DynamicObject>,
    object: Json,
}

impl InGit {
    fn new<K: Resource<DynamicType = ()>>(control_plane: &ControlPlane, yaml: &str) -> Result<Self> {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::namespaced_with(control_plane.client(), NAMESPACE, &resource);
        Ok(Self { api, object: serde_yaml_ng::from_str(yaml)? })
    }

    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// As Flux' engine does it (`fluxcd/pkg/ssa`): what managers have written whose names begin with `kubectl` becomes Flux'
    /// own, unless the object is annotated; then what Git has is applied.
    async fn sync(&self) -> Result<Json> {
        if let Some(found) = self.api.get_opt(self.name()).await? {
            let found = serde_json::to_value(found)?;
            if found["metadata"]["annotations"][ANNOTATION] != "Merge" {
                let entries = found["metadata"]["managedFields"].as_array().context("no managers")?;
                let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": taken_over(entries)}]);
                let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
                self.api.patch(self.name(), &PatchParams::default(), &patch).await?;
            }
        }
        let apply = PatchParams::apply(FLUX).force();
        let synced = self.api.patch(self.name(), &apply, &Patch::Apply(&self.object)).await?;
        Ok(serde_json::to_value(synced)?)
    }
}

fn taken_over(entries: &[Json]) -> Vec<Json> {
    let is_kubectls = |entry: &Json| {
        entry["subresource"].is_null()
            && entry["manager"].as_str().is_some_and(|name| name.starts_with("kubectl"))
    };
    let (kubectls, mut others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_kubectls);
    for fluxs in others.iter_mut().filter(|entry| entry["manager"] == FLUX) {
        for entry in &kubectls {
            json_patch::merge(&mut fluxs["fieldsV1"], &entry["fieldsV1"]);
        }
    }
    others
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_survives_the_next_sync() -> Result<()> {
    let control_plane = ControlPlane::start(Options::API).await?;
    custom_resources::install(&control_plane).await?;
    control_plane.kubectl(["create", "namespace", NAMESPACE]).await?;
    let admin = Person::admin(&control_plane);
    let [fleet, pool] =
        ["fleet", "others-pool"].map(|name| read(&format!("kustomize/components/pools/{name}.yaml")));
    for (mut in_git, pause) in [
        (InGit::new::<BottlerocketFleet>(&control_plane, &fleet?)?, "pause"),
        (InGit::new::<BottlerocketPool>(&control_plane, &pool?)?, "pause --pool others"),
    ] {
        // With the annotation first, then without it.
        for (annotated, by_plugin, holds) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            if !annotated {
                let annotations = in_git.object["metadata"]["annotations"].as_object_mut();
                annotations.context("no annotations")?.remove(ANNOTATION);
            }
            in_git.sync().await?;
            if by_plugin {
                admin.says(pause, &["is paused"]).await?;
            } else {
                let (kind, patch) =
                    (in_git.object["kind"].as_str().unwrap_or_default(), r#"{"spec":{"paused":true}}"#);
                let args = ["patch", kind, in_git.name(), "-n", NAMESPACE, "--type=merge", "-p", patch];
                control_plane.kubectl(args).await?;
            }
            let synced = in_git.sync().await?;
            ensure!(
                (synced["spec"]["paused"] == true) == holds,
                "{pause}, annotated: {annotated}, by the plugin: {by_plugin}: {synced}"
            );
            in_git.api.delete(in_git.name(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}
