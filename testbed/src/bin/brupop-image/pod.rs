//! The image's root with what a kubelet mounts into each pod, and our programs in it.

use anyhow::{Context as _, Result};
use brupop_api::settings::Program;
use brupop_testbed::ControlPlane;
use brupop_testbed::operator::NAMESPACE;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, PostParams};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// The name by which the programs call the API server.
pub const API_SERVER: &str = "kubernetes.default.svc";
/// The folder of a pod's token.
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// For one command, and for the first request of a program; either takes a moment.
const DEADLINE: Duration = Duration::from_secs(30);
/// In a mount namespace of its own, so that nothing stays mounted.
const RUN: &str = r#"mount --bind /proc "$0/proc" && exec chroot --userspec=65532:65532 "$0" "$@""#;

/// A pod of the image.
pub struct Pod<'a> {
    root: &'a Path,
    plane: &'a ControlPlane,
    port: String,
}

impl<'a> Pod<'a> {
    /// Trusts the control plane's authority, asks this name server as kubelets tell pods to, and knows `localhost` only.
    pub fn new(root: &'a Path, plane: &'a ControlPlane, name_server: Ipv4Addr) -> Result<Self> {
        let port = plane
            .server()
            .url
            .rsplit(':')
            .next()
            .context("no port")?
            .to_owned();
        let pod = Self { root, plane, port };
        for folder in [ACCOUNT, "etc", "proc"] {
            fs::create_dir_all(root.join(folder))?;
        }
        let search = format!("{NAMESPACE}.svc.cluster.local svc.cluster.local cluster.local");
        pod.write(
            "etc/resolv.conf",
            &format!("search {search}\nnameserver {name_server}\noptions ndots:5\n"),
        )?;
        pod.write(&format!("{ACCOUNT}/namespace"), NAMESPACE)?;
        pod.trusts(&fs::read_to_string(&plane.server().certificate_authority)?)?;
        pod.has_hosts("127.0.0.1 localhost")?;
        Ok(pod)
    }

    pub fn has_hosts(&self, line: &str) -> Result<()> {
        self.write("etc/hosts", &format!("{line}\n"))
    }

    pub fn trusts(&self, authority: &str) -> Result<()> {
        self.write(&format!("{ACCOUNT}/ca.crt"), authority)
    }

    /// Bears a token as a kubelet mounts it: it names a pod of this account, and the pod's node.
    pub async fn bears_token_of(&self, account: &str) -> Result<()> {
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": account},
            "spec": {"nodeName": "node-0", "serviceAccountName": account, "containers": [{"name": "c", "image": "none"}]},
        }))?;
        let pods = Api::<core::Pod>::namespaced(self.plane.client(), NAMESPACE);
        pods.create(&PostParams::default(), &pod).await?;
        let token = self.plane.bound_token(NAMESPACE, account, account).await?;
        self.write(&format!("{ACCOUNT}/token"), &token)
    }

    /// Returns what the reconciler, asked for its plan, said: all of it if it failed.
    pub async fn plan(&self) -> Result<Result<(), String>> {
        let mut command = self.command("brupop-reconciler");
        let running = command
            .arg("plan")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(DEADLINE, running)
            .await
            .context("the plan does not end")??;
        let said =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        Ok(if output.status.success() {
            Ok(())
        } else {
            Err(said.concat())
        })
    }

    /// Starts the program and awaits a request with its token that was answered well.
    pub async fn reaches_the_api_server(&self, program: &str) -> Result<()> {
        let account = format!("system:serviceaccount:{NAMESPACE}:{program}");
        let mut audit = self.plane.audit().from_now();
        let process = self.plane.sandbox().spawn(program, self.command(program))?;
        let answered = audit
            .wait_for(program, |event| {
                event.user.username == account && (200..300).contains(&event.code())
            })
            .await;
        answered.map(drop).with_context(|| process.tail())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", RUN])
            .arg(self.root)
            .arg(format!("/{program}"));
        // Each refuses what is another one's.
        let of = match program {
            "brupop-agent" => Program::Agent,
            "brupop-reconciler" => Program::Reconciler,
            _ => Program::Webhook,
        };
        let settings = [
            ("KUBERNETES_SERVICE_HOST", API_SERVER),
            ("KUBERNETES_SERVICE_PORT", &self.port),
            ("POD_NAME", program),
            ("WEBHOOK_CERTIFICATES", "brupop-webhook-certificates"),
            ("WEBHOOK_CONFIGURATION", "brupop-webhook"),
            ("WEBHOOK_SERVICE", "brupop-webhook"),
            ("ADMISSION_ADDRESS", "127.0.0.1:0"),
            ("HEALTH_ADDRESS", "127.0.0.1:0"),
            ("METRICS_ADDRESS", "127.0.0.1:0"),
        ];
        let settings = settings
            .into_iter()
            .filter(|(name, _)| of.misplaced(name).is_none());
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(settings);
        command
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.root.join(path);
        fs::write(&path, text).with_context(|| format!("{}", path.display()))
    }
}
