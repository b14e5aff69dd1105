//! The operator's own pods: which versions run, and which pods do not start.

use brupop_api::Item;
use brupop_api::crds::{MESSAGE_MAX, WORD_MAX};
use brupop_api::item::{Readable, Unreadable};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodSpec, PodStatus};
use serde::{Deserialize, Serialize};

use crate::page::{Page, View};
use crate::words::{self, shown};

/// Selects the pods of the reconciler and the webhook.
pub(crate) const PODS: &str = "brupop.bottlerocket.aws/component in (reconciler,webhook)";

/// A pod of the operator.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OperatorPod {
    spec: PodSpec,
    status: Option<PodStatus>,
}

impl Readable for OperatorPod {
    type Kind = Pod;

    fn read(json: &str) -> Result<Self, Unreadable> {
        Ok(serde_json::from_str(json)?)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Versions {
    pub plugin: &'static str,
    /// The images of the reconciler and the webhook.
    pub images: Vec<String>,
}

/// Returns the versions of the plugin and of these pods.
pub(crate) fn versions(pods: &[Item<OperatorPod>]) -> Versions {
    let pods = pods.iter().filter_map(Item::ok);
    let containers = pods.flat_map(|pod| &pod.spec.containers);
    let images = containers.map(|it| {
        let image = it.image.as_deref().unwrap_or_default();
        format!("{}: {}", words::name(&it.name), shown(image, MESSAGE_MAX))
    });
    let mut images: Vec<String> = images.collect();
    images.sort();
    images.dedup();
    let plugin = env!("CARGO_PKG_VERSION");
    Versions { plugin, images }
}

impl View for Versions {
    fn text(&self, _: &Page) -> String {
        let images = self.images.iter().map(|image| format!("{image}\n"));
        let mut images: String = images.collect();
        if images.is_empty() {
            images.push_str("operator: not known; its pods cannot be read, or there are none\n");
        }
        format!("plugin: {}\n{images}", self.plugin)
    }
}

/// Returns a sentence for each of these pods that does not start, with the last words of its program.
pub(crate) fn not_started(pods: &[Item<OperatorPod>]) -> Vec<String> {
    let sentence = |pod: &Item<OperatorPod>| {
        let statuses = pod.ok()?.status.as_ref()?.container_statuses.as_ref()?;
        let why = statuses.iter().find_map(why_not_started)?;
        Some(format!("{}: {why}", words::name(pod.name())))
    };
    pods.iter().filter_map(sentence).collect()
}

fn why_not_started(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    if ["ContainerCreating", "PodInitializing"].contains(&reason) {
        return None;
    }
    let before = container.last_state.as_ref();
    let ended = before.and_then(|state| state.terminated.as_ref());
    let said = ended.and_then(|ended| ended.message.as_deref());
    let last = said.and_then(|said| said.trim().lines().last());
    let last = last.or(waiting.message.as_deref()).unwrap_or_default();
    let (reason, last) = (shown(reason, WORD_MAX), shown(last, MESSAGE_MAX));
    Some(format!("{reason}: {last}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_does_not_start_is_quoted() {
        let pod = |status: serde_json::Value| {
            let container = json!({"name": "reconciler", "image": "brupop:v1", "imageID": "", "ready": false, "restartCount": 3,
                "state": status["state"], "lastState": status["lastState"]});
            serde_json::from_value::<Item<OperatorPod>>(
                json!({"metadata": {"name": "brupop-reconciler-1"},
                "spec": {"containers": [{"name": "reconciler", "image": "brupop:v1"}]},
                "status": {"containerStatuses": [container]}}),
            )
            .unwrap()
        };
        let crashes = json!({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "started\nError: write 3\u{1b}[2J\n"}}});
        let unpullable =
            json!({"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}});
        for (status, expected) in [
            (
                crashes,
                Some("brupop-reconciler-1: CrashLoopBackOff: Error: write 3\\u{1b}[2J"),
            ),
            (
                unpullable,
                Some("brupop-reconciler-1: ErrImagePull: no such image"),
            ),
            (
                json!({"state": {"waiting": {"reason": "ContainerCreating"}}}),
                None,
            ),
            (json!({"state": {"running": {}}}), None),
        ] {
            let told = not_started(&[pod(status)]);
            assert_eq!(told.first().map(String::as_str), expected);
        }
        let versions = versions(&[pod(json!({})), pod(json!({}))]);
        assert_eq!(versions.images, ["reconciler: brupop:v1"]);
    }
}
