//! The fleet at a glance, for people and programs.

use jiff::tz::TimeZone;
use serde::Serialize;

/// The fleet at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Glance {
    pub namespace: String,
    /// A person has paused the fleet.
    pub paused: bool,
    /// Number of nodes that may be updated at once; absent while no reconciler has said so.
    pub unavailable_limit: Option<u64>,
    /// Number of slots that are in use.
    pub updating_nodes: usize,
    /// All nodes that are opted in or have a shadow.
    pub nodes: usize,
    /// Nodes that run what their host would choose; absent while agents' reports are missing or no reconciler leads.
    pub updated_nodes: Option<usize>,
    /// Obstacles to all updates, in sentences.
    pub obstacles: Vec<String>,
    /// Pods of the operator that do not start, and why.
    pub not_started: Vec<String>,
    /// Versions that no further node is updated to.
    pub halted: Vec<HaltedVersion>,
    pub pools: Vec<PoolLine>,
    /// The nodes that are being updated.
    pub moving: Vec<Moving>,
    /// The others that are not up to date, by what they wait for.
    pub waiting: Vec<WaitingNodes>,
    /// Nodes that are up to date, and of which people have asked something that takes effect with the next update.
    pub left_by_people: Vec<WaitingNodes>,
    /// Nodes that are out of service and not being updated.
    pub out_of_service: Vec<String>,
    /// Number of nodes that run Bottlerocket and are not opted in.
    pub not_opted_in_nodes: u64,
    /// Number of nodes that are opted in and have no shadow.
    pub without_shadow: usize,
    /// Shadows that cannot be read.
    pub unreadable: Vec<String>,
    /// Each node that can be read. Fleet and pools are counted here, so that no two numbers differ.
    pub each: Vec<NodeLine>,
    /// The time zone of the pools' windows, if they all have the same.
    #[serde(skip)]
    pub zone: Option<TimeZone>,
}

impl Glance {
    /// Returns how many nodes are so far, of those that are meant.
    pub(crate) fn count(&self, standing: Standing, is_meant: impl Fn(&NodeLine) -> bool) -> usize {
        let nodes = self.each.iter().filter(|it| it.standing == standing);
        nodes.filter(|it| is_meant(it)).count()
    }
}

/// A version that no further node is updated to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HaltedVersion {
    pub version: String,
    pub variant: String,
    /// When the last failure was counted.
    pub at: String,
    pub why: String,
}

/// A pool, as its status has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolLine {
    pub pool: String,
    /// A person has paused it.
    pub paused: bool,
    /// Maximum number of its nodes that are updated at a time.
    pub unavailable_limit: u64,
    /// The reason why it progresses or waits.
    pub reason: String,
    pub message: String,
}

/// A node in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeLine {
    pub node: String,
    pub pool: String,
    pub version: Option<String>,
    pub state: Option<&'static str>,
    pub reason: String,
    pub standing: Standing,
}

/// The progress of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Standing {
    UpToDate,
    Moving,
    Waiting,
}

/// A node that is being updated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Moving {
    pub node: String,
    pub reason: String,
    pub message: String,
    /// The time since which it is to reach its next state.
    pub since: Option<String>,
    /// The time since which it is being updated: its slot was taken then.
    pub updating_since: Option<String>,
    /// The version that it runs, or ran when its update began.
    pub from: Option<String>,
    pub to: Option<String>,
    /// It holds its slot for longer than the step may take.
    pub overdue: bool,
}

/// Nodes that wait for one thing, or of which the same is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WaitingNodes {
    pub reason: String,
    pub nodes: Vec<String>,
    /// Their reason for waiting, as a sentence.
    pub message: String,
}
