//! Puts the webhook together and runs it.

use crate::certificates::Lifetimes;
use crate::certificates::cluster_store::ClusterStore;
use crate::certificates::provided::Provided;
use crate::certificates::rotator::Rotator;
use crate::metrics::Metrics;
use crate::options::{Certificates, Options};
use crate::serve::{LIMITS, serve};
use brupop_runtime::authorizer::{Authorizer, Requirement};
use brupop_runtime::connections::Limits;
use brupop_runtime::tls::Resolver;
use brupop_runtime::{ClusterConfig, Health, Shutdown, endpoint, metrics_endpoint};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Reasons why the webhook cannot run.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] brupop_runtime::client::ClientError),
    /// The address is taken, or not ours.
    #[error(transparent)]
    Listen(#[from] endpoint::ListenError),
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
}

/// Runs the webhook until it is told to end.
///
/// # Errors
/// It cannot start. Once it runs, whatever goes wrong is repaired and logged.
pub async fn run(options: Options) -> Result<(), ProcessError> {
    let metrics = Arc::new(Metrics::default());
    let cluster = ClusterConfig::of_pod("brupop-webhook")?.counting(&metrics.process.api_requests);
    let shutdown = Shutdown::on_signals().map_err(ProcessError::Signals)?;
    let (admission, health_listener, metrics_listener) = (
        endpoint::listen(options.admission_address)?,
        endpoint::listen(options.health_address)?,
        endpoint::listen(options.metrics_address)?,
    );

    let health = Health::starting("the certificate is not published yet");
    let resolver = Arc::new(Resolver::default());
    let (of_reviews, of_scrapes) = authorizers(cluster.client_without_retry()?, &options, &metrics);
    // After the signal, reviews are still served for a while. Everything else goes on until they end.
    let (served, ending) = Shutdown::by_hand();
    let scraped = Arc::clone(&metrics);
    let drops = || metrics.process.drops.clone();
    let health_pages = tokio::spawn(endpoint::serve(
        health_listener,
        health.clone(),
        drops(),
        ending.clone(),
    ));
    let metrics_pages = tokio::spawn(metrics_endpoint::serve(
        metrics_listener,
        Arc::clone(&resolver),
        of_scrapes,
        move || scraped.render(),
        drops(),
        ending.clone(),
    ));
    let certificates = tokio::spawn(look_after_certificate(
        cluster.client()?,
        cluster.namespace(),
        &options,
        &resolver,
        &health,
        &metrics,
        ending,
    ));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = cluster.namespace(),
        "webhook started"
    );

    let limits = Limits {
        linger: Duration::from_secs(options.linger_seconds),
        ..LIMITS
    };
    let namespace = cluster.namespace().to_owned();
    serve(
        admission, resolver, limits, namespace, metrics, of_reviews, shutdown,
    )
    .await;
    served.request();
    let _ = tokio::join!(health_pages, metrics_pages, certificates);
    Ok(())
}

/// Returns who may ask for reviews, if not everybody, and who may scrape the metrics.
fn authorizers(
    client: Client,
    options: &Options,
    metrics: &Metrics,
) -> (Option<Arc<Authorizer>>, Arc<Authorizer>) {
    let of_reviews = options.require_caller_token.then(|| {
        Authorizer::new(
            client.clone(),
            Requirement::Token,
            metrics.caller_refusals.clone(),
        )
    });
    let scrape = Requirement::Get(metrics_endpoint::PATH);
    (
        of_reviews,
        Authorizer::new(client, scrape, metrics.process.refused_scrapes.clone()),
    )
}

/// Looks after the certificate that TLS serves until the shutdown is requested.
fn look_after_certificate(
    client: Client,
    namespace: &str,
    options: &Options,
    resolver: &Arc<Resolver>,
    health: &Health,
    metrics: &Arc<Metrics>,
    shutdown: Shutdown,
) -> BoxFuture<'static, ()> {
    let (resolver, health, metrics) = (Arc::clone(resolver), health.clone(), Arc::clone(metrics));
    let (secret, names) = (
        options.webhook_certificates.clone(),
        options.certificate_names(namespace),
    );
    let namespace = namespace.to_owned();
    match options.certificates {
        Certificates::Own => {
            let store = ClusterStore {
                client,
                namespace,
                secret,
                configuration: options.webhook_configuration.clone(),
                names,
                lifetimes: Lifetimes::of_lifetime(options.certificate_lifetime),
            };
            let rotator = Rotator {
                store,
                resolver,
                health,
                metrics,
            };
            rotator.run(shutdown).boxed()
        }
        Certificates::Provided => Provided {
            client,
            namespace,
            secret,
            names,
            resolver,
            health,
            metrics,
        }
        .run(shutdown)
        .boxed(),
    }
}
