//! Puts the agent together and runs it.

use brupop_api::identity::PodIdentity;
use brupop_api::names::shadow_name;
use brupop_runtime::client::ClientError;
use brupop_runtime::errors::describe;
use brupop_runtime::{ClusterConfig, Heartbeat, Shutdown};
use kube::Client;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::agent::{Agent, SocketAbandoned};
use crate::identity::{WhoError, who_am_i};
use crate::options::Options;
use crate::retry::Retry;
use crate::{shadow, watchdog};

/// Reasons why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node is not known.
    #[error("the agent cannot find out which node it runs on")]
    Who(#[source] WhoError),
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
    let me = tokio::select! {
        me = identify(&client) => me?,
        () = shutdown.requested() => return Ok(()),
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
    let heartbeat = Heartbeat::new(watchdog::LONGEST_TURN);
    watchdog::start(heartbeat.clone()).map_err(ProcessError::Watchdog)?;
    let agent = Agent::new(options, client, cluster.namespace(), &me.node_name);
    let living = agent.live(seen, shutdown, &heartbeat);
    Ok(living.instrument(span).await?)
}

/// Asks until the API server answers.
async fn identify(client: &Client) -> Result<PodIdentity, ProcessError> {
    let mut question = Retry::new("asking the API server which node the agent's token belongs to");
    loop {
        match who_am_i(client.clone()).await {
            Ok(me) => {
                question.resolved();
                return Ok(me);
            }
            Err(error) if error.is_temporary() => {
                tokio::time::sleep(question.failed(&describe(&error))).await;
            }
            Err(error) => return Err(ProcessError::Who(error)),
        }
    }
}
