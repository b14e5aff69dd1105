//! Where a pod finds the API server, and how it says who it is: what a kubelet gives to each pod that has a service account.

use kube::Config;
use kube::config::InClusterError;
use std::path::Path;
use std::{env, error, fs};
use thiserror::Error;

/// Names the folder of token, authority and namespace, for a process of the test bed that is in no container.
const FOLDER: &str = "SERVICE_ACCOUNT_FOLDER";

/// Why this is no pod that can talk to an API server.
#[derive(Debug, Error)]
pub enum ServiceAccountError {
    /// Kubelets set the variables and mount the token of each pod with a service account.
    #[error(
        "the Kubernetes API is not configured: run in a pod that mounts the token of its service account"
    )]
    NoPod(#[from] InClusterError),
    /// The test bed gives neither an address nor the files.
    #[error("{FOLDER} names no service account")]
    Folder(#[source] Box<dyn error::Error + Send + Sync>),
}

/// The cluster of the pod that this process runs in.
///
/// # Errors
/// This is no pod with a service account.
pub fn of_environment() -> Result<Config, ServiceAccountError> {
    match env::var_os(FOLDER) {
        Some(folder) => of_folder(folder.as_ref()).map_err(ServiceAccountError::Folder),
        None => Ok(Config::incluster()?),
    }
}

fn of_folder(folder: &Path) -> Result<Config, Box<dyn error::Error + Send + Sync>> {
    let variable = |name| env::var(format!("KUBERNETES_SERVICE_{name}"));
    let url = format!("https://{}:{}/", variable("HOST")?, variable("PORT")?);
    let mut config = Config::new(url.parse()?);
    config.default_namespace = fs::read_to_string(folder.join("namespace"))?;
    config.root_cert_file = Some(folder.join("ca.crt"));
    config.auth_info.token_file = Some(folder.join("token").to_string_lossy().into_owned());
    Ok(config)
}
