//! The way to the API server, as kubectl finds it: by a kubeconfig, with its proxies and programs for credentials.

use brupop_runtime::client::{bounded, patience};
use brupop_runtime::install_crypto_provider;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::PROGRAM;
use crate::arguments::Target;
use crate::error::Error;
use crate::gather::OperatorApi;

/// The API server that these arguments name: of this kubeconfig and context, otherwise of `KUBECONFIG`, `~/.kube/config`, or
/// the pod.
///
/// # Errors
/// There is no such kubeconfig or context, or it cannot be used.
pub async fn connect(target: &Target) -> Result<OperatorApi, Error> {
    install_crypto_provider();
    let Target { namespace, context, kubeconfig } = target;
    let config = if context.is_none() && kubeconfig.is_none() {
        Config::infer().await.map_err(|error| Error::NoConfiguration(Box::new(error)))?
    } else {
        let unusable = |error: KubeconfigError| Error::Kubeconfig(Box::new(error));
        let read = kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(read.map_err(unusable)?, &options).await.map_err(unusable)?
    };
    let builder = ClientBuilder::try_from(bounded(config, PROGRAM)?);
    let builder = builder.map_err(|error| Error::Connection(Box::new(error)))?;
    Ok(OperatorApi { client: builder.with_layer(&patience()).build(), namespace: namespace.clone() })
}
