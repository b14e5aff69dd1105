//! A stand-in for the kubelets of all nodes: runs the pods of our own components as real processes.
//!
//! A pod whose container's command is one of the given [`Program`]s becomes a process, with the environment and
//! arguments of its specification, a token that is bound to it, its readiness probe, restarts and graceful end. What a
//! process cannot have outside of a container is put in its place: a folder of its own for the mounted token, one per
//! node for host paths and the boot id, a free port for each port that the container listens on.
//!
//! All other pods are kwok's. A node that is attached to a [`crate::host::Host`] follows it: when the host goes down
//! its processes are killed and the node is not ready; when it is up again the node shows its new boot id and image,
//! then Ready, and its pods start again.

mod api;
mod container;
mod node;
mod pod;
mod probe;
mod status;
mod watch;

use crate::control_plane::{ControlPlane, Shared};
use crate::gateways::Gateways;
use crate::host::{HostPower, lock};
use crate::kubeconfig::Server;
use crate::sandbox::Signal;
use anyhow::{Context as _, Result, ensure};
use container::BOOT_ID;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use node::Boot;
pub use status::is_ready;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, watch::Receiver, watch::Sender};
use tokio::task::JoinSet;

/// Below the node's folder: where its host puts the socket of its API.
const API_SOCKET: &str = "run/api.sock";

/// The program in place of a container's command.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program outside of its image.
    pub binary: PathBuf,
    /// Variables set after the pod's own. Host paths in them are those of the container.
    pub env: Vec<(String, String)>,
}

/// A process that runs for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProcess {
    pub namespace: String,
    pub pod: String,
    /// The node it runs on.
    pub node: String,
    pub component: String,
    pub pid: u32,
    /// Number of earlier starts of the container.
    pub restarts: i32,
    /// Its addresses, by port of its container.
    pub listens: BTreeMap<i32, SocketAddr>,
}

/// The kubelets of all nodes; dropping it kills their processes.
pub struct Kubelets {
    kubelet: Arc<Kubelet>,
    tasks: Mutex<JoinSet<()>>,
}

struct Kubelet {
    shared: Shared,
    /// Through which each pod reaches the API server, if not directly.
    gateways: Option<Gateways>,
    programs: BTreeMap<String, Program>,
    state: Mutex<KubeletState>,
}

#[derive(Default)]
struct KubeletState {
    boots: HashMap<String, Sender<Boot>>,
    /// Node folders are numbered: paths of Unix sockets must be short.
    node_dirs: HashMap<String, usize>,
    /// By UID of the pod.
    pods: HashMap<String, PodEntry>,
    addresses: u16,
}

struct PodEntry {
    seen: Sender<Arc<Pod>>,
    signals: mpsc::UnboundedSender<Signal>,
    process: Option<PodProcess>,
}

impl Kubelets {
    /// Starts to run pods. `programs` by the first word of a container's `command`; with `gateways`, each pod reaches the API
    /// server through one of its own.
    pub fn start(
        control_plane: &ControlPlane,
        programs: impl IntoIterator<Item = (String, Program)>,
        gateways: Option<Gateways>,
    ) -> Self {
        let programs = programs.into_iter().collect();
        let shared = control_plane.shared();
        let kubelet = Arc::new(Kubelet {
            shared,
            gateways,
            programs,
            state: Mutex::default(),
        });
        let asked = kubelet.shared.services.kubelets();
        let mut tasks = JoinSet::new();
        tasks.spawn(api::serve(Arc::clone(&kubelet), asked));
        tasks.spawn(watch::pods(Arc::clone(&kubelet)));
        Self {
            kubelet,
            tasks: Mutex::new(tasks),
        }
    }

    /// Returns where the host of a node puts the socket of its API: a container that mounts `/run/api.sock` finds it there.
    pub fn api_socket(&self, node: &str) -> Result<PathBuf> {
        made_for(&self.kubelet.node_dir(node)?.join(API_SOCKET))
    }

    /// Returns where the host of a node puts its boot id: the processes of its pods find it there.
    pub fn boot_id_file(&self, node: &str) -> Result<PathBuf> {
        made_for(
            &self
                .kubelet
                .node_dir(node)?
                .join(BOOT_ID.trim_start_matches('/')),
        )
    }

    /// Lets a node follow its host.
    pub fn attach(&self, node: &str, power: Receiver<HostPower>) {
        let boot = self.kubelet.boot(node);
        let following = node::follow(
            self.kubelet.shared.client.clone(),
            node.to_owned(),
            power,
            boot,
        );
        lock(&self.tasks).spawn(following);
    }

    /// The processes that run now, by node and pod.
    pub fn processes(&self) -> Vec<PodProcess> {
        let state = self.kubelet.lock();
        let mut processes: Vec<_> = state
            .pods
            .values()
            .filter_map(|entry| entry.process.clone())
            .collect();
        processes.sort_by(|a, b| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)));
        processes
    }

    /// Sends a signal to the process of a pod, if it has one. A process that ends is started again.
    pub fn signal(&self, namespace: &str, pod: &str, signal: Signal) {
        let state = self.kubelet.lock();
        for entry in state.pods.values().filter(|entry| entry.is(namespace, pod)) {
            // A task that has ended needs no signal.
            let _ = entry.signals.send(signal);
        }
    }
}

fn made_for(file: &Path) -> Result<PathBuf> {
    let dir = file.parent().context("no folder")?;
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    Ok(file.to_owned())
}

impl PodEntry {
    fn is(&self, namespace: &str, pod: &str) -> bool {
        let seen = self.seen.borrow();
        seen.name_any() == pod && seen.namespace().as_deref() == Some(namespace)
    }
}

impl Kubelet {
    fn lock(&self) -> MutexGuard<'_, KubeletState> {
        lock(&self.state)
    }

    fn boot(&self, node: &str) -> Sender<Boot> {
        let up = || {
            Sender::new(Boot {
                up: true,
                number: 0,
            })
        };
        self.lock()
            .boots
            .entry(node.to_owned())
            .or_insert_with(up)
            .clone()
    }

    /// Returns where this pod finds the API server.
    fn server(&self, pod: &str) -> Result<Server> {
        let direct = self.shared.server.clone();
        match &self.gateways {
            None => Ok(direct),
            Some(gateways) => Ok(Server {
                url: gateways.url(pod)?,
                ..direct
            }),
        }
    }

    /// Stands for the root folder of a node's host.
    fn node_dir(&self, node: &str) -> Result<PathBuf> {
        let number = {
            let dirs = &mut self.lock().node_dirs;
            let next = dirs.len();
            *dirs.entry(node.to_owned()).or_insert(next)
        };
        let dir = self.shared.sandbox.dir().join("n").join(number.to_string());
        ensure!(
            dir.as_os_str().len() < 80,
            "{} is too long for a folder with Unix sockets: set TMPDIR",
            dir.display()
        );
        Ok(dir)
    }

    fn program(&self, command: &str) -> Result<&Program> {
        self.programs
            .get(command)
            .with_context(|| format!("there is no program for the command {command:?}"))
    }

    fn set_process(&self, uid: &str, process: Option<PodProcess>) {
        if let Some(entry) = self.lock().pods.get_mut(uid) {
            entry.process = process;
        }
    }
}
