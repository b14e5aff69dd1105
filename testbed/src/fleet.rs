//! A whole cluster: control plane, nodes with simulated hosts, kubelets, and the shipped operator on it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_api::{BottlerocketFleet, BottlerocketShadow};
use kube::Client;
use kube::api::Api;
use tokio::task::JoinSet;

use crate::gateways::Gateways;
use crate::history::History;
use crate::host::{Durations, Host, lock};
use crate::operator::{NAMESPACE, apply_overlay, installed, owned, programs};
use crate::{ControlPlane, DEADLINE, Kubelets, Options, Program, agents, await_progress};

mod assertions;
mod changes;
mod records;
mod terms;
mod user_actions;
pub mod watch;
mod workloads;

pub use records::Records;

/// The version that every host begins with.
pub const OLD: &str = "1.19.4";
/// The version that [`Fleet::publish`] usually offers.
pub const NEW: &str = "1.20.0";

/// The options of a fleet.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// Number of nodes, `node-0` and so on.
    pub nodes: usize,
    /// Variables of the operator's processes, over those of the shipped configuration.
    pub env: Vec<(String, String)>,
    /// Durations of commands and reboots on the hosts.
    pub durations: Durations,
    /// The variants of the hosts, in turn.
    pub variants: &'static [&'static str],
    /// Programs beside etcd and the API server.
    pub control_plane: Options,
    /// Whether each pod reaches the API server through a gateway of its own.
    pub behind_gateways: bool,
    /// Whether [`Fleet::start`] copies a control plane on which the default overlay was installed once.
    pub copied: bool,
    /// Is told what is being done until every agent reports.
    pub say: fn(&str),
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            nodes: 3,
            env: vec![],
            durations: Durations::default(),
            variants: &["aws-k8s-1.36"],
            control_plane: Options::CLUSTER,
            behind_gateways: false,
            copied: false,
            say: |_| (),
        }
    }
}

impl FleetOptions {
    /// The shipped configuration with the patience of a test, and these variables over it. A command takes the hosts
    /// 200 ms, a reboot 600 ms.
    pub fn quick(nodes: usize, env: &[(&str, &str)]) -> Self {
        let quick = [
            ("SOAK_SECONDS", "0"),
            ("REFRESH_INTERVAL", "1s"),
            ("START_JITTER", "0s"),
            ("POLL_INTERVAL", "20ms"),
            // A leader keeps its Lease on a busy machine, too: what was not told yet when it lapses is not told any more.
            ("LEASE_DURATION_SECONDS", "15"),
        ];
        let moment = Duration::from_millis(200);
        Self {
            nodes,
            env: owned(&[&quick, env].concat()),
            durations: Durations {
                refresh: Duration::from_millis(50),
                prepare: moment,
                activate: moment,
                deactivate: moment,
                reboot: Duration::from_millis(600),
            },
            copied: true,
            ..Self::default()
        }
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
    variants: &'static [&'static str],
    /// Through which pods reach the API server, if not directly.
    pub gateways: Option<Gateways>,
    pub control_plane: ControlPlane,
}

impl Fleet {
    /// Starts the control plane, the nodes with their hosts, and the operator by the default overlay. Returns when every
    /// node is seen Idle by its agent.
    pub async fn start(options: &FleetOptions) -> Result<Self> {
        if options.copied {
            let control_plane = installed(options.control_plane).await?;
            let runs = async |_: &ControlPlane, env: &[(&str, &str)]| programs(env);
            return Self::on(control_plane, options, runs)
                .await?
                .complete(options)
                .await;
        }
        let install = async |control_plane: &ControlPlane, env: &[(&str, &str)]| {
            apply_overlay(control_plane, "default").await?;
            programs(env)
        };
        Self::start_with(options, install).await
    }

    pub async fn quick(nodes: usize, env: &[(&str, &str)]) -> Result<Self> {
        Self::start(&FleetOptions::quick(nodes, env)).await
    }

    /// As [`Fleet::start`], with an operator of one's own: `install` applies its manifests and returns what runs for its
    /// containers' commands, each with the variables it is given.
    pub async fn start_with(
        options: &FleetOptions,
        install: impl AsyncFnOnce(&ControlPlane, &[(&str, &str)]) -> Result<Vec<(String, Program)>>,
    ) -> Result<Self> {
        Self::bare(options, install).await?.complete(options).await
    }

    /// All nodes join, and every agent reports.
    async fn complete(mut self, options: &FleetOptions) -> Result<Self> {
        self.watch();
        for number in 0..options.nodes {
            self.join(number, options.durations).await?;
        }
        (options.say)("waiting for every agent to report");
        self.until("every shadow is Idle and every host is known", |history| {
            let nodes: Vec<_> = history.now().collect();
            nodes.len() == options.nodes
                && nodes
                    .iter()
                    .all(|(_, seen)| seen.is_idle() && seen.version.is_some())
        })
        .await?;
        Ok(self)
    }

