//! A pool's status, which no decision reads.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::schema::{Counter, Time, Version};

/// What people see of a pool. The reconciler writes it and decides nothing by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BottlerocketPoolStatus {
    /// The generation of the spec that all of this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub observed_generation: Option<u64>,
    /// Figures of its nodes.
    #[serde(flatten)]
    pub counts: PoolCounts,
    /// The window that is open, or the next one; none if the pool has no windows, or none opens any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_window: Option<NextWindow>,
    /// How many of its nodes run which version: the most frequent ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::POOL_VERSIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["version".into()]))]
    pub versions: Vec<VersionCount>,
    /// Conditions of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::CONDITIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Figures of a pool's nodes. All are of nodes that are opted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolCounts {
    /// Nodes that the pool owns.
    #[schemars(with = "Counter")]
    pub nodes: u64,
    /// Nodes for which there is no update.
    #[schemars(with = "Counter")]
    pub updated_nodes: u64,
    /// Nodes whose update is under way.
    #[schemars(with = "Counter")]
    pub updating_nodes: u64,
    /// Nodes whose update has not begun, and only waits for its turn or its time.
    #[schemars(with = "Counter")]
    pub pending_nodes: u64,
    /// Nodes whose update cannot begin because of something about the node; its shadow's condition Progressing says what.
    #[schemars(with = "Counter")]
    pub blocked_nodes: u64,
    /// Nodes that are behind, and whose hosts are not offered an update.
    #[schemars(with = "Counter")]
    pub not_offered_nodes: u64,
    /// Nodes whose hosts choose no update although one is offered.
    #[schemars(with = "Counter")]
    pub locked_nodes: u64,
    /// Nodes that are out of service, whatever the reason.
    #[schemars(with = "Counter")]
    pub unavailable_nodes: u64,
    /// How many may be.
    #[schemars(with = "Counter")]
    pub unavailable_limit: u64,
}

/// A window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextWindow {
    /// When it opens, or has opened.
    #[schemars(with = "Time")]
    pub start: String,
    /// When it closes.
    #[schemars(with = "Time")]
    pub end: String,
}

/// How many nodes run a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionCount {
    /// The version.
    #[schemars(with = "Version")]
    pub version: String,
    /// How many nodes run it.
    #[schemars(with = "Counter")]
    pub nodes: u64,
}
