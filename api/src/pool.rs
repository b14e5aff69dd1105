//! `BottlerocketPool` v1alpha1: a part of the fleet, and how and when its nodes are updated. People write the spec, the
//! reconciler writes the status, and no decision reads a status.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::fleet::NodeCounts;
use crate::names::ZONE_LABEL;
use crate::schema::{
    self, Counter, DnsLabel, Duration, LabelKey, LabelValue, PoolName, Schedule, Time, TimeZone,
    Version, WrittenTime, WrittenVersion,
};
pub use crate::schema::{
    FIVE_FIELDS, MAX_UNAVAILABLE_HINT, TIME_ZONE_HINT, VERSION_HINT, WRITTEN_TIME_HINT,
};

/// Rules for updating the pool's nodes.
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
    printcolumn(name = "Limit", type_ = "integer", json_path = ".status.unavailableLimit", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].reason"#
    ),
    printcolumn(name = "Next Window", type_ = "string", json_path = ".status.nextWindow.start", priority = 1),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority", priority = 1),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BottlerocketPoolSpec {
    /// Selects nodes by their labels. `{}` selects all opted-in nodes.
    pub node_selector: NodeSelector,
    /// Decides between pools that select the same node: the one with the highest priority owns it. If two share that priority,
    /// no update of the node starts. Give 0 to the pool that takes all other nodes. Default: 1.
    #[serde(default = "default_priority")]
    #[schemars(with = "i32", range(min = 0, max = 1000))]
    pub priority: u64,
    /// No update starts while this is true. Nodes that are cordoned already are finished. Default: false.
    #[serde(default)]
    pub paused: bool,
    /// Number of nodes of the pool that may be unavailable at once: a number, or a percentage of its nodes, rounded down but at least
    /// 1. Nodes that are not Ready count. Default: 1.
    #[serde(default = "one")]
    #[schemars(with = "schema::MaxUnavailable", extend("nullable" = false))]
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
    /// The pool's rule for zones, or for another topology.
    #[serde(default)]
    pub topology: Topology,
    /// The allowed versions. Hosts choose their version; a pool can only refuse it. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Pools that must finish a version before this one starts it. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::DEPENDS_ON_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pool".into()]))]
    pub depends_on: Vec<DependsOn>,
    /// Rules for draining nodes before their reboot.
    #[serde(default)]
    pub drain: Drain,
    /// Rules for verifying an updated node before it gives its slot back.
    #[serde(default)]
    pub verify: Verify,
    /// Queries that hold updates back unless all is well. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::GATES_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<Gate>,
}

fn default_priority() -> u64 {
    1
}

fn one() -> IntOrString {
    IntOrString::Int(1)
}

/// Selects the nodes that meet all of this, as a `LabelSelector` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelector {
    /// Labels that a node must have, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, LabelValue>", extend("maxProperties" = 16, "x-kubernetes-validations" = [
        {"rule": "self.all(key, size(key) <= 317)", "message": schema::LABEL_KEY_HINT}
    ]))]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on other labels. A node must meet all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<NodeRequirement>,
}

/// A requirement on the label with this key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)")
    .message("In and NotIn need values; Exists and DoesNotExist take none"))]
pub struct NodeRequirement {
    /// Key of the label that is compared.
    #[schemars(with = "LabelKey")]
    pub key: String,
    /// The relation of the label's value to `values`: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Operator,
    /// The values for `In` and `NotIn`. `Exists` and `DoesNotExist` take none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<LabelValue>", length(max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub values: Vec<String>,
}

/// As in a `LabelSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// A recurring maintenance window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When it opens: a cron expression of five fields (minute hour day month weekday), such as `0 2 * * SAT`.
    #[schemars(with = "Schedule")]
    pub schedule: String,
    /// Time for which it stays open, such as `4h` or `1h30m`; at most a week.
    #[schemars(with = "Duration")]
    pub duration: String,
    /// The time zone of the schedule, a name of the IANA database such as `Europe/Berlin`. Default: UTC.
    #[serde(default = "utc")]
    #[schemars(with = "TimeZone")]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A span of time in which no update starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new(schema::ordered()).message("start comes before end"))]
