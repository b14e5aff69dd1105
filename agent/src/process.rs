//! Puts the agent together and runs it.

use brupop_api::identity::PodIdentity;
use brupop_api::names::shadow_name;
use brupop_runtime::client::ClientError;
use brupop_runtime::errors::describe;
use brupop_runtime::{ClusterConfig, Shutdown};
use kube::Client;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::agent::{Agent, SocketAbandoned};
use crate::identity::{WhoError, who_am_i};
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

/// Runs the agent until it is told to end.
///
/// # Errors
/// It cannot start, or nobody listens on the host's socket. Whatever else goes wrong is logged, and tried again.
pub async fn run(options: Options) -> Result<(), ProcessError> {
    let cluster = ClusterConfig::of_pod("brupop-agent")?;
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
    let agent = Agent::new(options, client, cluster.namespace(), &me.node_name);
    Ok(agent.live(seen, shutdown).instrument(span).await?)
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
