//! A pool's status, which no decision reads.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::counts::NodeCounts;
use crate::schema::{Counter, Time, Version};

/// What people see of a pool. The reconciler writes it and decides nothing by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BottlerocketPoolStatus {
    /// The spec generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub observed_generation: Option<u64>,
    /// How far the nodes of the pool are.
    #[serde(flatten)]
    pub counts: NodeCounts,
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

/// A window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextWindow {
    /// When it opens, or has opened.
    #[schemars(with = "Time")]
    pub start: String,
    /// When it closes; none if another window follows without a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub end: Option<String>,
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