pub struct Freeze {
    /// Name of the freeze, for people.
    #[schemars(with = "LabelValue", length(min = 1))]
    pub name: String,
    /// When it begins, such as `2026-12-20T00:00:00+01:00`.
    #[schemars(with = "WrittenTime")]
    pub start: String,
    /// When it ends: the first moment at which updates may start again.
    #[schemars(with = "WrittenTime")]
    pub end: String,
}

/// The pool's rule for zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// The label whose values are the zones. Nodes without it are one zone, too. Default: topology.kubernetes.io/zone.
    #[schemars(with = "LabelKey")]
    pub topology_key: String,
    /// `Spread` prefers zones with fewer updates; `OneAtATime` updates one zone at a time. Default: Spread.
    pub mode: TopologyMode,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            topology_key: ZONE_LABEL.to_owned(),
            mode: TopologyMode::Spread,
        }
    }
}

/// The pool's rule for zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TopologyMode {
    /// Among otherwise equal nodes, one of the zone with the fewest updates goes first.
    #[default]
    Spread,
    /// Updates start in one zone only, and only while no node of another zone is unavailable.
    OneAtATime,
}

/// Rules for draining nodes before their reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// The time that a drain may take, from a second to a week. Default: 15m.
    #[schemars(with = "Duration")]
    pub timeout: String,
    /// Action if a drain takes longer: `Abort` gives the update up, `Force` deletes the remaining pods, whatever their budgets say.
    /// `Force` needs the component force-drain, and is `Abort` without it. Default: Abort.
    pub on_timeout: OnTimeout,
    /// Time for which a node is excluded from load balancers before it is cordoned, such as `90s`. Default: 0s, not at all.
    #[schemars(with = "Duration")]
    pub load_balancer_delay: String,
    /// No update begins on a node with a running pod that asks not to be disrupted (`karpenter.sh/do-not-disrupt: "true"`,
    /// `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`). Default: false.
    pub respect_do_not_disrupt: bool,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout: "15m".to_owned(),
            on_timeout: OnTimeout::Abort,
            load_balancer_delay: "0s".to_owned(),
            respect_do_not_disrupt: false,
        }
    }
}

/// The action if a drain takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnTimeout {
    /// The update is given up, and what was changed is undone.
    #[default]
    Abort,
    /// The remaining pods are deleted, whatever their budgets say.
    Force,
}

/// Rules for verifying an updated node before it gives its slot back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verify {
    /// Time for which node and agent must be Ready without interruption; at most a week. Default: 1m.
    #[schemars(with = "Duration")]
    pub ready_for: String,
    /// Time for which the node then keeps its slot while an evicted workload has fewer pods available than before; at most a week.
    /// `0s` does not look. Default: 15m.
    #[schemars(with = "Duration")]
    pub workloads_timeout: String,
}

impl Default for Verify {
    fn default() -> Self {
        Self {
            ready_for: "1m".to_owned(),
            workloads_timeout: "15m".to_owned(),
        }
    }
}

/// A query that must show that all is well. While it does not, no node is cordoned for its update, and updated nodes keep their
/// slots. No update fails because of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// Name of the gate, a DNS label.
    #[schemars(with = "DnsLabel")]
    pub name: String,
    /// The Prometheus, or a server with its API, and the queries.
    pub prometheus: PrometheusGate,
}

/// The source and the queries of a gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PrometheusGate {
    /// Name of the source in the Secret `brupop-gate-sources`.
    #[schemars(with = "DnsLabel")]
    pub source: String,
    /// A `PromQL` expression that finds nothing while all is well, such as `ALERTS{severity="critical",alertstate="firing"}`.
    #[schemars(length(min = 1, max = crate::crds::QUERY_MAX))]
    pub query: String,
    /// An expression that finds something while the source is well, such as `ALERTS{alertname="Watchdog"}`. If it finds nothing,
    /// the gate closes. Default: not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = crate::crds::QUERY_MAX))]
    pub requires: Option<String>,
}

