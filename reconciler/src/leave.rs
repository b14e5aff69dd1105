//! `brupop-reconciler drain-to-idle`: the first step of uninstalling. Waits until nothing in the cluster is ours to finish
//! or undo, and says what it waits for. Writes nothing: a person pauses the fleet, and the reconciler that runs does the rest.

use std::time::Duration;

use brupop_api::names;
use brupop_runtime::{Cluster, Shutdown, client::ClientError};
use clap::Args;
use tokio::time::timeout;

use crate::observe::Snapshot;
use crate::watches::Watches;

/// What is asked of `drain-to-idle`.
#[derive(Clone, Debug, Args)]
pub struct LeaveArgs {
    /// Seconds after which to give up waiting; what runs goes on all the same
    #[arg(long, default_value = "21600", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout_seconds: u64,
    /// Namespace of the operator; by default that of the pod, or of the kubeconfig's context
    #[arg(long, short)]
    pub namespace: Option<String>,
}

/// Why it is not over.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// No way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Signals cannot be handled.
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
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
    /// New updates may start: that has to end first.
    NotPaused,
    /// These nodes are being updated, or carry changes of ours, as `<node> (<why>)`.
    Nodes(Vec<String>),
    /// Nothing.
    Nothing,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPaused => write!(
                f,
                "not paused: kubectl patch brf {} --type=merge -p '{{\"spec\":{{\"paused\":true}}}}'",
                names::FLEET
            ),
            Self::Nodes(nodes) => write!(f, "waiting for {}", nodes.join(", ")),
            Self::Nothing => f.write_str("nothing is left"),
        }
    }
}

/// What is left to wait for. Without a fleet there is no reconciler that could start anything.
pub fn left(snapshot: &Snapshot) -> Left {
    if snapshot.ledger().is_some_and(|ledger| !ledger.fleet.spec.paused) {
        return Left::NotPaused;
    }
    let slot = |shadow: &str| snapshot.status().is_some_and(|status| status.slots.contains_key(shadow));
    let names = snapshot.nodes.keys().chain(snapshot.shadows.keys());
    let mut waiting: Vec<String> = names
        .filter_map(|name| {
            let marked = snapshot.nodes.get(name).is_some_and(|node| !matches!(node.marker(), Ok(None)));
            let state = snapshot.shadow(name).map(|shadow| shadow.spec.state);
            let moving = state.filter(|state| *state != brupop_api::State::Idle);
            let why = match moving {
                Some(state) => state.as_str(),
                None if marked => "marked",
                None if slot(name) => "about to end",
                None => return None,
            };
            Some(format!("{} ({why})", names::node_of_shadow(name).unwrap_or(name)))
        })
        .collect();
    waiting.sort_unstable();
    waiting.dedup();
    if waiting.is_empty() { Left::Nothing } else { Left::Nodes(waiting) }
}

/// Waits, and tells `say` each time that what is left changes.
///
/// # Errors
/// It takes too long, a signal came, or the cluster cannot be read.
pub async fn run(args: &LeaveArgs, say: impl Fn(&str)) -> Result<(), LeaveError> {
    let cluster = Cluster::infer("brupop-reconciler-drain-to-idle").await?;
    let shutdown = Shutdown::on_signals().map_err(LeaveError::Signals)?;
    let namespace = args.namespace.as_deref().unwrap_or(cluster.namespace());
    let watches = Watches::start(&cluster.client()?, namespace);
    let mut said = Left::Nothing;
    let waiting = async {
        watches.wait_until_synced().await;
        loop {
            let left = left(&watches.snapshot().map_err(LeaveError::Fleet)?);
            if left == Left::Nothing {
                say(&left.to_string());
                return Ok(());
            }
            if left != said {
                say(&left.to_string());
                said = left;
            }
            watches.changed.notified().await;
        }
    };
    let ended = tokio::select! {
        ended = timeout(Duration::from_secs(args.timeout_seconds), waiting) => ended,
        () = shutdown.requested() => return Err(LeaveError::Interrupted(said.to_string())),
    };
    ended.unwrap_or_else(|_| Err(LeaveError::TooLong(args.timeout_seconds, said.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::WatchedNode;
    use serde_json::json;
    use std::sync::Arc;

    fn snapshot(paused: bool, slots: &serde_json::Value, marker: Option<&str>, state: &str) -> Snapshot {
        let annotations = marker.map(|marker| json!({names::MARKER_ANNOTATION: marker}));
        let mut node: WatchedNode =
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap();
        node.trim();
        let shadow = json!({"metadata": {"name": "brs-n"}, "spec": {"state": state}});
        let ledger =
            json!({"metadata": {"name": "fleet"}, "spec": {"paused": paused}, "status": {"slots": slots}});
        Snapshot {
            nodes: [("brs-n".to_owned(), Arc::new(node))].into(),
            shadows: [("brs-n".to_owned(), Arc::new(serde_json::from_value(shadow).unwrap()))].into(),
            ledger: Some(Arc::new(serde_json::from_value(ledger).unwrap())),
            ..Snapshot::default()
        }
    }

    #[test]
    fn what_is_ours_is_waited_for_and_named() {
        let slot = json!({"brs-n": {"uid": "u", "attempt": 1}});
        let marker = json!({"shadow_uid": "u", "attempt": 1, "tainted": true}).to_string();
        let nodes = |why: &str| Left::Nodes(vec![format!("n ({why})")]);
        for (says, snapshot, expected) in [
            ("may start anything", snapshot(false, &json!({}), None, "Idle"), Left::NotPaused),
            ("all Idle", snapshot(true, &json!({}), None, "Idle"), Left::Nothing),
            (
                "in mid-update",
                snapshot(true, &slot, Some(&marker), "RebootedIntoUpdate"),
                nodes("RebootedIntoUpdate"),
            ),
            ("to be undone", snapshot(true, &slot, Some(&marker), "Idle"), nodes("marked")),
            ("a marker nobody can read", snapshot(true, &json!({}), Some("?"), "Idle"), nodes("marked")),
            ("its slot", snapshot(true, &slot, None, "Idle"), nodes("about to end")),
        ] {
            assert_eq!(left(&snapshot), expected, "{says}");
        }
        assert!(Left::NotPaused.to_string().contains("kubectl patch brf fleet"));
    }
}
