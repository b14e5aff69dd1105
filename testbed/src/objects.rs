//! Objects as people have them in files, and what they do with those.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use kube::api::{Api, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::ControlPlane;

/// `kubectl` with these words and `-f` a file with these objects, as YAML; what it said is returned.
pub async fn with_file(plane: &ControlPlane, words: &[&str], objects: &str) -> Result<String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let file = plane.dir().join(format!(
        "objects-{}.yaml",
        NUMBER.fetch_add(1, Ordering::Relaxed)
    ));
    tokio::fs::write(&file, objects).await?;
    let words = words.iter().map(AsRef::as_ref);
    plane
        .kubectl(words.chain(["-f".as_ref(), file.as_os_str()]))
        .await
}

/// As [`with_file`], to write these objects of ours: kubectl does not ask for all schemas first, which takes an API server
/// seconds.
pub async fn kubectl(plane: &ControlPlane, words: &[&str], objects: &[Json]) -> Result<String> {
    with_file(
        plane,
        &[words, &["--validate=false"]].concat(),
        &list(objects),
    )
    .await
}

/// The objects as one file.
pub fn list(objects: &[Json]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// Changes an object, but for its status.
pub async fn merge<K>(objects: &Api<K>, name: &str, patch: Json) -> kube::Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = Patch::Merge(patch);
    objects.patch(name, &PatchParams::default(), &patch).await
}

/// Changes the status of an object.
pub async fn merge_status<K: DeserializeOwned>(
    objects: &Api<K>,
    name: &str,
    status: Json,
) -> kube::Result<K> {
    let patch = Patch::Merge(json!({"status": status}));
    objects
        .patch_status(name, &PatchParams::default(), &patch)
        .await
}

/// Gives this user or group (`kind`) a `ClusterRole`.
pub fn cluster_role_binding(name: &str, role: &str, kind: &str, who: &str) -> Json {
    const RBAC: &str = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": kind, "name": who}],
    })
}

/// A Deployment whose pods have the label `app`; `more` is merged into the template of its pods.
pub fn deployment(namespace: &str, name: &str, replicas: usize, more: &Json) -> Json {
    let labels = json!({"app": name});
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]},
        }},
    });
    json_patch::merge(&mut object["spec"]["template"], more);
    object
}

/// A budget over the pods of this app.
pub fn budget(namespace: &str, name: &str, app: &str, max_unavailable: &Json) -> Json {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": app}}},
    })
}

/// A pod without a controller on this node; `more` is merged into it.
pub fn bare_pod(namespace: &str, name: &str, node: &str, more: &Json) -> Json {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none"}]},
    });
    json_patch::merge(&mut object, more);
    object
}
