//! The command lines of the control plane's programs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{ControlPlane, Reach};

/// The namespace of the shipped manifests.
pub const NAMESPACE: &str = "brupop-bottlerocket-aws";

/// Addresses of Services; nothing routes them but [`crate::services`], or a kube-proxy.
pub(crate) const SERVICE_RANGE: &str = "10.0.0.0/24";
/// Address of the API server's own Service.
pub(super) const FIRST_SERVICE: &str = "10.0.0.1";
const POD_RANGE: &str = "10.244.0.0/16";

/// Go's garbage costs a sixth of the CPU of a control plane's start; this trades 130 MB for it.
pub(super) const COLLECTS_LATE: (&str, &str) = ("GOGC", "400");

const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived"], "omitManagedFields": true,
  "rules": [
    {"level": "RequestResponse", "resources": [{"group": "brupop.bottlerocket.aws"}]},
    {"level": "Metadata"}
  ]
}"#;
/// Of the controllers: enough for hundreds of nodes that change at once; no port, nobody else to lead.
const ALONE: [&str; 4] = [
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--leader-elect=false",
    "--secure-port=0",
];

/// Socket of the proxy by which the API server reaches Services.
pub(super) fn egress_socket(dir: &Path) -> PathBuf {
    dir.join("egress.sock")
}

impl ControlPlane {
    /// The command line of a program of the control plane.
    pub(super) fn command(&self, program: &str) -> Result<Command> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        let mut command = self.program(program);
        match program {
            "etcd" => {
                let (client, peer) = (self.etcd(), format!("http://127.0.0.1:{}", free_port()?));
                command
                    .arg(format!("--data-dir={}", self.dir().join("etcd").display()))
                    .arg(format!("--listen-client-urls={client}"))
                    .arg(format!("--advertise-client-urls={client}"))
                    .arg(format!("--listen-peer-urls={peer}"))
                    .arg(format!("--initial-advertise-peer-urls={peer}"))
                    .arg(format!("--initial-cluster=default={peer}"))
                    .args(["--unsafe-no-fsync", "--log-level=warn"]);
            }
            "kube-apiserver" => {
                command.args(self.api_server()?);
            }
            "kube-controller-manager" => {
                let (key, root) = (
                    self.authority.path("tokens.key"),
                    self.authority.certificate(),
                );
                command
                    .arg(kubeconfig)
                    .arg(format!(
                        "--service-account-private-key-file={}",
                        key.display()
                    ))
                    .arg(format!("--root-ca-file={}", root.display()))
                    .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
                    .args(ALONE)
                    .args(
                        self.options
                            .under_faults
                            .then_some("--node-monitor-grace-period=24h"),
                    );
            }
            "kube-scheduler" => {
                command.arg(kubeconfig).args(ALONE);
            }
            "kwok" => {
                let stages = concat!(env!("CARGO_MANIFEST_DIR"), "/kwok-stages.yaml");
                let nodes = crate::nodes::KWOK_ANNOTATION;
                command
                    .arg(kubeconfig)
                    .arg(format!("--config={stages}"))
                    .arg(format!(
                        "--manage-nodes-with-annotation-selector={nodes}=fake"
                    ))
                    .arg(format!("--cidr={POD_RANGE}"))
                    .args(["--node-lease-duration-seconds=40", "--server-address="]);
            }
            _ => bail!("{program} is no program of the control plane"),
        }
        Ok(command)
    }

    /// Makes a data folder from a snapshot, as Kubernetes' documentation says: no revision comes twice, and anyone who waits for a
    /// later one than those of then is told so.
    pub(super) fn etcd_restore(&self, snapshot: &Path, to: &Path, bump: u64) -> Command {
        let mut command = self.program("etcdutl");
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg(format!("--data-dir={}", to.display()))
            .arg(format!("--bump-revision={bump}"))
            .arg("--mark-compacted");
        command
    }

    fn api_server(&self) -> Result<Vec<String>> {
        let policy = self.options.audit_policy.unwrap_or(AUDIT_POLICY);
        let path = |path: PathBuf| path.display().to_string();
        let pki = |file: &str| path(self.authority.path(file));
        let mut flags = vec![
            ("etcd-servers", self.etcd()),
            ("allow-privileged", "true".to_owned()),
            ("secure-port", self.api_port.to_string()),
            ("tls-cert-file", pki("apiserver.crt")),
            ("tls-private-key-file", pki("apiserver.key")),
            ("client-ca-file", path(self.authority.certificate())),
            ("authorization-mode", "Node,RBAC".to_owned()),
            ("enable-admission-plugins", "NodeRestriction".to_owned()),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc.cluster.local".to_owned(),
            ),
            ("service-account-key-file", pki("tokens.pub")),
            ("service-account-signing-key-file", pki("tokens.key")),
            ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
            ("audit-policy-file", self.file("audit-policy.yaml", policy)?),
            ("audit-log-path", path(self.dir().join("audit.log"))),
            ("audit-log-mode", "blocking".to_owned()),
            ("audit-log-maxsize", "4096".to_owned()),
            ("profiling", "false".to_owned()),
        ];
        match self.options.reach {
            Reach::Loopback => flags.extend([
                ("bind-address", "127.0.0.1".to_owned()),
                ("endpoint-reconciler-type", "none".to_owned()),
                ("egress-selector-config-file", self.egress_selector()?),
            ]),
            // Logs and exec: what the kubelet asks back, the bearer of the administrators' certificate may do.
            Reach::Network(address) => flags.extend([
                ("bind-address", "0.0.0.0".to_owned()),
                ("kubelet-preferred-address-types", "InternalIP".to_owned()),
                ("advertise-address", address.to_string()),
                ("kubelet-client-certificate", pki("admin.crt")),
                ("kubelet-client-key", pki("admin.key")),
            ]),
        }
        if self.options.under_faults {
            flags.push(("storage-media-type", "application/json".to_owned()));
        }
        if self.options.presents_token {
            flags.push(("admission-control-config-file", self.admission()?));
        }
        let flag = |(name, value)| format!("--{name}={value}");
        Ok(flags.into_iter().map(flag).collect())
    }

    /// Hands the API server's connections to Services to [`crate::services`].
    fn egress_selector(&self) -> Result<String> {
        let selector = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": {
                "proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": egress_socket(self.dir())}},
            }}],
        });
        self.file("egress.json", &selector.to_string())
    }

    /// Tells the API server which token it presents to whom: users are named after the webhook's Service.
    fn admission(&self) -> Result<String> {
        let service = format!("brupop-webhook.{NAMESPACE}.svc");
        let users = json!({
            "apiVersion": "v1", "kind": "Config",
            "users": [{"name": service, "user": {"tokenFile": self.webhook_token()}}],
        });
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": self.file("webhooks.kubeconfig", &users.to_string())?,
        });
        let admission: Value = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": configuration}],
        });
        self.file("admission.json", &admission.to_string())
    }

    /// Writes a file in the control plane's folder; returns its path.
    fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.dir().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        // Each reads HOME, proxies and the like from the environment; nothing of it is wanted.
        command
            .env_clear()
            .env("HOME", self.dir())
            .envs([COLLECTS_LATE])
            .current_dir(self.dir());
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
