//! A whole cluster: control plane, nodes with simulated hosts, kubelets, and the shipped operator on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::{BottlerocketFleet, BottlerocketShadow, names};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{from_value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::history::History;
use crate::host::{Durations, Faults, Host, HostOptions};
use crate::operator::{NAMESPACE, apply_overlay, binaries, programs};
use crate::{ControlPlane, Kubelets, NewNode, Options, await_until};

/// The version that every host begins with.
pub const OLD: &str = "1.19.4";
/// The version that [`Fleet::publish`] usually offers.
pub const NEW: &str = "1.20.0";

const VARIANT: &str = "aws-k8s-1.29";
/// The namespace of the workloads.
const SHOP: &str = "shop";
const DEADLINE: Duration = Duration::from_secs(90);

/// How a fleet is made.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// How many nodes, `node-0` and so on.
    pub nodes: usize,
    /// Variables of the operator's processes, over those of the shipped configuration.
    pub env: Vec<(String, String)>,
    /// How long things take on the hosts.
    pub durations: Durations,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self { nodes: 3, env: vec![], durations: Durations::default() }
    }
}

/// A running fleet. Dropping it ends everything.
pub struct Fleet {
    watching: JoinSet<()>,
    history: Arc<Mutex<History>>,
    /// The kubelets; they end before what their processes talk to.
    pub kubelets: Kubelets,
    /// The hosts, by number of the node.
    pub hosts: Vec<Host>,
    /// The control plane.
    pub control_plane: ControlPlane,
}

