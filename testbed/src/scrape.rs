//! What Prometheus does: `/metrics` of our processes, with the token of an account that may read it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, Patch, PatchParams};
use kube::client::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::ControlPlane;
use crate::kubelet::PodProcess;

/// Port of the containers that serve `/metrics`.
pub const PORT: i32 = 8444;
/// Namespace and name of the scraper's account.
const SCRAPER: &str = "prometheus";
/// The `ClusterRole` that is shipped for scrapers.
pub const READER: &str = "brupop-metrics-reader";

/// Where a process serves `/metrics`.
fn address(process: &PodProcess) -> Result<SocketAddr> {
    process.listens.get(&PORT).copied().with_context(|| format!("{} has no metrics", process.pod))
}

/// Scrapes with one token.
pub struct Scraper {
    token: Option<String>,
}

impl Scraper {
    /// A scraper with the token of an account that is bound to a `ClusterRole`, usually [`READER`]; to none: an account
    /// that may not scrape.
    pub async fn start(control_plane: &ControlPlane, role: Option<&str>) -> Result<Self> {
        let client = control_plane.client();
        let name = role.unwrap_or("nobody");
        let params = PatchParams::apply("brupop-testbed");
        let apply = |object: Value| Patch::Apply(object);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SCRAPER}});
        Api::<Namespace>::all(client.clone()).patch(SCRAPER, &params, &apply(namespace)).await?;
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), SCRAPER);
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        accounts.patch(name, &params, &apply(account)).await?;
        if let Some(role) = role {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": format!("{SCRAPER}-{role}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": SCRAPER}],
            });
            let bindings = Api::<ClusterRoleBinding>::all(client);
            bindings.patch(&format!("{SCRAPER}-{role}"), &params, &apply(binding)).await?;
        }
        Ok(Self::with_token(control_plane.token(SCRAPER, name).await?))
    }

    /// A scraper with this token.
    pub fn with_token(token: impl Into<String>) -> Self {
        Self { token: Some(token.into()) }
    }

    /// A scraper that does not say who it is.
    pub fn without_token() -> Self {
        Self { token: None }
    }

    /// Who it says it is.
    pub fn token(&self) -> Result<&str> {
        self.token.as_deref().context("a scraper without a token")
    }

    /// What a process tells.
    pub async fn scrape(&self, process: &PodProcess) -> Result<String> {
        let address = address(process)?;
        // As Prometheus' `insecure_skip_verify`: the reconciler's certificate is its own.
        let cluster = json!({"server": format!("https://{address}"), "insecure-skip-tls-verify": true});
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "current-context": "scrape",
            "contexts": [{"name": "scrape", "context": {"cluster": "process", "user": "scraper"}}],
            "clusters": [{"name": "process", "cluster": cluster}],
            "users": [{"name": "scraper", "user": {"token": self.token}}],
        }))?;
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Client::try_from(config)?.request_text(request).await?)
    }

    /// The status of a refusal; 200 if there is none.
    pub async fn status(&self, process: &PodProcess) -> Result<u16> {
        match self.scrape(process).await {
            Ok(_) => Ok(200),
            Err(error) => match error.downcast::<kube::Error>()? {
                kube::Error::Api(status) => Ok(status.code),
                error => Err(error.into()),
            },
        }
    }
}
