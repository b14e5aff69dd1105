//! The command lines of the control plane's programs.

use crate::certificates::Authority;
use anyhow::{Context as _, Result};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// The namespace of the shipped manifests.
pub const NAMESPACE: &str = "brupop-bottlerocket-aws";

/// From where a control plane is reached, and how it reaches Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From this machine. Services are reached by a stand-in for kube-proxy.
    Loopback,
    /// From the network, at this address. Services are reached as the network has it: by a real kube-proxy.
    Network(Ipv4Addr),
}

/// The API server's credential for our webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presents {
    Nothing,
    /// The token in `ControlPlane::webhook_token`, which must be there before the first review.
    Token,
}

/// Addresses of Services; nothing routes them but [`crate::services`], or a kube-proxy.
pub(crate) const SERVICE_RANGE: &str = "10.0.0.0/24";
/// That of the API server's own Service.
pub(crate) const FIRST_SERVICE: &str = "10.0.0.1";
const POD_RANGE: &str = "10.244.0.0/16";

/// Go's garbage costs a sixth of the CPU of a control plane's start; this trades 130 MB for it.
pub(crate) const COLLECTS_LATE: (&str, &str) = ("GOGC", "400");

pub(crate) const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived"], "omitManagedFields": true,
  "rules": [
    {"level": "RequestResponse", "resources": [{"group": "brupop.bottlerocket.aws"}]},
    {"level": "Metadata"}
  ]
}"#;

/// The shared part of command lines.
pub(crate) struct Layout<'a> {
    pub binaries: &'a Path,
    /// The folder of this control plane's files.
    pub dir: &'a Path,
    pub authority: &'a Authority,
    pub etcd_port: u16,
    pub api_port: u16,
    /// A kubeconfig with all rights.
    pub admin: &'a Path,
    pub reach: Reach,
    pub presents: Presents,
    pub audit_policy: &'a str,
    pub under_faults: bool,
}

/// Socket of the proxy by which the API server reaches Services.
pub(crate) fn egress_socket(dir: &Path) -> PathBuf {
    dir.join("egress.sock")
}

pub(crate) fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

pub(crate) fn webhook_token(dir: &Path) -> PathBuf {
    dir.join("webhook-token")
}

