//! The shipped agent on a simulated host, against a real API server; the test plays the reconciler.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use brupop_api::{BottlerocketShadow, BottlerocketShadowStatus};
use brupop_testbed::host::{Durations, Host, HostOptions};
use brupop_testbed::kubeconfig::PodVariables;
use brupop_testbed::operator::{NAMESPACE, binaries};
use brupop_testbed::sandbox::Process;
use brupop_testbed::{ControlPlane, Options, agents, await_until, make_nodes};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{from_value, json};

/// Of the node and of its shadow.
const NODE: &str = "node-0";
/// Name of the shadow.
pub const SHADOW: &str = "brs-node-0";
/// Files of the host, in the control plane's folder.
const SOCKET: &str = "api.sock";
const BOOT_ID: &str = "boot_id";
pub struct World {
    pub control_plane: ControlPlane,
    pub host: Host,
    pub shadows: Api<BottlerocketShadow>,
    pub agent: Option<Process>,
    node: Node,
    pod: PodVariables,
}

impl World {
    /// Everything but the shadow and the agent. The host runs 1.19.4, with 1.20.1 published.
    pub async fn new() -> Self {
        let control_plane = ControlPlane::start(Options::API).await.unwrap();
        let client = control_plane.client();
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
        let file = |name| manifests.join(name).to_string_lossy().into_owned();
        let applied = [
            "namespace.yaml",
            "bottlerocketshadow-crd.yaml",
            "agent.yaml",
        ]
        .map(file);
        for file in applied {
            control_plane.kubectl(["apply", "-f", &file]).await.unwrap();
        }
        let policies = file("policies.yaml");
        let agents = "app.kubernetes.io/component=agent";
        control_plane
            .kubectl(["apply", "-f", &policies, "-l", agents])
            .await
            .unwrap();
        let established = "crd/bottlerocketshadows.brupop.bottlerocket.aws";
        control_plane
            .kubectl(["wait", "--for=condition=Established", established])
            .await
            .unwrap();
        let node = make_nodes(&client, 1).await.unwrap().remove(0);
        let pod: Pod = from_value(json!({
            "metadata": {"name": "agent-0"},
            "spec": {
                "nodeName": NODE, "serviceAccountName": "brupop-agent",
                "containers": [{"name": "agent", "image": "none"}],
            },
        }))
        .unwrap();
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let token = control_plane
            .bound_token(NAMESPACE, "brupop-agent", "agent-0")
            .await
            .unwrap();
        let folder = control_plane.dir().join("agent");
        let pod = control_plane
            .server()
            .write_service_account(&folder, &token, NAMESPACE)
            .unwrap();
        let host = Host::start(HostOptions {
            socket: control_plane.dir().join(SOCKET),
            socket_group: None,
            version: "1.19.4".into(),
            variant: "aws-k8s-1.29".into(),
            boot_id_file: control_plane.dir().join(BOOT_ID),
            durations: Durations::default(),
        })
        .unwrap();
        host.publish("1.20.1").unwrap();
        Self {
            shadows: Api::namespaced(client, NAMESPACE),
            host,
            agent: None,
            control_plane,
            node,
            pod,
        }
    }

    /// Starts the agent; one that runs is killed.
    pub fn start_agent(&mut self) {
        self.agent = None;
        let binaries = binaries(&["brupop-agent"]).unwrap();
        let mut command = tokio::process::Command::new(binaries.join("brupop-agent"));
        command
            .env_clear()
            .envs(self.pod.clone())
            .env(
                "BOTTLEROCKET_API_SOCKET",
                self.control_plane.dir().join(SOCKET),
            )
            .env("BOOT_ID_FILE", self.control_plane.dir().join(BOOT_ID))
            .env("START_JITTER", "0s")
            .env("REFRESH_INTERVAL", "1s")
            .env("POLL_INTERVAL", "100ms")
            .env("HOST_TIMEOUT", "1s")
            .env("TRACING_FILTER_DIRECTIVE", "info,brupop_agent=debug");
        self.agent = Some(
            self.control_plane
                .sandbox()
                .spawn("agent", command)
                .unwrap(),
        );
    }

    /// What the agents have said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.control_plane.sandbox().logs().join("agent.log"))
            .unwrap_or_default()
    }

    /// The TCP ports on which the agent listens, as the kernel writes addresses.
    pub fn listeners(&self) -> Vec<String> {
        /// As the kernel calls a socket that listens.
        const LISTEN: &str = "0A";
        let process = format!("/proc/{}", self.agent.as_ref().unwrap().id().unwrap());
        let files = std::fs::read_dir(format!("{process}/fd")).unwrap();
        let files = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        let sockets: Vec<_> = files
            .map(|file| file.to_string_lossy().into_owned())
            .collect();
        let read =
            |table| std::fs::read_to_string(format!("{process}/net/{table}")).unwrap_or_default();
        let tables = read("tcp") + &read("tcp6");
        let all = tables
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let listens = all.filter(|line| {
            line.get(3) == Some(&LISTEN)
                && line
                    .get(9)
                    .is_some_and(|inode| sockets.contains(&format!("socket:[{inode}]")))
        });
        listens.map(|line| line[1].to_owned()).collect()
    }

    /// Makes the shadow, Idle, as the reconciler does.
    pub async fn create_shadow(&self) {
        agents::idle_shadow(&self.control_plane, &self.node)
            .await
            .unwrap();
    }

    /// How often the host was asked for this path.
    pub fn calls(&self, path: &str) -> usize {
        self.host
            .calls()
            .iter()
            .filter(|call| call.path == path)
            .count()
    }

    /// Awaits a status; the agent's log is shown if it does not come.
    pub async fn until(&self, what: &str, wanted: impl Fn(&BottlerocketShadowStatus) -> bool) {
        let mut seen = None;
        let found = await_until(what, async || {
            seen = self.shadows.get_opt(SHADOW).await.ok()??.status;
            seen.as_ref().is_some_and(&wanted).then_some(())
        })
        .await;
        found.unwrap_or_else(|error| panic!("{error}; last seen {seen:#?}\n{}", self.log()));
    }
}
