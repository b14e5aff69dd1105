//! One agent: its shadow as it is in a cluster, its own token, and the patches by which it reports.

use kube::Resource as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brupop_api::write::{Field, Object, Value, Write};
use brupop_api::{BottlerocketShadow, State, names};
use brupop_testbed::{ControlPlane, await_until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value as Json, from_value, json};

/// The account of the agents, as in the manifests.
pub const ACCOUNT: &str = "brupop-agent";
/// Between these the reported target goes to and fro.
const TARGETS: [&str; 2] = ["1.20.0", "1.20.1"];

/// An agent that reports.
pub struct Agent {
    client: Client,
    /// Of its shadow.
    path: String,
    /// The same report of two targets.
    patches: [Vec<u8>; 2],
}

impl Agent {
    /// Makes a pod of the agents' account on the node, a shadow as after an update, and takes the pod's token.
    pub async fn make(control_plane: &ControlPlane, namespace: &str, node: &Node) -> Result<Self> {
        let admin = control_plane.client();
        let pods = Api::<Pod>::namespaced(admin.clone(), namespace);
        let pod: Pod = from_value(json!({
            "metadata": {"name": format!("{ACCOUNT}-{}", node.name_any())},
            "spec": {
                "nodeName": node.name_any(), "serviceAccountName": ACCOUNT,
                "containers": [{"name": "agent", "image": "none"}],
            },
        }))?;
        // The account is new, too; the API server may not have heard of it.
        await_until("a pod of the agents' account", async || {
            pods.create(&PostParams::default(), &pod).await.ok()
        })
        .await?;
        let token = control_plane.bound_token(namespace, ACCOUNT, &pod.name_any()).await?;
        let shadow = shadow(&admin, namespace, node).await?;
        let path = format!("{}/{}", shadows(namespace), names::shadow_name(&node.name_any()));
        let patches = [report(&shadow, TARGETS[0])?, report(&shadow, TARGETS[1])?];
        Ok(Self { client: control_plane.client_for_token(&token).await?, path, patches })
    }

    /// Its n-th report: how long it took.
    pub async fn report(&self, n: usize) -> Result<Duration> {
        let request = patch(&format!("{}/status", self.path), self.patches[n % 2].clone())?;
        let began = Instant::now();
        self.client.request_text(request).await.with_context(|| self.path.clone())?;
        Ok(began.elapsed())
    }

    /// What comes of a dry-run change of the status of the shadow whose agent is `whose`: the refusal, if there is one.
    pub async fn try_out(&self, whose: &Self, status: &Json) -> Result<Option<String>> {
        let changes = status.as_object().into_iter().flatten();
        let changes = changes
            .map(|(field, value)| json!({"op": "add", "path": format!("/status/{field}"), "value": value}));
        let body = Json::Array(changes.collect()).to_string().into_bytes();
        let request = patch(&format!("{}/status?dryRun=All", whose.path), body)?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    }
}

fn patch(uri: &str, body: Vec<u8>) -> Result<http::Request<Vec<u8>>> {
    let request = http::Request::patch(uri).header("content-type", "application/json-patch+json");
    Ok(request.header("accept", "application/json").body(body)?)
}

fn shadows(namespace: &str) -> String {
    BottlerocketShadow::url_path(&(), Some(namespace))
}

/// What an agent sends that has found another update, as a patch with all of its tests.
fn report(shadow: &Json, target: &str) -> Result<Vec<u8>> {
    let text = |pointer: &str| shadow.pointer(pointer).and_then(Json::as_str).context(pointer.to_owned());
    let generation = shadow["metadata"]["generation"].as_u64().context("generation")?;
    let write = Write {
        object: Object::ShadowStatus(text("/metadata/name")?),
        tests: vec![
            (Field::Uid, Value::text(text("/metadata/uid")?)),
            (Field::Generation, Value::Number(generation)),
            (Field::CurrentState, Value::State(State::Idle)),
            (Field::StatusRebootRequested, Value::Absent),
        ],
        sets: vec![(Field::TargetVersion, Value::text(target))],
    };
    Ok(serde_json::to_vec(&write.patch(shadow)?)?)
}

/// A shadow that has been through an update: every field that it ever has, written by who writes it.
async fn shadow(admin: &Client, namespace: &str, node: &Node) -> Result<Json> {
    let name = names::shadow_name(&node.name_any());
    let at = "2026-11-21T10:00:00Z";
    let (before, boot) = ("5f0c9b1e-0000-4000-8000-000000000000", "5f0c9b1e-0000-4000-8000-000000000001");
    let object = |rest: Json| {
        let mut object = json!({
            "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": name},
        });
        json_patch::merge(&mut object, &rest);
        object.to_string().into_bytes()
    };
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid()});
    let created = object(json!({
        "metadata": {"ownerReferences": [owner]},
        "spec": {
            "state": "Idle", "state_transition_timestamp": at, "version": "1.19.4", "attempt": 3,
            "leader_term": 2, "baseline_boot_id": before,
        },
    }));
    let reported = object(json!({"status": {
        "current_version": "1.19.4", "target_version": TARGETS[1], "current_state": "Idle", "crash_count": 0,
        "attempt": 3, "boot_id": boot, "staged": {"version": "1.19.4", "at": at},
    }}));
    let explained = object(json!({"status": {"conditions": [{
        "type": "Progressing", "status": "False", "reason": "OutsideWindow", "lastTransitionTime": at,
        "message": "1.20.0 is available; updates start again at 2026-11-22T02:00:00Z",
    }]}}));
    let (all, status) = (shadows(namespace), format!("{}/{name}/status", shadows(namespace)));
    let apply = |manager: &str| format!("{status}?fieldManager={manager}&force=true");
    let (json, merge, apply_patch) =
        ("application/json", "application/merge-patch+json", "application/apply-patch+yaml");
    let mut answer = Json::Null;
    for (method, uri, kind, body) in [
        (http::Method::POST, format!("{all}?fieldManager=brupop-reconciler"), json, created),
        (http::Method::PATCH, format!("{status}?fieldManager=brupop-agent"), merge, reported),
        (http::Method::PATCH, apply("brupop-reconciler-conditions"), apply_patch, explained),
    ] {
        let request = http::Request::builder().method(method).uri(&uri).header("content-type", kind);
        answer = admin.request(request.body(body)?).await.with_context(|| uri)?;
    }
    Ok(answer)
}
