//! Writes the status of pods as a kubelet does.

use crate::mended::Mended;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// The kubelet's status of a pod that runs as a process.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub state: State,
    pub ready: bool,
    pub restarts: i32,
    /// Unique among the pods of a test bed; nobody can be reached there.
    pub ip: String,
}

/// State of the one container.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Running {
        since: Timestamp,
    },
    Waiting {
        reason: &'static str,
        message: String,
    },
}

impl Said {
    pub(crate) fn status(&self, container: &Container) -> Value {
        let (phase, started, state) = match &self.state {
            State::Running { since } => ("Running", true, json!({"running": {"startedAt": since}})),
            State::Waiting { reason, message } => {
                // A pod that ran once stays in this phase while its container waits to be restarted.
                let phase = if self.restarts > 0 {
                    "Running"
                } else {
                    "Pending"
                };
                (
                    phase,
                    false,
                    json!({"waiting": {"reason": reason, "message": message}}),
                )
            }
        };
        json!({
            "phase": phase, "podIP": self.ip, "podIPs": [{"ip": self.ip}],
            "conditions": [
                condition("PodReadyToStartContainers", true), condition("Initialized", true),
                condition("ContainersReady", self.ready), condition("Ready", self.ready),
            ],
            "containerStatuses": [{
                "name": container.name, "image": container.image.as_deref().unwrap_or_default(), "imageID": "",
                "ready": self.ready, "started": started, "restartCount": self.restarts, "state": state,
            }],
        })
    }
}

pub(crate) fn condition(kind: &str, status: bool) -> Value {
    let status = if status { "True" } else { "False" };
    json!({"type": kind, "status": status, "lastTransitionTime": Timestamp::now()})
}

/// Whether the API server's object says that the pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Merges into a pod's status, if it is still the same pod. Returns whether it is written; if not, it is logged.
pub(crate) async fn patch(client: &Client, pod: &Pod, status: &Value) -> bool {
    let api = Api::<Mended<Pod>>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    // Kubernetes refuses a patch with another UID.
    let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
    match api
        .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => true,
        // Deleted, or another pod by now: nothing is left to be said.
        Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => true,
        Err(error) => {
            tracing::warn!(pod = pod.name_any(), %error, "status of a pod");
            false
        }
    }
}
