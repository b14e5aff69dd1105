//! The way to the API server, as kubectl finds it: by a kubeconfig, with its proxies and programs for credentials.

use std::env;

use brupop_runtime::client::{ClientError, bounded, patience};
use brupop_runtime::install_crypto_provider;
use http::Uri;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::timeout::TimeoutLayer;

use crate::arguments::Target;
use crate::error::Error;
use crate::gather::OperatorApi;

/// The name by which kubectl finds the program.
pub(crate) const PROGRAM: &str = "kubectl-brupop";

/// Connects to the API server that these arguments name: that of this kubeconfig and context, otherwise of `KUBECONFIG`,
/// `~/.kube/config`, or the pod.
///
/// # Errors
/// There is no such kubeconfig or context, or it cannot be used.
pub async fn connect(target: &Target) -> Result<OperatorApi, Error> {
    install_crypto_provider();
    let config = bounded(configuration(target).await?, PROGRAM).map_err(ClientError::from)?;
    let builder = ClientBuilder::try_from(config).map_err(ClientError::from)?;
    let limit = target.request_timeout.map(TimeoutLayer::new);
    let limit = limit.unwrap_or_else(patience);
    Ok(OperatorApi {
        client: builder.with_layer(&limit).build(),
        namespace: target.namespace.clone(),
    })
}

/// Reads the kubeconfig as kubectl does: of the files that `KUBECONFIG` lists, those that exist.
fn kubeconfig(target: &Target) -> Result<Kubeconfig, KubeconfigError> {
    if let Some(file) = &target.kubeconfig {
        return Kubeconfig::read_from(file);
    }
    let Some(listed) = env::var_os("KUBECONFIG").filter(|listed| !listed.is_empty()) else {
        return Kubeconfig::read();
    };
    let mut files = env::split_paths(&listed).filter(|file| file.exists());
    files.try_fold(Kubeconfig::default(), |all, file| {
        all.merge(Kubeconfig::read_from(file)?)
    })
}

async fn configuration(target: &Target) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context: target.context.clone(),
        cluster: target.cluster.clone(),
        user: target.user.clone(),
    };
    let read = match kubeconfig(target) {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
        Err(error) => Err(error),
    };
    let mut config = match read {
        // In a pod there is none.
        Err(error) if target.flags().is_empty() => Config::incluster().map_err(|_| error),
        read => read,
    }
    .map_err(|error| Error::Kubeconfig(Box::new(error)))?;
    config.proxy_url = config.proxy_url.map(proxy);
    if let Some(user) = &target.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(target.as_groups.clone());
    }
    Ok(config)
}

/// Returns a proxy as kubectl understands it: without a scheme it is one for HTTP, and those for SOCKS all look names up
/// themselves.
fn proxy(url: Uri) -> Uri {
    let read = match (url.scheme_str(), url.authority()) {
        (None, Some(authority)) => format!("http://{authority}").parse(),
        (Some("socks5h"), Some(authority)) => format!("socks5://{authority}").parse(),
        _ => return url,
    };
    read.unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_named_as_for_kubectl() {
        for (named, meant) in [
            ("proxy:3128", "http://proxy:3128/"),
            ("10.0.0.1:3128", "http://10.0.0.1:3128/"),
            ("proxy", "http://proxy/"),
            ("https://proxy:3129", "https://proxy:3129/"),
            ("socks5://proxy:1080", "socks5://proxy:1080/"),
            ("socks5h://user@proxy:1080", "socks5://user@proxy:1080/"),
        ] {
            assert_eq!(proxy(named.parse().unwrap()).to_string(), meant);
        }
    }
}
