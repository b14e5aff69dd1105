//! `BottlerocketPool` v1alpha1: a part of the fleet, and how and when its nodes are updated. People write the spec, the
//! reconciler writes the status, and no decision reads a status.

mod rules;
mod status;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::schema;
pub use crate::schema::FIVE_FIELDS;
pub use rules::{
    DependsOn, Drain, Freeze, Gate, GateType, NodeRequirement, NodeSelector, Operator,
    PrometheusGate, Topology, TopologyMode, Verify, Versions, Window,
};
pub use status::{BottlerocketPoolStatus, NextWindow, PoolCounts, VersionCount};

/// How and when the pool updates its nodes.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "brupop.bottlerocket.aws",
    version = "v1alpha1",
    kind = "BottlerocketPool",
    namespaced,
    shortname = "brp",
    category = "bottlerocket",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name of a pool has at most 63 characters"),
    validation = Rule::new("self.metadata.name != 'default'")
        .message("the pool default is that of the reconciler's settings: choose another name"),
    validation = Rule::new("!has(self.spec.dependsOn) || self.spec.dependsOn.all(it, it.pool != self.metadata.name)")
        .message("a pool does not depend on itself: name another pool in spec.dependsOn"),
    status = "BottlerocketPoolStatus",
    derive = "PartialEq",
    doc = "A part of the fleet: which nodes it selects, and how and when they are updated.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedNodes"),
    printcolumn(name = "Updating", type_ = "integer", json_path = ".status.updatingNodes"),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.pendingNodes"),
    printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.blockedNodes"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].reason"#
    ),
    printcolumn(name = "Next Window", type_ = "string", json_path = ".status.nextWindow.start", priority = 1),
    printcolumn(name = "Limit", type_ = "integer", json_path = ".status.unavailableLimit", priority = 1),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority", priority = 1),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BottlerocketPoolSpec {
    /// The labels of the nodes that the pool selects; `{}` selects all. The pool with the highest priority owns a node.
    pub node_selector: NodeSelector,
    /// Decides between pools that select the same node: the highest priority owns it. If two pools share it, no update of the
    /// node starts. Default: 0.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0, max = 1000))]
    pub priority: u64,
    /// No update starts while this is true. Nodes that are cordoned already are finished. Default: false.
    #[serde(default)]
    pub paused: bool,
    /// How many nodes of the pool may be unavailable at once: a number, or a percentage of its nodes, rounded down but at least
    /// 1. Nodes that are not Ready count. Default: 1.
    #[serde(default = "one")]
    #[schemars(extend("nullable" = false))]
    #[x_kube(validation = Rule::new(schema::MAX_UNAVAILABLE_RULE).message(schema::MAX_UNAVAILABLE_HINT))]
    pub max_unavailable: IntOrString,
    /// Updates start only while one of these windows is open. Default: none, and updates start at all times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub windows: Vec<Window>,
    /// Spans of time in which no update starts, whatever the windows say. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub freezes: Vec<Freeze>,
    /// How the pool spreads over zones, or over another topology.
    #[serde(default)]
    pub topology: Topology,
    /// Which versions are allowed. Hosts choose their version; a pool can only refuse it. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Pools that must be done with a version before this one begins with it. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::DEPENDS_ON_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pool".into()]))]
    pub depends_on: Vec<DependsOn>,
    /// How nodes are drained before their reboot.
    #[serde(default)]
    pub drain: Drain,
    /// How long a node is watched after its update.
    #[serde(default)]
    pub verify: Verify,
    /// Queries that hold updates back unless all is well. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::GATES_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<Gate>,
}

fn one() -> IntOrString {
    IntOrString::Int(1)
}
