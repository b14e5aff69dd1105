//! Access to a control plane: clients, tokens and kubectl.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use tokio::process::Command;

use super::commands::COLLECTS_LATE;
use super::{ControlPlane, Shared};
use crate::DEADLINE;
use crate::kubeconfig::Credential;

/// Lifetime of tokens, as kubelets ask for.
const TOKEN_SECONDS: i64 = 3607;

impl ControlPlane {
    /// A client that may do everything (user `admin`).
    pub fn client(&self) -> Client {
        self.shared.client.clone()
    }

    /// A client that bears this token.
    pub async fn client_for_token(&self, token: &str) -> Result<Client> {
        self.shared.server.client(&Credential::Token(token)).await
    }

    /// A client that tries nothing twice: of the bearer of this token, or of `admin`.
    pub async fn impatient_client(&self, token: Option<&str>) -> Result<Client> {
        let admin = self.authority.credential("admin");
        let mut config = self
            .shared
            .server
            .config(&token.map_or(admin, Credential::Token))
            .await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Kubeconfig of the user `admin`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// Issues a client certificate, and writes a kubeconfig with it.
    pub fn kubeconfig_of_user(&self, to: &Path, user: &str, group: Option<&str>) -> Result<()> {
        let file = user.replace(':', "-");
        self.authority.client(&file, user, group)?;
        self.shared
            .server
            .write_kubeconfig(to, &self.authority.credential(&file))
    }

    /// A token of a service account that is bound to a pod of it, as the kubelet would ask for.
    pub async fn bound_token(&self, namespace: &str, account: &str, pod: &str) -> Result<String> {
        let pod = Api::<Pod>::namespaced(self.client(), namespace)
            .get(pod)
            .await?;
        self.shared.token(namespace, account, Some(&pod)).await
    }

    /// A token of a service account that is bound to this object of the core group.
    pub async fn token_bound_to<K: Resource<DynamicType = ()>>(
        &self,
        namespace: &str,
        account: &str,
        object: &K,
    ) -> Result<String> {
        self.shared.token(namespace, account, Some(object)).await
    }

    /// A token of a service account that is bound to nothing.
    pub async fn token(&self, namespace: &str, account: &str) -> Result<String> {
        self.shared.token::<Pod>(namespace, account, None).await
    }

    /// Runs kubectl as the user `admin`.
    pub async fn kubectl<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        said("kubectl", self.kubectl_output(args).await?)
    }

    /// Runs kubectl as `admin` and returns its status and what it said, warnings included.
    pub async fn kubectl_output<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        self.as_admin(&self.binaries.join("kubectl"), args).await
    }

    /// Awaits that a workload, such as `deployment/cart`, is rolled out; returns what kubectl said.
    pub async fn until_rolled_out(&self, namespace: &str, workload: &str) -> Result<String> {
        let timeout = format!("--timeout={}s", DEADLINE.as_secs());
        self.kubectl(["-n", namespace, "rollout", "status", workload, &timeout])
            .await
    }

    /// `kubectl wait` for this condition of what the other arguments name.
    pub async fn wait_for_condition(&self, condition: &str, of: &[&str]) -> Result<()> {
        let condition = format!("--for=condition={condition}");
        let timeout = format!("--timeout={}s", DEADLINE.as_secs());
        self.kubectl([&["wait", &condition, &timeout], of].concat())
            .await
            .map(drop)
    }

    /// Runs the plugin of this path as `admin`, and returns what it printed.
    pub async fn run_plugin(&self, plugin: &Path, args: &[&str]) -> Result<String> {
        said("the plugin", self.as_admin(plugin, args).await?)
    }

    /// Runs a program as `admin`; it ends when this is dropped.
    async fn as_admin<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let output = Command::new(program)
            .args(args)
            .env_clear()
            .env("HOME", self.dir())
            .env("KUBECONFIG", self.kubeconfig())
            .envs([COLLECTS_LATE])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        output
            .await
            .with_context(|| format!("{} cannot be run", program.display()))
    }
}

/// What a program printed that went well.
fn said(program: &str, output: Output) -> Result<String> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}

impl Shared {
    /// A token of a service account; bound to a pod, it has pod and node in its claims.
    pub(crate) async fn token<K: Resource<DynamicType = ()>>(
        &self,
        namespace: &str,
        account: &str,
        bound_to: Option<&K>,
    ) -> Result<String> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref: bound_to.map(reference),
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("a token of {namespace}/{account}"))?;
        Ok(answer
            .status
            .context("a token request was answered without a token")?
            .token)
    }
}

fn reference<K: Resource<DynamicType = ()>>(object: &K) -> BoundObjectReference {
    BoundObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(object.name_any()),
        uid: object.uid(),
    }
}
