//! Kubeconfigs for anyone who talks to the control plane, and what pods have in their place.

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The API server's address, and the authority of its certificate.
#[derive(Clone, Debug)]
pub struct Server {
    /// `https://127.0.0.1:<port>`
    pub url: String,
    pub certificate_authority: PathBuf,
}

/// Variables of a pod's process.
pub type PodVariables = [(&'static str, OsString); 3];

/// The credential of a caller.
#[derive(Clone, Debug)]
pub enum Credential<'a> {
    /// A client certificate and its key.
    Certificate {
        certificate: PathBuf,
        key: PathBuf,
    },
    Token(&'a str),
}

impl Server {
    /// A kubeconfig whose only context has this credential.
    fn kubeconfig(&self, credential: &Credential<'_>) -> Value {
        let user = match credential {
            Credential::Certificate { certificate, key } => {
                json!({"client-certificate": certificate, "client-key": key})
            }
            Credential::Token(token) => json!({"token": token}),
        };
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
            "clusters": [{
                "name": "testbed",
                "cluster": {"server": self.url, "certificate-authority": self.certificate_authority},
            }],
            "users": [{"name": "testbed", "user": user}],
        })
    }

    /// Writes a kubeconfig with this credential: JSON, which is YAML.
    pub fn write_kubeconfig(&self, to: &Path, credential: &Credential<'_>) -> Result<()> {
        let config = serde_json::to_vec_pretty(&self.kubeconfig(credential))?;
        std::fs::write(to, config).with_context(|| to.display().to_string())
    }

    /// Writes into a folder what kubelets mount into pods: token, authority and namespace. Who reads them sees the old ones or
    /// the new ones, never half of one. Returns the variables by which a pod's process finds these, and the API server.
    pub fn write_service_account(
        &self,
        folder: &Path,
        token: &str,
        namespace: &str,
    ) -> Result<PodVariables> {
        let authority = std::fs::read_to_string(&self.certificate_authority)?;
        std::fs::create_dir_all(folder)?;
        for (name, text) in [
            ("token", token),
            ("ca.crt", &authority),
            ("namespace", namespace),
        ] {
            let new = folder.join(format!("{name}.new"));
            std::fs::write(&new, text).with_context(|| new.display().to_string())?;
            std::fs::rename(&new, folder.join(name))?;
        }
        let url: http::Uri = self.url.parse()?;
        let (host, port) = (
            url.host().context("no host")?,
            url.port().context("no port")?,
        );
        Ok([
            ("KUBERNETES_SERVICE_HOST", host.into()),
            ("KUBERNETES_SERVICE_PORT", port.as_str().into()),
            ("SERVICE_ACCOUNT_FOLDER", folder.into()),
        ])
    }

    /// A client with this credential.
    pub async fn client(&self, credential: &Credential<'_>) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.config(credential).await?)?)
    }

    pub(crate) async fn config(&self, credential: &Credential<'_>) -> Result<kube::Config> {
        // The first one has installed the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig(credential))?;
        let options = KubeConfigOptions::default();
        Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?)
    }
}