impl Fleet {
    /// Starts the control plane, the nodes with their hosts, and the operator by the default overlay. Returns when every
    /// node is seen Idle by its agent. `say` is told what is being done.
    ///
    /// # Errors
    /// Something did not start in time; the logs are shown.
    pub async fn start(options: &FleetOptions, say: impl Fn(&str)) -> Result<Self> {
        let binaries = binaries(&["brupop-agent", "brupop-reconciler", "brupop-webhook"])?;
        say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok");
        let control_plane = ControlPlane::start(Options::CLUSTER).await?;
        say(&format!("applying kustomize/overlays/default, {} nodes join", options.nodes));
        apply_overlay(&control_plane, "default").await?;
        let mut env: Vec<(&str, &str)> = vec![
            ("BOTTLEROCKET_API_SOCKET", "/run/api.sock"),
            ("BOOT_ID_FILE", "/proc/sys/kernel/random/boot_id"),
            // Every node here is new.
            ("MIN_NODE_AGE_SECONDS", "0"),
        ];
        env.extend(options.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let kubelets = Kubelets::start(&control_plane, programs(&binaries, &env));
        let history = Arc::<Mutex<History>>::default();
        let watching = watch(control_plane.client(), &history);
        let mut fleet = Self { watching, history, kubelets, hosts: vec![], control_plane };
        for number in 0..options.nodes {
            fleet.join(number, options.durations).await?;
        }
        say("waiting for every agent to report");
        fleet
            .until("every shadow is Idle and every host is known", DEADLINE, |history| {
                let nodes: Vec<_> = history.now().collect();
                nodes.len() == options.nodes
                    && nodes.iter().all(|(_, seen)| seen.is_idle() && seen.version.is_some())
            })
            .await?;
        Ok(fleet)
    }

    /// The node `node-<number>` with its host, which becomes the last of [`Fleet::hosts`].
    ///
    /// # Errors
    /// The API server refuses, or the host does not start.
    pub async fn join(&mut self, number: usize, durations: Durations) -> Result<()> {
        let mut node = NewNode::numbered(number)?;
        let host = Host::start(HostOptions {
            socket: self.kubelets.api_socket(&node.name)?,
            version: OLD.to_owned(),
            variant: VARIANT.to_owned(),
            arch: "x86_64".to_owned(),
            boot_id_file: self.kubelets.boot_id_file(&node.name)?,
            durations,
            faults: Faults::default(),
        })
        .await?;
        node.os_image = host.pretty_name();
        node.boot_id = host.boot_id();
        node.create(&self.client()).await?;
        self.kubelets.attach(&node.name, host.power());
        self.hosts.push(host);
        Ok(())
    }

    /// Another machine takes the place of this one, under the same name: the Node is deleted and made again, and what
    /// runs on it is started anew.
    ///
    /// # Errors
    /// There is no such host, or the API server refuses.
    pub async fn replace(&self, number: usize) -> Result<()> {
        let host = self.hosts.get(number).with_context(|| format!("host {number}"))?;
        let mut node = NewNode::numbered(number)?;
        Api::<Node>::all(self.client()).delete(&node.name, &DeleteParams::default()).await?;
        node.os_image = host.pretty_name();
        node.boot_id = host.boot_id();
        node.create(&self.client()).await?;
        host.reboot_now();
        Ok(())
    }

    /// Changes what people adjust (but for what [`FleetOptions::env`] sets) and restarts the reconcilers; returns when
    /// one of them leads.
    ///
    /// # Errors
    /// The API server refuses, or none leads in time.
    pub async fn configure(&self, settings: &[(&str, &str)]) -> Result<()> {
        let settings: BTreeMap<_, _> = settings.iter().copied().collect();
        let maps = Api::<ConfigMap>::namespaced(self.client(), NAMESPACE);
        let patch = Patch::Merge(json!({"data": settings}));
        maps.patch("brupop-configuration", &PatchParams::default(), &patch).await?;
        let term = async || self.ledger().get("fleet").await.ok()?.status?.term;
        let before = term().await;
        let reconcilers = ListParams::default().labels(&format!("{}=reconciler", names::COMPONENT_LABEL));
        let pods = Api::<Pod>::namespaced(self.client(), NAMESPACE);
        pods.delete_collection(&DeleteParams::default(), &reconcilers).await?;
        await_until("another reconciler leads", DEADLINE, async || {
            term().await.filter(|now| Some(*now) > before)
        })
        .await?;
        Ok(())
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }

    /// The shadows.
    pub fn shadows(&self) -> Api<BottlerocketShadow> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// The ledger.
    pub fn ledger(&self) -> Api<BottlerocketFleet> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// What happened so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every host's repository has a new image.
    ///
    /// # Errors
    /// The version is not semver.
    pub fn publish(&self, version: &str) -> Result<()> {
        self.hosts.iter().try_for_each(|host| host.publish(version))
    }

    /// Awaits something of the fleet's history.
    ///
    /// # Errors
    /// The deadline has passed: what the fleet looked like then, and the operator's logs.
    pub async fn until(
        &self,
        what: &str,
        deadline: Duration,
        condition: impl Fn(&History) -> bool,
    ) -> Result<()> {
        let waited = await_until(what, deadline, async || condition(&self.history()).then_some(())).await;
        waited.with_context(|| self.report())
    }

    /// Awaits that every node runs this version, Idle, with nothing left on it.
    ///
    /// # Errors
    /// As [`Fleet::until`].
    pub async fn until_updated(&self, version: &str, deadline: Duration) -> Result<()> {
        self.until(&format!("every node runs {version}"), deadline, |history| {
            history.now().all(|(_, seen)| {
                seen.is_idle() && !seen.is_unavailable() && seen.version.as_deref() == Some(version)
            })
        })
        .await
    }

    /// What is known of every node, and the end of the operator's logs: for those who wait in vain.
    fn report(&self) -> String {
        let nodes: Vec<String> =
            self.history().now().map(|(node, seen)| format!("{node}: {seen:?}")).collect();
        let pods = self.kubelets.processes();
        let logs = pods
            .iter()
            .map(|process| format!("--- {}\n{}", process.pod, self.control_plane.log(&process.pod)));
        format!("{}\n{}", nodes.join("\n"), logs.collect::<Vec<_>>().join("\n"))
    }

    /// A Deployment with a disruption budget in the namespace `shop`; returns when all of its pods run.
    ///
    /// # Errors
    /// The API server refuses, or the pods do not run in time.
    pub async fn deploy(&self, name: &str, replicas: usize, max_unavailable: &str) -> Result<()> {
        let client = self.client();
        let namespace: Namespace = from_value(json!({"metadata": {"name": SHOP}}))?;
        if Api::<Namespace>::all(client.clone()).get_opt(SHOP).await?.is_none() {
            Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        }
        let max_unavailable =
            max_unavailable.parse::<u32>().map_or_else(|_| json!(max_unavailable), |n| json!(n));
        let labels = json!({"app": name});
        let budget: PodDisruptionBudget = from_value(json!({
            "metadata": {"name": name},
            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": labels}},
        }))?;
        Api::namespaced(client.clone(), SHOP).create(&PostParams::default(), &budget).await?;
        let deployment: Deployment = from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": name, "image": "none"}],
                        "topologySpreadConstraints": [{
                            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels},
                        }],
                    },
                },
            },
        }))?;
        let deployments = Api::<Deployment>::namespaced(client, SHOP);
        deployments.create(&PostParams::default(), &deployment).await?;
        await_until(format!("{replicas} pods of {name} run"), DEADLINE, async || {
            let status = deployments.get(name).await.ok()?.status?;
            (usize::try_from(status.available_replicas?).ok()? == replicas).then_some(())
        })
        .await?;
        Ok(())
    }

    /// One more pod under the budget of a Deployment made by [`Fleet::deploy`], for which there is no node; returns when
    /// the budget counts it as away.
    ///
    /// # Errors
    /// The API server refuses, or the budget does not take notice in time.
    pub async fn deploy_spare(&self, name: &str) -> Result<()> {
        let spare: Deployment = from_value(json!({
            "metadata": {"name": format!("{name}-spare")},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name, "spare": "yes"}},
                "template": {
                    "metadata": {"labels": {"app": name, "spare": "yes"}},
                    "spec": {
                        "nodeSelector": {"example.com/no-node-has-this": "yes"},
                        "containers": [{"name": name, "image": "none"}],
                    },
                },
            },
        }))?;
        Api::namespaced(self.client(), SHOP).create(&PostParams::default(), &spare).await?;
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client(), SHOP);
        await_until(format!("the budget of {name} allows no disruption"), DEADLINE, async || {
            let status = budgets.get(name).await.ok()?.status?;
            (status.disruptions_allowed == 0 && status.expected_pods > status.current_healthy).then_some(())
        })
        .await?;
        Ok(())
    }

    /// Sets the budget of a Deployment made by [`Fleet::deploy`] to this many unavailable pods.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn allow_unavailable(&self, name: &str, max_unavailable: u32) -> Result<()> {
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client(), SHOP);
        let patch = Patch::Merge(json!({"spec": {"maxUnavailable": max_unavailable}}));
        budgets.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// A token as the agent on this node has it.
    ///
    /// # Errors
    /// There is no agent's pod on the node.
    pub async fn agents_token(&self, node: &str) -> Result<String> {
        let pods = Api::<Pod>::namespaced(self.client(), NAMESPACE);
        let agents = ListParams::default()
            .labels(&format!("{}=agent", names::COMPONENT_LABEL))
            .fields(&format!("spec.nodeName={node}"));
        let pod = pods.list(&agents).await?.items.pop().with_context(|| format!("no agent on {node}"))?;
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.context("a pod without an account")?;
        self.control_plane.bound_token(NAMESPACE, &account, &pod.name_any()).await
    }

    /// The operator's processes of one component.
    pub fn processes(&self, component: &str) -> Vec<crate::kubelet::PodProcess> {
        self.kubelets.processes().into_iter().filter(|process| process.component == component).collect()
    }

    /// All is well with the test bed itself.
    ///
    /// # Errors
    /// A program of the control plane has ended, or the watches have.
    pub fn check(&mut self) -> Result<()> {
        ensure!(self.watching.try_join_next().is_none(), "a watch has ended");
        self.control_plane.check()
    }
}

/// Keeps the history.
fn watch(client: Client, history: &Arc<Mutex<History>>) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    let shadows =
        watcher(Api::<BottlerocketShadow>::namespaced(client.clone(), NAMESPACE), watcher::Config::default());
    let nodes = watcher(Api::<Node>::all(client), watcher::Config::default());
    let kept = Arc::clone(history);
    watching.spawn(async move {
        let mut shadows = shadows.default_backoff().applied_objects().boxed();
        while let Some(event) = shadows.next().await {
            if let Ok(shadow) = event {
                kept.lock().unwrap_or_else(PoisonError::into_inner).shadow(Instant::now(), &shadow);
            }
        }
    });
    let kept = Arc::clone(history);
    watching.spawn(async move {
        let mut nodes = nodes.default_backoff().applied_objects().boxed();
        while let Some(event) = nodes.next().await {
            if let Ok(node) = event {
                kept.lock().unwrap_or_else(PoisonError::into_inner).node(Instant::now(), &node);
            }
        }
    });
    watching
}
