//! Node objects, as the kubelet of a Bottlerocket host would register them.

use crate::host::Host;
use crate::mended::Mended;
use anyhow::{Context as _, Result};
use brupop_api::names;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// kwok looks after nodes on which this is `fake`.
pub(crate) const KWOK_ANNOTATION: &str = "kwok.x-k8s.io/node";
/// Nodes that are made at once.
const PARALLEL: usize = 16;
const ZONES: [&str; 3] = ["eu-central-1a", "eu-central-1b", "eu-central-1c"];

/// A node to be made.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// The node's name, and its host name.
    pub name: String,
    /// Labels; those of [`NewNode::numbered`] opt in to updates.
    pub labels: BTreeMap<String, String>,
    pub os_image: String,
    pub boot_id: String,
}

impl NewNode {
    /// Node `node-<number>`, opted in to updates, in one of three zones, on Bottlerocket 1.19.4.
    pub fn numbered(number: usize) -> Self {
        let name = format!("node-{number}");
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels = BTreeMap::from([
            label(
                names::UPDATER_INTERFACE_LABEL,
                names::UPDATER_INTERFACE_VERSION,
            ),
            label("topology.kubernetes.io/zone", ZONES[number % ZONES.len()]),
            label("topology.kubernetes.io/region", "eu-central-1"),
            label("kubernetes.io/hostname", &name),
            label("kubernetes.io/os", "linux"),
            label("kubernetes.io/arch", "amd64"),
        ]);
        Self {
            boot_id: format!("boot-of-{name}"),
            name,
            labels,
            os_image: "Bottlerocket OS 1.19.4 (aws-k8s-1.29)".to_owned(),
        }
    }

    /// The node on this host.
    #[must_use]
    pub fn on(self, host: &Host) -> Self {
        let (os_image, boot_id) = (host.pretty_name(), host.boot_id());
        Self {
            os_image,
            boot_id,
            ..self
        }
    }

    /// Makes the node, Ready and empty.
    pub async fn create(&self, client: &Client) -> Result<Node> {
        let api = Api::<Node>::all(client.clone());
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": self.name, "labels": self.labels, "annotations": {KWOK_ANNOTATION: "fake"}},
        }))?;
        api.create(&PostParams::default(), &node)
            .await
            .with_context(|| format!("node {}", self.name))?;
        self.tell(client).await
    }

    /// Tells the status of the node once it is there.
    pub async fn tell(&self, client: &Client) -> Result<Node> {
        patch_status(client, &self.name, &self.status()).await
    }

    fn status(&self) -> Value {
        let room =
            json!({"cpu": "4", "memory": "16Gi", "ephemeral-storage": "80Gi", "pods": "110"});
        let pressure = ["MemoryPressure", "DiskPressure", "PIDPressure"];
        let mut conditions: Vec<_> = pressure
            .map(|kind| condition(kind, "False", "Enough", "enough left"))
            .into();
        conditions.push(ready());
        json!({
            "capacity": room, "allocatable": room, "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": self.name}],
            // By this the API server speaks WebSocket to the kubelet, too.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "machineID": "", "systemUUID": "",
                "kernelVersion": "6.1.102", "containerRuntimeVersion": "containerd://1.7.22",
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
                "osImage": self.os_image, "bootID": self.boot_id,
            },
        })
    }
}

/// Makes the nodes `node-0` to `node-<n-1>`, side by side.
pub async fn make_nodes(client: &Client, n: usize) -> Result<Vec<Node>> {
    let nodes = futures::stream::iter(0..n)
        .map(async |number| NewNode::numbered(number).create(client).await);
    nodes.buffered(PARALLEL).try_collect().await
}

/// The Ready condition of a node that is.
pub(crate) fn ready() -> Value {
    condition(
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    )
}

/// The Ready condition of a node that is not.
pub(crate) fn not_ready(message: &str) -> Value {
    condition("Ready", "False", "KubeletNotReady", message)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let now = Timestamp::now();
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now})
}

/// Merges into the status of a node; conditions by their type.
pub(crate) async fn patch_status(client: &Client, node: &str, status: &Value) -> Result<Node> {
    let patch = Patch::Strategic(json!({"status": status}));
    let api = Api::<Mended<Node>>::all(client.clone());
    let Mended(written) = api
        .patch_status(node, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("status of node {node}"))?;
    Ok(written)
}
