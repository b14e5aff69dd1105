//! What the fleet's status keeps of slots and versions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds::UID_MAX;
use crate::schema::{self, Counter, Time, Variant, Version, Word};

/// The right to update one node, once.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Slot {
    /// UID of the shadow, so that a recreated shadow has no slot.
    #[schemars(length(max = UID_MAX), regex(pattern = schema::UID))]
    pub uid: String,
    /// The attempt this slot is for: the shadow's `spec.attempt` once its spec has moved.
    #[schemars(with = "Counter")]
    pub attempt: u64,
    /// When it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<String>,
    /// The version to which it lets the node be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Version>")]
    pub version: Option<String>,
    /// The node's variant then, for which the outcome counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Variant>")]
    pub variant: Option<String>,
    /// The pool that owned the node then, and in which the slot counts for as long as it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = crate::crds::POOL_NAME_MAX), regex(pattern = schema::NAME))]
    pub pool: Option<String>,
    /// The host claimed its reboot, and its node was not Ready for long: if the Node is deleted now, the update has failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lost: bool,
    /// The node's failure in this attempt is counted in `versions` already.
    #[serde(default, skip_serializing_if = "is_false")]
    pub counted: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// What became of one version on the nodes of one variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// The version.
    #[schemars(with = "Version")]
    pub version: String,
    /// The variant.
    #[schemars(with = "Variant")]
    pub variant: String,
    /// When two nodes (or the only one) first reported the version, one of them of this variant. A pool's `minAge` counts from
    /// then; it is noted while there are pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub reported_at: Option<String>,
    /// Set while no new node of the variant is updated to the version: when its last failure was counted. To resume the
    /// version, name this time in `spec.resumedVersions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub halted_at: Option<String>,
    /// The last nodes that failed to reach it since it was last resumed, on facts of Nodes; each node once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = crate::crds::FAILED_NODES_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"])
    )]
    pub failures: Vec<NodeFailure>,
    /// How many nodes have reached it.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub succeeded: u64,
}

/// A pool that is done with a version: a node of it runs the version in service, and none was left to be updated to it. It stays
/// so until the version is halted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DonePool {
    /// The name of the pool.
    #[schemars(length(max = crate::crds::POOL_NAME_MAX), regex(pattern = schema::NAME))]
    pub pool: String,
    /// The version.
    #[schemars(with = "Version")]
    pub version: String,
    /// Since when it is done.
    #[schemars(with = "Time")]
    pub since: String,
}

/// A node that failed to reach a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFailure {
    /// Name of the node.
    #[schemars(length(max = crate::crds::NAME_MAX), regex(pattern = schema::NAME))]
    pub node: String,
    /// When it was counted.
    #[schemars(with = "Time")]
    pub at: String,
    /// Why, in CamelCase.
    #[schemars(with = "Word")]
    pub reason: String,
}

impl VersionRecord {
    /// Whether this is the record of this version for this variant.
    pub fn is_of(&self, version: &str, variant: &str) -> bool {
        self.version == version && self.variant == variant
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_flag_of_a_slot_is_written_if_it_is_set() {
        let slot = Slot {
            lost: true,
            counted: true,
            ..Slot::default()
        };
        assert_eq!(
            json!(slot),
            json!({"uid": "", "attempt": 0, "lost": true, "counted": true})
        );
        assert_eq!(json!(Slot::default()), json!({"uid": "", "attempt": 0}));
    }
}
