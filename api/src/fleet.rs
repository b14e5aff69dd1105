//! `BottlerocketFleet` v1alpha1: the one ledger for what must hold across nodes. There is one object, `fleet`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::crds::UID_MAX;
use crate::schema::{
    self, Counter, Threshold, Time, Variant, Version, Word, WrittenTime, WrittenVariant,
    WrittenVersion,
};

/// The requests of people to the fleet.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "brupop.bottlerocket.aws",
    version = "v1alpha1",
    kind = "BottlerocketFleet",
    namespaced,
    shortname = "brf",
    category = "bottlerocket",
    validation = Rule::new("self.metadata.name == 'fleet'")
        .message("there is one fleet, and it is named fleet: the reconciler ignores others"),
    status = "BottlerocketFleetStatus",
    derive = "PartialEq",
    doc = "What holds across all nodes: slots in use, outcomes per version, the pause switch.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedNodes"),
    printcolumn(name = "Updating", type_ = "integer", json_path = ".status.updatingNodes"),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.pendingNodes"),
    printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.blockedNodes"),
    printcolumn(name = "Limit", type_ = "integer", json_path = ".status.unavailableLimit", priority = 1),
    printcolumn(name = "Halted", type_ = "string", json_path = ".status.haltedVersions"),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(
        name = "Enforced",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="AdmissionEnforced")].status"#,
        description = "The admission rules are in force; without them no update starts."
    ),
    printcolumn(
        name = "Other Operator",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="OtherOperator")].status"#,
        description = "Another operator may update these nodes, so no update starts here."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BottlerocketFleetSpec {
    /// No update starts while this is true. Nodes that are cordoned already are finished. Default: false.
    #[serde(default)]
    pub paused: bool,
    /// Halted versions that a person resumes, each by the exact time of its halt. An entry has no effect on later halts, so it
    /// may stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::VERSION_RECORDS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["version".into(), "variant".into()]))]
    pub resumed_versions: Vec<ResumedVersion>,
    /// Number of nodes that may be unavailable at once in the whole fleet: a number, or a percentage of the labelled nodes. It raises
    /// no other limit: those of pools hold beside it, and `MAX_CONCURRENT_UPDATE` for the nodes that no pool selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::MaxUnavailable", extend("nullable" = false))]
    pub max_unavailable: Option<IntOrString>,
    /// After how many failed nodes of a variant a version is halted for that variant.
    #[serde(default)]
    pub failure_threshold: FailureThreshold,
}

/// After how many failed nodes of a variant a version is halted for that variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FailureThreshold {
    /// As long as no node of the variant has reached the version; from 1 to 8. At most this many nodes try it until then.
    /// Default: 1.
    #[schemars(with = "Threshold")]
    pub unproven: u64,
    /// Once a node of the variant has reached the version; from 1 to 8. Default: 2.
    #[schemars(with = "Threshold")]
    pub proven: u64,
}

impl FailureThreshold {
    /// The first failure halts a version, or the second once a node has reached it.
    pub const DEFAULT: Self = Self {
        unproven: 1,
        proven: 2,
    };
}

impl Default for FailureThreshold {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A halt that a person ends: nodes of the variant may be updated to the version again, and its failures are cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumedVersion {
    /// The halted version to resume.
    #[schemars(with = "WrittenVersion")]
    pub version: String,
    /// The variant for which it is halted, such as `aws-k8s-1.36-arm64`.
    #[schemars(with = "WrittenVariant")]
    pub variant: String,
    /// The `haltedAt` of its record in `status.versions`. A time that is not that of the halt resumes nothing.
    #[schemars(with = "WrittenTime")]
    pub halted_at: String,
}

/// The ledger. Its slots are the only right to update a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[schemars(extend("default" = schema::unobserved()))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.term) || (has(self.term) && self.term >= oldSelf.term)")
    .message("term never falls and is never removed"))]
pub struct BottlerocketFleetStatus {
    /// Term of the leader; one more with each change of leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub term: Option<u64>,
    /// The slots in use, by name of the shadow.
    #[serde(default)]
    #[schemars(extend(
        "maxProperties" = crate::crds::SLOTS_MAX,
        "x-kubernetes-validations" = schema::name_keys(crate::crds::NAME_MAX)
    ))]
    pub slots: BTreeMap<String, Slot>,
    /// The outcome of each version for each variant; the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::VERSION_RECORDS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["version".into(), "variant".into()]))]
    pub versions: Vec<VersionRecord>,
    /// Pools that others depend on (`spec.dependsOn`), and the versions that they have finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::DONE_POOLS_MAX * crate::crds::DONE_VERSIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pool".into(), "version".into()]))]
    pub done_pools: Vec<DonePool>,
    /// The progress of all opted-in nodes.
    #[serde(flatten)]
    pub counts: NodeCounts,
    /// Nodes that run Bottlerocket and are not opted in.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub not_opted_in_nodes: u64,
    /// The versions that are halted for a variant; `versions` says for which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<Vec<Version>>",
        length(max = crate::crds::VERSION_RECORDS_MAX),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub halted_versions: Option<Vec<String>>,
    /// The spec generation that the figures, `haltedVersions` and the conditions describe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub observed_generation: Option<u64>,
    /// When an update last finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_finished: Option<String>,
    /// Conditions of the fleet; written by the reconciler only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::CONDITIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Numbers of opted-in nodes of a pool, or of the whole fleet, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// Number of all opted-in nodes.
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
    /// Number of nodes that may be out of service at once.
    #[schemars(with = "Counter")]
    pub unavailable_limit: u64,
}

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
    /// The time at which it was taken.
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
    /// The host began its reboot, and its node was not Ready for long: if the Node is deleted now, the update has failed.
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

/// The outcome of one version on the nodes of one variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// The version that this record describes.
    #[schemars(with = "Version")]
    pub version: String,
    /// The variant that this record describes.
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
    /// The last nodes that failed to reach the version since it was last resumed, each once. Agents' reports do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = crate::crds::FAILED_NODES_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"])
    )]
    pub failures: Vec<NodeFailure>,
    /// Number of nodes that have reached it.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub succeeded: u64,
}

/// A pool that has finished a version: at least one of its nodes runs the version in service, and no node has to be updated to
/// it. This stays so until the version is halted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DonePool {
    /// The name of the pool.
    #[schemars(length(max = crate::crds::POOL_NAME_MAX), regex(pattern = schema::NAME))]
    pub pool: String,
    /// The version that the pool has finished.
    #[schemars(with = "Version")]
    pub version: String,
    /// When the pool finished the version.
    #[schemars(with = "Time")]
    pub since: String,
}

/// A node that failed to reach a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFailure {
    /// Name of the node that failed.
    #[schemars(length(max = crate::crds::NAME_MAX), regex(pattern = schema::NAME))]
    pub node: String,
    /// The time at which it was counted.
    #[schemars(with = "Time")]
    pub at: String,
    /// The reason of the failure, in CamelCase.
    #[schemars(with = "Word")]
    pub reason: String,
}

impl VersionRecord {
    /// Whether this is the record of this version for this variant.
    pub fn is_of(&self, version: &str, variant: &str) -> bool {
        self.version == version && self.variant == variant
    }
}
