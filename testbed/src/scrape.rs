//! Scrapes like Prometheus: `/metrics` of our processes, with the token of an account that may read it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use serde_json::json;

use crate::ControlPlane;
use crate::kubelet::PodProcess;
use crate::objects::{cluster_role_binding, kubectl};

/// Port of the containers that serve `/metrics`.
pub const PORT: i32 = 8444;
/// Namespace and name of the scraper's account.
const SCRAPER: &str = "prometheus";
/// The `ClusterRole` that is shipped for scrapers.
pub const READER: &str = "brupop-metrics-reader";

/// Returns where a process serves `/metrics`.
fn address(process: &PodProcess) -> Result<SocketAddr> {
    process
        .listens
        .get(&PORT)
        .copied()
        .with_context(|| format!("{} has no metrics", process.pod))
}

pub struct Scraper {
    token: Option<String>,
}

impl Scraper {
    /// A scraper with the token of an account that is bound to a `ClusterRole`, usually [`READER`]; to none: an account
    /// that may not scrape.
    pub async fn start(control_plane: &ControlPlane, role: Option<&str>) -> Result<Self> {
        let name = role.unwrap_or("nobody");
        let metadata = json!({"name": name, "namespace": SCRAPER});
        let binding = role.map(|role| {
            let account = format!("system:serviceaccount:{SCRAPER}:{name}");
            cluster_role_binding(&format!("{SCRAPER}-{role}"), role, "User", &account)
        });
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SCRAPER}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        ];
        objects.extend(binding);
        kubectl(control_plane, &["apply"], &objects).await?;
        Ok(Self::with_token(control_plane.token(SCRAPER, name).await?))
    }

    /// A scraper with this token.
    pub fn with_token(token: impl Into<String>) -> Self {
        Self {
            token: Some(token.into()),
        }
    }

    /// A scraper that does not say who it is.
    pub fn without_token() -> Self {
        Self { token: None }
    }

    /// Returns who it says it is.
    pub fn token(&self) -> Result<&str> {
        self.token.as_deref().context("a scraper without a token")
    }

    /// Returns what a process tells.
    pub async fn scrape(&self, process: &PodProcess) -> Result<String> {
        let address = address(process)?;
        // As Prometheus' `insecure_skip_verify`: the reconciler's certificate is its own.
        let mut config = Config::new(format!("https://{address}").parse()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = self.token.clone().map(Into::into);
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
