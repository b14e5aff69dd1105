//! The way to the API server, as kubectl finds it: by a kubeconfig, with its proxies and programs for credentials.

use std::env;
use std::io::ErrorKind;
use std::path::PathBuf;

use brupop_runtime::client::{bounded, patience};
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

/// The API server that these arguments name: of this kubeconfig and context, otherwise of `KUBECONFIG`, `~/.kube/config`, or
/// the pod.
///
/// # Errors
/// There is no such kubeconfig or context, or it cannot be used.
pub async fn connect(target: &Target) -> Result<OperatorApi, Error> {
    install_crypto_provider();
    let config = bounded(configuration(target).await?, PROGRAM)?;
    let builder =
        ClientBuilder::try_from(config).map_err(|error| Error::Connection(Box::new(error)))?;
    let patience = target
        .request_timeout
        .map_or_else(patience, TimeoutLayer::new);
    Ok(OperatorApi {
        client: builder.with_layer(&patience).build(),
        namespace: target.namespace.clone(),
    })
}

async fn configuration(target: &Target) -> Result<Config, Error> {
    let unusable = |error: KubeconfigError| Error::Kubeconfig(Box::new(error));
    let Target {
        context,
        cluster,
        user,
        ..
    } = target.clone();
    let named = [&context, &cluster, &user]
        .iter()
        .any(|name| name.is_some());
    let found = kubeconfig(target).map_err(unusable)?;
    // An empty one says that it lacks what is named.
    let mut config = match found.or_else(|| named.then(Kubeconfig::default)) {
        Some(kubeconfig) => {
            let options = KubeConfigOptions {
                context,
                cluster,
                user,
            };
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(unusable)?
        }
        None => Config::incluster().map_err(|error| Error::NoConfiguration(Box::new(error)))?,
    };
    config.proxy_url = config.proxy_url.map(proxy);
    if let Some(user) = &target.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(target.as_groups.clone());
    }
    Ok(config)
}

/// The kubeconfig, if there is one. Of the files that `KUBECONFIG` names, some may be missing.
fn kubeconfig(target: &Target) -> Result<Option<Kubeconfig>, KubeconfigError> {
    if let Some(file) = &target.kubeconfig {
        return Kubeconfig::read_from(file).map(Some);
    }
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let files: Vec<PathBuf> = env::split_paths(&named)
        .filter(|file| !file.as_os_str().is_empty())
        .collect();
    if !files.is_empty() {
        return merged(files);
    }
    match Kubeconfig::read() {
        Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == ErrorKind::NotFound => {
            Ok(None)
        }
        Err(KubeconfigError::FindPath) => Ok(None),
        read => read.map(Some),
    }
}

/// What the files that are there say together.
fn merged(files: Vec<PathBuf>) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let mut files = files.into_iter().filter(|file| file.exists());
    files.try_fold(None, |before: Option<Kubeconfig>, file| {
        let read = Kubeconfig::read_from(file)?;
        match before {
            Some(before) => before.merge(read).map(Some),
            None => Ok(Some(read)),
        }
    })
}

/// A proxy as kubectl understands it: without a scheme it is one for HTTP, and those for SOCKS all look names up themselves.
fn proxy(url: Uri) -> Uri {
    let scheme = match url.scheme_str() {
        None => "http",
        Some("socks5h") => "socks5",
        Some(_) => return url,
    };
    let authority = url.authority().map(ToString::to_string).unwrap_or_default();
    Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query("/")
        .build()
        .unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_missing_are_passed_over() {
        let dir = env::temp_dir().join(format!("brupop-cli-kubeconfig-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (one, other) = (dir.join("one"), dir.join("other"));
        std::fs::write(&one, "current-context: one\n").unwrap();
        std::fs::write(&other, "current-context: other\n").unwrap();
        let context = |files: &[&PathBuf]| {
            let files = files.iter().map(|file| (*file).clone()).collect();
            merged(files)
                .unwrap()
                .map(|read| read.current_context.unwrap())
        };
        let missing = dir.join("missing");
        assert_eq!(context(&[&missing, &one, &other]).as_deref(), Some("one"));
        assert_eq!(context(&[&missing]), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

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
