//! Thousands of nodes, as the API server knows them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, State, names};
use brupop_testbed::fleet::{NEW, OLD};
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{ControlPlane, NewNode, await_within};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, from_value, json};
use tokio::time::{Instant, interval};

use super::tenants::make_running;
use crate::webhook::Cluster;

/// Requests under way at once while nodes are made.
const PARALLEL: usize = 50;
/// Images in the status of a node: as many as a kubelet names.
const IMAGES: usize = 50;
/// How often a kubelet says that nothing has changed.
const HEARTBEAT: Duration = Duration::from_mins(5);
const DEADLINE: Duration = Duration::from_mins(10);

/// A cluster, and what its nodes and agents report.
pub struct World {
    cluster: Cluster,
}

impl World {
    /// Starts it. The controllers are stopped once the webhook runs: they have nothing to do here, and would find the
    /// nodes without a kubelet.
    pub async fn start() -> Result<Self> {
        let cluster = Cluster::start(2).await?;
        cluster
            .control_plane
            .signal("kube-controller-manager", Signal::STOP)?;
        cluster
            .control_plane
            .signal("kube-scheduler", Signal::STOP)?;
        Ok(Self { cluster })
    }

    pub fn control_plane(&self) -> &ControlPlane {
        &self.cluster.control_plane
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    fn shadows(&self) -> Api<BottlerocketShadow> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Makes the nodes `node-0` and so on, with their shadows and agents' pods; for the first of them there is an update.
    pub async fn populate(&self, nodes: usize, waiting: usize) -> Result<()> {
        let agents = Api::<DaemonSet>::namespaced(self.client(), NAMESPACE)
            .get("brupop-agent")
            .await?;
        let owner = agents
            .controller_owner_ref(&())
            .context("a DaemonSet without UID")?;
        let made = futures::stream::iter(0..nodes)
            .map(|number| self.make(number, number < waiting, &owner));
        made.buffer_unordered(PARALLEL).try_collect().await
    }

    async fn make(&self, number: usize, waits: bool, agents: &OwnerReference) -> Result<()> {
        let client = self.client();
        let new = NewNode::numbered(number)?;
        let node = new.create(&client).await?;
        let images = Patch::Merge(json!({"status": {"images": images()}}));
        let params = PatchParams::default();
        Api::<Node>::all(client.clone())
            .patch_status(&new.name, &params, &images)
            .await?;
        let name = names::shadow_name(&new.name);
        let shadow: BottlerocketShadow = from_value(json!({
            "metadata": {
                "name": name,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": new.name, "uid": node.uid()}],
            },
            "spec": {"state": "Idle"},
        }))?;
        self.shadows()
            .create(&PostParams::default(), &shadow)
            .await?;
        let status = json!({"status": {
            "current_state": State::Idle, "current_version": OLD, "target_version": waits.then_some(NEW),
            "boot_id": new.boot_id, "crash_count": 0,
        }});
        self.shadows()
            .patch_status(&name, &params, &Patch::Merge(status))
            .await?;
        agents_pod(&client, &new.name, agents).await
    }

    /// The agent of this node reports that its host has chosen the update.
    pub async fn is_known(&self, node: usize) -> Result<()> {
        let name = names::shadow_name(&format!("node-{node}"));
        let status = Patch::Merge(json!({"status": {"target_version": NEW}}));
        self.shadows()
            .patch_status(&name, &PatchParams::default(), &status)
            .await?;
        Ok(())
    }

    /// No node waits for an update any more, and none is in mid-update.
    pub async fn nothing_waits(&self, nodes: usize) -> Result<()> {
        let shadows = self.shadows();
        let none = Patch::Merge(json!({"status": {"target_version": null}}));
        let list = shadows.list(&ListParams::default()).await?.items;
        anyhow::ensure!(list.len() == nodes, "{} shadows", list.len());
        let waits = |shadow: &BottlerocketShadow| {
            shadow
                .status
                .as_ref()
                .is_some_and(|status| status.target_version.is_some())
        };
        for shadow in list
            .iter()
            .filter(|shadow| waits(shadow) && shadow.spec.state == State::Idle)
        {
            shadows
                .patch_status(&shadow.name_any(), &PatchParams::default(), &none)
                .await?;
        }
        self.rests().await
    }

    /// All that waited for an update have it.
    pub async fn rests(&self) -> Result<()> {
        let ledger = Api::<BottlerocketFleet>::namespaced(self.client(), NAMESPACE);
        await_within(DEADLINE, "nothing is updated any more", async || {
            let status = ledger.get(names::FLEET).await.ok()?.status?;
            let counts = status.counts;
            let done = counts.nodes > 0
                && counts.pending_nodes + counts.blocked_nodes + counts.updating_nodes == 0;
            (done && status.slots.is_empty()).then_some(())
        })
        .await
    }

    /// For this long, the kubelets of all nodes say in turn that nothing has changed; returns how often.
    pub async fn heartbeats(&self, nodes: usize, time: Duration) -> Result<usize> {
        let api = Api::<Node>::all(self.client());
        let mut ticks = interval(HEARTBEAT / u32::try_from(nodes)?);
        let (until, mut beats) = (Instant::now() + time, 0);
        while tokio::time::timeout_at(until, ticks.tick()).await.is_ok() {
            let name = format!("node-{}", beats % nodes);
            let now = json!({"type": "Ready", "lastHeartbeatTime": Timestamp::now()});
            let beat = Patch::Strategic(json!({"status": {"conditions": [now]}}));
            api.patch_status(&name, &PatchParams::default(), &beat)
                .await?;
            beats += 1;
        }
        Ok(beats)
    }
}

/// Each with its tag and its digest: 300 bytes.
fn images() -> Vec<Value> {
    let registry = "602401143452.dkr.ecr.eu-central-1.amazonaws.com";
    let image = |number: usize| {
        let name = format!("{registry}/team-{}/service-{number:02}", number % 7);
        json!({
            "names": [format!("{name}@sha256:{number:064x}"), format!("{name}:v1.{number}.0-eksbuild.1")],
            "sizeBytes": 41_943_040 + number * 1_048_576,
        })
    };
    (0..IMAGES).map(image).collect()
}

async fn agents_pod(client: &Client, node: &str, owner: &OwnerReference) -> Result<()> {
    let name = format!("brupop-agent-{node}");
    let pod: Pod = from_value(json!({
        "metadata": {"name": name, "labels": {names::COMPONENT_LABEL: "agent"}, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node, "serviceAccountName": "brupop-agent", "automountServiceAccountToken": false,
            "containers": [{"name": "agent", "image": "none"}],
        },
    }))?;
    make_running(client, NAMESPACE, &name, &pod).await
}