/// The allowed versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The lowest version that is allowed. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WrittenVersion>")]
    pub at_least: Option<String>,
    /// Only versions below this one are allowed, by semantic versioning. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WrittenVersion>")]
    pub below: Option<String>,
    /// The age that a version must have, such as `72h`; at most 90 days. Its age counts from when two nodes (or the only one) first named
    /// it while there were pools. Default: 0s.
    #[serde(default = "at_once")]
    #[schemars(with = "Duration")]
    pub min_age: String,
}

impl Default for Versions {
    fn default() -> Self {
        Self {
            at_least: None,
            below: None,
            min_age: at_once(),
        }
    }
}

/// The limit of unavailable nodes: [`BottlerocketPoolSpec::max_unavailable`], or the reconciler's setting `MAX_CONCURRENT_UPDATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This number of nodes, however many there are.
    Nodes(u64),
    /// That percentage of the nodes that it limits, rounded down, but at least one.
    Percent(u64),
    /// Any number. The ledger still has no more than [`SLOTS_MAX`](crate::crds::SLOTS_MAX) slots.
    Unlimited,
}

impl Default for Limit {
    fn default() -> Self {
        Self::Nodes(1)
    }
}

impl Limit {
    /// Computes the limit as a number of nodes, where it limits `all`.
    pub fn of(self, all: u64) -> u64 {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::Percent(percent) => (all.saturating_mul(percent) / 100).max(1),
            Self::Unlimited => u64::MAX,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| digits.parse::<u64>().ok().filter(|number| *number >= 1);
        match (text, text.strip_suffix('%')) {
            ("unlimited", _) => Some(Self::Unlimited),
            (_, Some(digits)) => number(digits).filter(|percent| *percent <= 100).map(Self::Percent),
            (digits, None) => number(digits).map(Self::Nodes),
        }
        .ok_or_else(|| {
            "write an integer from 1 such as 2, a percentage from 1% to 100% such as 10%, or unlimited"
                .to_owned()
        })
    }
}

/// A pool that goes first. It has finished a version when at least one of its nodes runs the version, and none still has to be updated to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DependsOn {
    /// Name of the pool. A pool that does not exist never finishes a version.
    #[schemars(with = "PoolName")]
    pub pool: String,
    /// Time that must pass after that pool has finished the version, such as `24h`. Nodes that join the pool later change nothing; a
    /// halt of the version does. Default: 0s.
    #[serde(default = "at_once")]
    #[schemars(with = "Duration")]
    pub soak: String,
}

fn at_once() -> String {
    "0s".to_owned()
}

/// Figures and conditions of a pool, for people. The reconciler writes them and decides nothing by them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[schemars(extend("default" = schema::unobserved()))]
#[serde(rename_all = "camelCase")]
pub struct BottlerocketPoolStatus {
    /// The spec generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub observed_generation: Option<u64>,
    /// The progress of the pool's nodes.
    #[serde(flatten)]
    pub counts: NodeCounts,
    /// The window that is open, or the next one; none if the pool has no windows, or none opens any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_window: Option<NextWindow>,
    /// Numbers of its nodes by version: the most frequent ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::POOL_VERSIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["version".into()]))]
    pub versions: Vec<VersionCount>,
    /// Conditions of the pool; written by the reconciler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = crate::crds::CONDITIONS_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A window that is open, or opens next.
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

/// The number of nodes that run a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionCount {
    /// The version that these nodes run.
    #[schemars(with = "Version")]
    pub version: String,
    /// Number of nodes that run it.
    #[schemars(with = "Counter")]
    pub nodes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_counted() {
        for (text, nodes, limit) in [
            ("3", 100, 3),
            ("10%", 100, 10),
            ("10%", 19, 1),
            ("10%", 0, 1),
            ("100%", 7, 7),
            ("10%", 50_000, 5_000),
            ("unlimited", 7, u64::MAX),
            ("100000", 7, 100_000),
        ] {
            let parsed: Limit = text.parse().unwrap();
            assert_eq!(parsed.of(nodes), limit, "{text} of {nodes}");
        }
    }
}
