//! Thousands of nodes, as the API server knows them, and nobody on them: what a reconciler wants of a node stays wanted.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, names};
use brupop_testbed::fleet::NEW;
use brupop_testbed::objects::merge_status;
use brupop_testbed::operator::{NAMESPACE, apply_elsewhere, make_namespace, only};
use brupop_testbed::sandbox::Signal;
use brupop_testbed::{ControlPlane, Kubelets, Options};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value as Json, json};
use tokio::time::interval;

const TENANT: &str = "tenant";
/// Logs the metadata of requests and their answers.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [{"level": "Metadata"}]}"#;
/// A Node, its shadow and its agent's pod, as etcd has them: with as many images as a kubelet names.
const NODE: &str = include_str!("node.json");
/// A tenant's pod on it.
const POD: &str = include_str!("pod.json");
/// Objects that etcd is given in one request, of at most 12 kB each; and how many of these are under way at once.
const STORED_AT_ONCE: usize = 64;
const STORES: usize = 8;
const BETWEEN_CHANGES: Duration = Duration::from_millis(10);

/// A cluster with the webhook as shipped on nodes that are not opted in.
pub struct World {
    /// They end before what their processes talk to.
    _kubelets: Kubelets,
    pub control_plane: ControlPlane,
}

impl World {
    /// Starts it. The controllers are stopped once the webhook runs: they have nothing to do here, and would find the
    /// nodes without a kubelet.
    pub async fn start() -> Result<Self> {
        let options = Options {
            audit_policy: Some(AUDIT_POLICY),
            ..Options::CLUSTER
        };
        let control_plane = ControlPlane::start(options).await?;
        apply_elsewhere(&control_plane).await?;
        let scale = format!("-n {NAMESPACE} scale deployment brupop-reconciler --replicas=0");
        control_plane.kubectl(scale.split(' ')).await?;
        let kubelets = Kubelets::start(&control_plane, only(&["brupop-webhook"], &[])?, None);
        let webhook = "deployment/brupop-webhook";
        control_plane.until_rolled_out(NAMESPACE, webhook).await?;
        for program in ["kube-controller-manager", "kube-scheduler"] {
            control_plane.signal(program, Signal::STOP)?;
        }
        // No node has to try the version first.
        let fleet = json!({
            "apiVersion": BottlerocketFleet::api_version(&()), "kind": "BottlerocketFleet",
            "metadata": {"name": names::FLEET}, "spec": {},
        });
        let proven = json!({"version": NEW, "variant": "aws-k8s-1.29-amd64", "succeeded": 1});
        let params = PatchParams::apply("bench");
        let fleets = Api::<BottlerocketFleet>::namespaced(control_plane.client(), NAMESPACE);
        fleets
            .patch(names::FLEET, &params, &Patch::Apply(fleet))
            .await?;
        merge_status(&fleets, names::FLEET, json!({"versions": [proven]})).await?;
        make_namespace(&control_plane.client(), TENANT).await?;
        Ok(Self {
            _kubelets: kubelets,
            control_plane,
        })
    }

    /// Makes the nodes `node-0` and so on, with their shadows, agents' pods, and `pods` of tenants; for the first nodes there
    /// is an update. All of it is put into etcd: asking the API server for 150,000 pods takes two cores 39 minutes.
    pub async fn populate(&self, nodes: usize, pods: usize, waiting: usize) -> Result<()> {
        let of_node = |node: usize| {
            let pods = (0..pods).map(|pod| POD.replace("POD", &pod.to_string()));
            let all = [NODE.to_owned()].into_iter().chain(pods);
            all.flat_map(move |text| objects(&text, node, node < waiting))
        };
        futures::stream::iter((0..nodes).flat_map(of_node))
            .chunks(STORED_AT_ONCE)
            .map(async |objects| self.control_plane.store(&objects).await)
            .buffer_unordered(STORES)
            .try_collect()
            .await
    }

    /// The agent of this node reports that its host has chosen the update.
    pub async fn is_known(&self, node: usize) -> Result<()> {
        let name = format!("brs-node-{node}");
        let shadows = Api::<BottlerocketShadow>::namespaced(self.control_plane.client(), NAMESPACE);
        merge_status(&shadows, &name, json!({"target_version": NEW})).await?;
        Ok(())
    }

    /// For this long, the status of another pod of these nodes changes each hundredth of a second, agents' pods among them;
    /// returns how many did.
    pub async fn change_pods(
        &self,
        nodes: Range<usize>,
        pods: usize,
        time: Duration,
    ) -> Result<usize> {
        let (began, mut ticks, mut number) = (Instant::now(), interval(BETWEEN_CHANGES), 0);
        while began.elapsed() < time {
            ticks.tick().await;
            let node = nodes.start + number % nodes.len();
            let (namespace, name) = match number % (pods + 1) {
                0 => (NAMESPACE, format!("brupop-agent-node-{node}")),
                nth => (TENANT, pod_name(node, nth - 1)),
            };
            let status = json!({"message": format!("change {number}")});
            let pods = Api::<Pod>::namespaced(self.control_plane.client(), namespace);
            let changed = merge_status(&pods, &name, status).await;
            changed.with_context(|| name.clone())?;
            number += 1;
        }
        Ok(number)
    }
}

/// These objects as they are on this node, and their keys.
fn objects(text: &str, node: usize, waits: bool) -> impl Iterator<Item = (String, Json)> + use<> {
    let text = text.replace("NODE", &node.to_string());
    let all: Vec<Json> = serde_json::from_str(&text).unwrap_or_default();
    all.into_iter().map(move |mut object| {
        let folder = match object["kind"].as_str() {
            Some("Node") => "minions".to_owned(),
            Some("Pod") => format!(
                "pods/{}",
                object["metadata"]["namespace"].as_str().unwrap_or_default()
            ),
            _ => format!("{}/bottlerocketshadows/{NAMESPACE}", names::GROUP),
        };
        if !waits && object["kind"] == "BottlerocketShadow" {
            object["status"]["target_version"] = Json::Null;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        (format!("/registry/{folder}/{name}"), object)
    })
}

fn pod_name(node: usize, number: usize) -> String {
    format!("cart-node-{node}-{number}")
}