impl Layout<'_> {
    pub(crate) fn etcd(&self) -> Result<Command> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        // Of a member without peers; port 0 is any.
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let mut command = self.program("etcd");
        command
            .arg("--data-dir")
            .arg(self.dir.join("etcd"))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .args(["--unsafe-no-fsync", "--log-level=warn"]);
        Ok(command)
    }

    /// Makes a data folder from a snapshot, as Kubernetes' documentation says: no revision comes twice, and anyone who waits for a
    /// later one than those of then is told so.
    pub(crate) fn etcd_restore(&self, snapshot: &Path, to: &Path, bump: u64) -> Command {
        let mut command = self.program("etcdutl");
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(to);
        command
            .arg(format!("--bump-revision={bump}"))
            .arg("--mark-compacted");
        command
    }

    pub(crate) fn api_server(&self) -> Result<Command> {
        let policy = self.dir.join("audit-policy.yaml");
        std::fs::write(&policy, self.audit_policy)?;
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let mut command = self.program("kube-apiserver");
        command
            .arg(format!(
                "--etcd-servers=http://127.0.0.1:{}",
                self.etcd_port
            ))
            .arg("--allow-privileged")
            .arg(format!("--secure-port={}", self.api_port))
            .arg(file("tls-cert-file", &self.authority.path("apiserver.crt")))
            .arg(file(
                "tls-private-key-file",
                &self.authority.path("apiserver.key"),
            ))
            .arg(file("client-ca-file", &self.authority.certificate()))
            .args([
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
            ])
            .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
            .arg(file(
                "service-account-key-file",
                &self.authority.path("tokens.pub"),
            ))
            .arg(file(
                "service-account-signing-key-file",
                &self.authority.path("tokens.key"),
            ))
            .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
            .arg(file("audit-policy-file", &policy))
            .arg(file("audit-log-path", &audit_log(self.dir)))
            .args([
                "--audit-log-mode=blocking",
                "--audit-log-maxsize=4096",
                "--profiling=false",
            ]);
        match self.reach {
            Reach::Loopback => command
                .args([
                    "--bind-address=127.0.0.1",
                    "--endpoint-reconciler-type=none",
                ])
                .arg(file(
                    "egress-selector-config-file",
                    &self.egress_selector()?,
                )),
            // Logs and exec: what the kubelet asks back, the bearer of the administrators' certificate may do.
            Reach::Network(address) => command
                .args([
                    "--bind-address=0.0.0.0",
                    "--kubelet-preferred-address-types=InternalIP",
                ])
                .arg(format!("--advertise-address={address}"))
                .arg(file(
                    "kubelet-client-certificate",
                    &self.authority.path("admin.crt"),
                ))
                .arg(file(
                    "kubelet-client-key",
                    &self.authority.path("admin.key"),
                )),
        };
        if self.under_faults {
            command.arg("--storage-media-type=application/json");
        }
        if self.presents == Presents::Token {
            command.arg(file(
                "admission-control-config-file",
                &self.admission_configuration()?,
            ));
        }
        Ok(command)
    }

    /// Hands the API server's connections to Services to [`crate::services`].
    fn egress_selector(&self) -> Result<PathBuf> {
        let egress = self.dir.join("egress.json");
        let selector = serde_json::json!({
            "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": {
                "proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": egress_socket(self.dir)}},
            }}],
        });
        std::fs::write(&egress, selector.to_string())?;
        Ok(egress)
    }

    /// Tells the API server which token it presents to whom: users are named after the webhook's Service.
    fn admission_configuration(&self) -> Result<PathBuf> {
        let (kubeconfig, configuration) = (
            self.dir.join("webhooks.kubeconfig"),
            self.dir.join("admission.json"),
        );
        let service = format!("brupop-webhook.{NAMESPACE}.svc");
        let users = serde_json::json!({
            "apiVersion": "v1", "kind": "Config",
            "users": [{"name": service, "user": {"tokenFile": webhook_token(self.dir)}}],
        });
        let plugin = serde_json::json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": kubeconfig,
            }}],
        });
        std::fs::write(&kubeconfig, users.to_string())?;
        std::fs::write(&configuration, plugin.to_string())?;
        Ok(configuration)
    }

    pub(crate) fn controller_manager(&self) -> Command {
        let mut command = self.program("kube-controller-manager");
        command
            .arg("--kubeconfig")
            .arg(self.admin)
            .arg("--service-account-private-key-file")
            .arg(self.authority.path("tokens.key"))
            .arg("--root-ca-file")
            .arg(self.authority.certificate())
            .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
            // Enough for hundreds of nodes that change at once; no port, nobody else to lead.
            .args([
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                "--leader-elect=false",
                "--secure-port=0",
            ]);
        if self.under_faults {
            command.arg("--node-monitor-grace-period=24h");
        }
        command
    }

    pub(crate) fn scheduler(&self) -> Command {
        let mut command = self.program("kube-scheduler");
        command.arg("--kubeconfig").arg(self.admin).args([
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--leader-elect=false",
            "--secure-port=0",
        ]);
        command
    }

    pub(crate) fn kwok(&self) -> Command {
        let mut command = self.program("kwok");
        command
            .arg("--kubeconfig")
            .arg(self.admin)
            .arg("--config")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/kwok/stages.yaml"))
            .arg(format!(
                "--manage-nodes-with-annotation-selector={}=fake",
                crate::nodes::KWOK_ANNOTATION
            ))
            .arg(format!("--cidr={POD_RANGE}"))
            .args(["--node-lease-duration-seconds=40", "--server-address="]);
        command
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        // Each reads HOME, proxies and the like from the environment; nothing of it is wanted.
        command
            .env_clear()
            .env("HOME", self.dir)
            .envs([COLLECTS_LATE])
            .current_dir(self.dir);
        command
    }
}

/// A port of 127.0.0.1 on which nobody listens, below those that the kernel gives to outgoing connections. Somebody
/// may still be quicker; then the program that wanted it ends at once, and says so.
pub fn free_port() -> Result<u16> {
    const FIRST: u16 = 20_000;
    const COUNT: u64 = 12_000;
    (0..1000u32)
        .filter_map(|attempt| u16::try_from(RandomState::new().hash_one(attempt) % COUNT).ok())
        .map(|offset| FIRST + offset)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .context("no free port between 20000 and 32000 on 127.0.0.1")
}