    /// A control plane and kubelets, with what `install` installs: nobody has joined yet, and nobody watches.
    pub async fn bare(
        options: &FleetOptions,
        install: impl AsyncFnOnce(&ControlPlane, &[(&str, &str)]) -> Result<Vec<(String, Program)>>,
    ) -> Result<Self> {
        (options.say)(
            "starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok",
        );
        Self::on(
            ControlPlane::start(options.control_plane).await?,
            options,
            install,
        )
        .await
    }

    async fn on(
        control_plane: ControlPlane,
        options: &FleetOptions,
        install: impl AsyncFnOnce(&ControlPlane, &[(&str, &str)]) -> Result<Vec<(String, Program)>>,
    ) -> Result<Self> {
        (options.say)(&format!(
            "applying kustomize/overlays/default, {} nodes join",
            options.nodes
        ));
        let mut env: Vec<(&str, &str)> = vec![
            ("BOTTLEROCKET_API_SOCKET", "/run/api.sock"),
            ("BOOT_ID_FILE", "/proc/sys/kernel/random/boot_id"),
            // People cordon many nodes here, and nobody waits for an hour.
            ("CORDONED_BY_OTHERS_SECONDS", "0"),
            // Every node here is new.
            ("MIN_NODE_AGE_SECONDS", "0"),
        ];
        env.extend(
            options
                .env
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        let gateways = options
            .behind_gateways
            .then(|| Gateways::of(&control_plane));
        let programs = install(&control_plane, &env).await?;
        let kubelets = Kubelets::start(&control_plane, programs, gateways.clone());
        let history = Arc::<Mutex<History>>::default();
        Ok(Self {
            watching: JoinSet::new(),
            history,
            kubelets,
            hosts: vec![],
            variants: options.variants,
            gateways,
            control_plane,
        })
    }

    /// Keeps the history from now on.
    pub fn watch(&mut self) {
        self.watching = watch::start(&self.client(), &self.history);
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }

    pub fn shadows(&self) -> Api<BottlerocketShadow> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub fn ledger(&self) -> Api<BottlerocketFleet> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Returns what happened so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Every host's repository has a new image.
    pub fn publish(&self, version: &str) -> Result<()> {
        self.hosts.iter().try_for_each(|host| host.publish(version))
    }

    /// Awaits something of the fleet's history, and fails once nothing has changed for [`DEADLINE`].
    pub async fn until(&self, what: &str, condition: impl Fn(&History) -> bool) -> Result<()> {
        let progress = || self.history().last_change();
        let so = async || condition(&self.history()).then_some(());
        let waited = await_progress(DEADLINE, what, progress, so).await;
        waited.with_context(|| self.report())
    }

    /// Awaits that every node runs this version, Idle, with nothing left on it.
    pub async fn until_updated(&self, version: &str) -> Result<()> {
        self.until(&format!("every node runs {version}"), |history| {
            history.now().count() > 0 && history.now().all(|(_, seen)| seen.runs(version))
        })
        .await
    }

    /// Returns what is known of every node, and the end of the operator's logs: for an error's text.
    fn report(&self) -> String {
        let nodes: Vec<String> = self
            .history()
            .now()
            .map(|(node, seen)| format!("{node}: {seen:?}"))
            .collect();
        let pods = self.kubelets.processes();
        let logs = pods.iter().map(|process| {
            format!(
                "--- {}\n{}",
                process.pod,
                self.control_plane.log(&process.pod)
            )
        });
        format!(
            "{}\n{}",
            nodes.join("\n"),
            logs.collect::<Vec<_>>().join("\n")
        )
    }

    /// The shadows, by a token as the agent on this node has it.
    pub async fn agents_shadows(&self, node: &str) -> Result<Api<BottlerocketShadow>> {
        let token = agents::token(&self.control_plane, node).await?;
        Ok(Api::namespaced(
            self.control_plane.client_for_token(&token).await?,
            NAMESPACE,
        ))
    }

    /// The operator's processes of one component.
    pub fn processes(&self, component: &str) -> Vec<crate::kubelet::PodProcess> {
        self.kubelets
            .processes()
            .into_iter()
            .filter(|process| process.component == component)
            .collect()
    }

    /// All is well with the test bed itself.
    pub fn check(&mut self) -> Result<()> {
        ensure!(self.watching.try_join_next().is_none(), "a watch has ended");
        self.control_plane.check()
    }
}
