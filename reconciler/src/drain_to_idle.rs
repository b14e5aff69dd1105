//! `brupop-reconciler drain-to-idle`: the first step of uninstalling. It waits until no update runs and no change of
//! ours is left on any Node, and says what it waits for. It writes nothing: a person pauses the fleet, and the running
//! reconciler does the rest.

use std::time::Duration;

use brupop_api::names;
use brupop_runtime::{ClusterConfig, Shutdown, client::ClientError};
use clap::Args;
use tokio::time::timeout;

use crate::watches::Watches;
use brupop_core::cluster::Cluster;

/// What is asked of `drain-to-idle`.
#[derive(Clone, Debug, Args)]
pub struct DrainToIdleArgs {
    /// Seconds after which to give up waiting; what runs goes on all the same
    #[arg(long, default_value = "21600", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout_seconds: u64,
    /// Namespace of the operator; by default that of the pod, or of the kubeconfig's context
    #[arg(long, short)]
    pub namespace: Option<String>,
}

/// Why `drain-to-idle` ended before everything was Idle.
#[derive(Debug, thiserror::Error)]
pub enum DrainToIdleError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Signals cannot be handled.
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
    /// There is no fleet in this namespace; one in another namespace may go on.
    #[error("there is no BottlerocketFleet in namespace {0}: name the operator's namespace by --namespace")]
    NoFleet(String),
    /// The ledger cannot be read.
    #[error("the BottlerocketFleet cannot be read: {0}")]
    Fleet(String),
    /// It takes too long.
    #[error("not done after {0} s; still {1}")]
    TooLong(u64, String),
    /// A signal came.
    #[error("interrupted; still {0}")]
    Interrupted(String),
}

/// What is left to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The fleet in this namespace is not paused, so new updates may start.
    NotPaused(String),
    /// These nodes are being updated, or carry changes of ours, as `<node> (<why>)`.
    Nodes(Vec<String>),
    /// Nothing.
    Nothing,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPaused(namespace) => write!(
                f,
                "not paused: kubectl patch brf {} -n {namespace} --type=merge -p '{{\"spec\":{{\"paused\":true}}}}'",
                names::FLEET
            ),
            Self::Nodes(nodes) => write!(f, "waiting for {}", nodes.join(", ")),
            Self::Nothing => f.write_str("nothing is left"),
        }
    }
}

/// What is left to wait for in the operator's namespace.
pub fn left(cluster: &Cluster, namespace: &str) -> Left {
    if cluster.ledger().is_some_and(|ledger| !ledger.fleet.spec.paused) {
        return Left::NotPaused(namespace.to_owned());
    }
    let slot = |shadow: &str| cluster.status().is_some_and(|status| status.slots.contains_key(shadow));
    let entries = cluster.entries.iter();
    let waiting: Vec<String> = entries
        .filter_map(|(name, entry)| {
            let marker = entry.node.as_ref().map_or(Ok(None), |node| node.marker());
            let state = entry.shadow().map(|shadow| shadow.spec.state);
            let moving = state.filter(|state| *state != brupop_api::State::Idle);
            let why = match moving {
                Some(state) => state.as_str(),
                None => match marker {
                    Ok(Some(_)) => "marked",
                    Err(_) => "cannot be read",
                    Ok(None) if slot(name) => "about to end",
                    Ok(None) => return None,
                },
            };
            Some(format!("{} ({why})", names::node_of_shadow(name).unwrap_or(name)))
        })
        .collect();
    if waiting.is_empty() { Left::Nothing } else { Left::Nodes(waiting) }
}

/// Waits until nothing is left, and calls `say` each time that what is left changes.
///
/// # Errors
/// It takes too long, a signal came, or the cluster cannot be read.
pub async fn run(args: &DrainToIdleArgs, say: impl Fn(&str)) -> Result<(), DrainToIdleError> {
    let cluster = ClusterConfig::infer("brupop-reconciler-drain-to-idle").await?;
    let shutdown = Shutdown::on_signals().map_err(DrainToIdleError::Signals)?;
    let namespace = args.namespace.as_deref().unwrap_or(cluster.namespace());
    let watches = Watches::start(&cluster.client()?, namespace);
    let mut said = None;
    let waiting = async {
        watches.wait_until_synced().await;
        loop {
            let left = {
                let cluster = watches.cluster().map_err(DrainToIdleError::Fleet)?;
                if cluster.ledger().is_none() {
                    return Err(DrainToIdleError::NoFleet(namespace.to_owned()));
                }
                left(&cluster, namespace)
            };
            if said.as_ref() != Some(&left) {
                say(&left.to_string());
            }
            if left == Left::Nothing {
                return Ok(());
            }
            said = Some(left);
            watches.changed.notified().await;
        }
    };
    let ended = tokio::select! {
        ended = timeout(Duration::from_secs(args.timeout_seconds), waiting) => ended,
        () = shutdown.requested() => return Err(DrainToIdleError::Interrupted(still(said))),
    };
    ended.unwrap_or_else(|_| Err(DrainToIdleError::TooLong(args.timeout_seconds, still(said))))
}

/// What it still waited for, as the end of a sentence.
fn still(said: Option<Left>) -> String {
    said.map_or_else(|| "waiting for the API server's answers".to_owned(), |left| left.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_core::objects::WatchedNode;
    use serde_json::json;
    use std::sync::Arc;

    fn cluster(paused: bool, slots: &serde_json::Value, marker: Option<&str>, state: &str) -> Cluster {
        let annotations = marker.map(|marker| json!({names::MARKER_ANNOTATION: marker}));
        let node: WatchedNode =
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap();
        let shadow = json!({"metadata": {"name": "brs-n"}, "spec": {"state": state}});
        let ledger =
            json!({"metadata": {"name": "fleet"}, "spec": {"paused": paused}, "status": {"slots": slots}});
        let mut cluster = Cluster::default();
        cluster.ledger = Some(Arc::new(serde_json::from_value(ledger).unwrap()));
        let entry = cluster.entry("brs-n");
        entry.node = Some(Arc::new(node));
        entry.shadow = Some(Arc::new(serde_json::from_value(shadow).unwrap()));
        cluster
    }

    #[test]
    fn what_is_ours_is_waited_for_and_named() {
        let slot = json!({"brs-n": {"uid": "u", "attempt": 1}});
        let marker = json!({"shadow_uid": "u", "attempt": 1, "tainted": true}).to_string();
        let not_paused = || Left::NotPaused("brupop".to_owned());
        let nodes = |why: &str| Left::Nodes(vec![format!("n ({why})")]);
        for (says, cluster, expected) in [
            ("may start anything", cluster(false, &json!({}), None, "Idle"), not_paused()),
            ("all Idle", cluster(true, &json!({}), None, "Idle"), Left::Nothing),
            (
                "in mid-update",
                cluster(true, &slot, Some(&marker), "RebootedIntoUpdate"),
                nodes("RebootedIntoUpdate"),
            ),
            ("to be undone", cluster(true, &slot, Some(&marker), "Idle"), nodes("marked")),
            (
                "a marker nobody can read",
                cluster(true, &json!({}), Some("?"), "Idle"),
                nodes("cannot be read"),
            ),
            ("its slot", cluster(true, &slot, None, "Idle"), nodes("about to end")),
        ] {
            assert_eq!(left(&cluster, "brupop"), expected, "{says}");
        }
        assert_eq!(
            not_paused().to_string(),
            "not paused: kubectl patch brf fleet -n brupop --type=merge -p '{\"spec\":{\"paused\":true}}'"
        );
    }
}
