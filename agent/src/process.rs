//! Puts the agent together and runs it.

use std::net::SocketAddr;
use std::sync::Arc;

use brupop_api::identity::PodIdentity;
use brupop_api::names::shadow_name;
use brupop_runtime::authorizer::{Authorizer, Requirement, Unknown};
use brupop_runtime::client::ClientError;
use brupop_runtime::endpoint::ListenError;
use brupop_runtime::errors::describe;
use brupop_runtime::tls::{Resolver, TlsError};
use brupop_runtime::{ClusterConfig, Shutdown, endpoint, metrics_endpoint};
use kube::Client;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::agent::{Agent, SocketAbandoned};
use crate::identity::{WhoError, who_am_i};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::retry::Retry;
use crate::{liveness, shadow};

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node is not known.
    #[error("the agent cannot find out which node it runs on")]
    Who(#[source] WhoError),
    /// Signals cannot be handled.
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
    /// The host's API is not to be reached from this container.
    #[error(transparent)]
    Abandoned(#[from] SocketAbandoned),
}

/// Why /metrics is not served.
#[derive(Debug, thiserror::Error)]
enum PortError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no certificate.
    #[error(transparent)]
    Certificate(#[from] TlsError),
    /// No way to the API server, which knows who may scrape.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// It cannot start, or nobody listens on the host's socket. Whatever else goes wrong is logged, and tried again.
pub async fn run(options: Options) -> Result<(), ProcessError> {
    let metrics = options
        .metrics_address
        .map(|address| (address, Arc::new(Metrics::default())));
    let mut cluster = ClusterConfig::of_pod("brupop-agent")?;
    if let Some((_, metrics)) = &metrics {
        cluster = cluster.counting(&metrics.process.api_requests);
    }
    let shutdown = Shutdown::on_signals().map_err(ProcessError::Signals)?;
    match options.pod_name.as_deref().map(liveness::answer_probes) {
        Some(Ok(answers)) => drop(tokio::spawn(answers)),
        Some(Err(error)) => {
            tracing::warn!(%error, "probes are not answered, so an agent that hangs is not restarted");
        }
        None => {}
    }
    let client = cluster.client()?;
    let Some(me) = identify(&client, &shutdown).await? else {
        return Ok(());
    };
    let span = tracing::info_span!("agent", node = me.node_name);
    tracing::info!(parent: &span, pod = me.pod_name, agent = env!("CARGO_PKG_VERSION"), "agent started");

    let (sender, seen) = watch::channel(None);
    let watching = shadow::watch(
        client.clone(),
        cluster.namespace().to_owned(),
        shadow_name(&me.node_name),
        sender,
    );
    tokio::spawn(watching.instrument(span.clone()));
    let calls = metrics
        .as_ref()
        .map(|(_, metrics)| metrics.host_calls.clone())
        .unwrap_or_default();
    let agent = Agent::new(options, client, cluster.namespace(), &me.node_name, calls);
    let served = metrics.map(|(address, metrics)| {
        tokio::spawn(serve(address, cluster, me.pod_name, metrics).instrument(span.clone()))
    });
    let lived = agent.live(seen, shutdown).instrument(span).await;
    // A scrape that is under way is nothing to wait for.
    if let Some(served) = served {
        served.abort();
    }
    Ok(lived?)
}

/// Serves /metrics until it is aborted. As long as that cannot be, it tries again: the host's updates do not depend on it.
/// `name` is what its certificate says.
async fn serve(address: SocketAddr, cluster: ClusterConfig, name: String, metrics: Arc<Metrics>) {
    let mut opening = Retry::new("opening the port of /metrics");
    loop {
        let delay = match open(address, &cluster, &name, &metrics) {
            Ok(pages) => {
                opening.resolved();
                return pages.await;
            }
            Err(error) => opening.failed(&describe(&error)),
        };
        tokio::time::sleep(delay).await;
    }
}

/// Opens the port. Returns what serves it.
fn open(
    address: SocketAddr,
    cluster: &ClusterConfig,
    name: &str,
    metrics: &Arc<Metrics>,
) -> Result<impl Future<Output = ()> + use<>, PortError> {
    let listener = endpoint::listen(address)?;
    let resolver = Resolver::self_signed(name)?;
    let right = Requirement::Get(metrics_endpoint::PATH);
    let client = cluster.client_without_retry()?;
    let scrapers = Authorizer::new(
        client,
        right,
        Unknown::OF_ONE_OF_MANY,
        metrics.process.refused_scrapes.clone(),
    );
    // Nobody requests it: this ends when it is aborted.
    let (trigger, shutdown) = Shutdown::by_hand();
    let (drops, metrics) = (metrics.process.drops.clone(), Arc::clone(metrics));
    let pages = metrics_endpoint::serve(
        listener,
        resolver,
        scrapers,
        move || metrics.render(),
        drops,
        shutdown,
    );
    Ok(async move {
        pages.await;
        drop(trigger);
    })
}

/// Asks until the API server answers; `None` if the process is to end before.
async fn identify(
    client: &Client,
    shutdown: &Shutdown,
) -> Result<Option<PodIdentity>, ProcessError> {
    let mut question = Retry::new("asking the API server which node the agent's token belongs to");
    loop {
        let asked = tokio::select! {
            asked = who_am_i(client.clone()) => asked,
            () = shutdown.requested() => return Ok(None),
        };
        let delay = match asked {
            Ok(me) => {
                question.resolved();
                return Ok(Some(me));
            }
            Err(error) if error.is_temporary() => question.failed(&describe(&error)),
            Err(error) => return Err(ProcessError::Who(error)),
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = shutdown.requested() => return Ok(None),
        }
    }
}
