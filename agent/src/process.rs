//! Puts the agent together and runs it.

use brupop_api::names::{NODE_NAME_MAX, shadow_name};
use brupop_runtime::client::ClientError;
use brupop_runtime::{ClusterConfig, Heartbeat, Shutdown};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::agent::{Agent, SocketAbandoned};
use crate::options::Options;
use crate::{shadow, watchdog};

/// Reasons why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The token is bound to no pod on a node.
    #[error(
        "{0}; run the agent with the token that is mounted into its pod, on Kubernetes 1.32 or newer"
    )]
    Token(String),
    /// The shadow's name would be too long.
    #[error(
        "the name of node {0} has more than {NODE_NAME_MAX} characters: no shadow can be named after it"
    )]
    NameTooLong(String),
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
    #[error("cannot start the watchdog")]
    Watchdog(#[source] std::io::Error),
    /// The host's API is not to be reached from this container.
    #[error(transparent)]
    Abandoned(#[from] SocketAbandoned),
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// It cannot start, or nobody listens on the host's socket. Whatever else goes wrong is logged, and tried again.
pub async fn run(options: Options) -> Result<(), ProcessError> {
    let cluster = ClusterConfig::of_pod("brupop-agent")?;
    let shutdown = Shutdown::on_signals().map_err(ProcessError::Signals)?;
    let client = cluster.client()?;
    let me = cluster.pod().map_err(ProcessError::Token)?;
    if me.node_name.len() > NODE_NAME_MAX {
        return Err(ProcessError::NameTooLong(me.node_name));
    }
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
    let heartbeat = Heartbeat::new(watchdog::LONGEST_TURN);
    watchdog::start(heartbeat.clone()).map_err(ProcessError::Watchdog)?;
    let agent = Agent::new(options, client, cluster.namespace(), &me.node_name);
    let living = agent.live(seen, shutdown, &heartbeat);
    Ok(living.instrument(span).await?)
}
