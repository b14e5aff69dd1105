//! Puts the webhook together and runs it.

use crate::certificates::Policy;
use crate::certificates::keeper::{Keeper, Places};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::serve::serve;
use crate::tls::{Resolver, server_config};
use brupop_runtime::{Cluster, Health, Shutdown, endpoint};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// Why the webhook cannot run.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] brupop_runtime::client::ClientError),
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// Signals cannot be handled.
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
}

/// Runs the webhook until it is told to end.
///
/// # Errors
/// It cannot start. Once it runs, what goes wrong is repaired and said.
pub async fn run(options: Options) -> Result<(), ProcessError> {
    let cluster = Cluster::infer("brupop-webhook").await?;
    let shutdown = Shutdown::on_signals().map_err(ProcessError::Signals)?;
    let listen = |address| async move {
        endpoint::listen(address).await.map_err(|source| ProcessError::Listen { address, source })
    };
    let (admission, health_listener) =
        (listen(options.admission_address).await?, listen(options.health_address).await?);

    let metrics = Arc::new(Metrics::default());
    let health = Health::starting("the certificate is not published yet");
    let resolver = Arc::new(Resolver::default());
    let places = Places {
        names: options.certificate_names(cluster.namespace()),
        secret: options.certificates_secret,
        configuration: options.webhook_configuration,
    };
    let keeper = Keeper::new(
        cluster.client()?,
        cluster.namespace(),
        places,
        Policy::of_lifetime(options.certificate_lifetime),
        Arc::clone(&resolver),
        health.clone(),
        Arc::clone(&metrics),
    );
    // Health and certificates are looked after as long as reviews are served, which is longer than until the signal.
    let (served, ending) = Shutdown::by_hand();
    let scraped = Arc::clone(&metrics);
    let pages =
        tokio::spawn(endpoint::serve(health_listener, health, move || scraped.render(), ending.clone()));
    let keeping = tokio::spawn(async move { keeper.run(ending).await });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), namespace = cluster.namespace(), "webhook started");

    let acceptor = TlsAcceptor::from(Arc::new(server_config(resolver)));
    serve(admission, acceptor, metrics, Duration::from_secs(options.linger_seconds), shutdown).await;
    served.request();
    let _ = tokio::join!(pages, keeping);
    Ok(())
}
