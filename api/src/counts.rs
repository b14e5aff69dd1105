//! How far nodes are: the same figures in the status of the fleet and of each pool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::Counter;

/// How many opted-in nodes of a pool, or of the whole fleet, are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// All opted-in nodes.
    #[schemars(with = "Counter")]
    pub nodes: u64,
    /// Nodes for which there is no update.
    #[schemars(with = "Counter")]
    pub updated_nodes: u64,
    /// Nodes whose update is under way.
    #[schemars(with = "Counter")]
    pub updating_nodes: u64,
    /// Nodes whose update only waits for its turn or its time.
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
    /// Nodes that are out of service, for whatever reason.
    #[schemars(with = "Counter")]
    pub unavailable_nodes: u64,
    /// How many may be out of service at once.
    #[schemars(with = "Counter")]
    pub unavailable_limit: u64,
}
