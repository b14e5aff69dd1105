//! The parts of a pool's spec.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::ZONE_LABEL;
use crate::schema::{
    self, DnsLabel, Duration, LabelKey, LabelValue, PoolName, Schedule, TimeZone, WrittenTime,
    WrittenVersion,
};

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
    /// Key of the label.
    #[schemars(with = "LabelKey")]
    pub key: String,
    /// How the label's value relates to `values`: `In`, `NotIn`, `Exists` or `DoesNotExist`.
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
    /// How long it stays open, such as `4h` or `1h30m`; at most a week.
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
    /// Name of the freeze.
    #[schemars(with = "LabelValue", length(min = 1))]
    pub name: String,
    /// When it begins, such as `2026-12-20T00:00:00+01:00`.
    #[schemars(with = "WrittenTime")]
    pub start: String,
    /// When it ends: the first moment at which updates may start again.
    #[schemars(with = "WrittenTime")]
    pub end: String,
}

/// How a pool spreads over zones.
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

/// How a pool spreads over zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TopologyMode {
    /// Among otherwise equal nodes, one of the zone with the fewest updates goes first.
    #[default]
    Spread,
    /// Updates start in one zone only, and only while no node of another zone is unavailable.
    OneAtATime,
}

/// How nodes are drained before their reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// How long a drain may take, from a second to a week. Default: 15m.
    #[schemars(with = "Duration")]
    pub timeout: String,
    /// What becomes of a drain that takes longer: `Abort` gives the update up, `Force` deletes the remaining pods, whatever their
    /// budgets say. `Force` needs the component force-drain, and is `Abort` without it. Default: Abort.
    pub on_timeout: OnTimeout,
    /// How long a node is excluded from load balancers before it is cordoned, such as `90s`. Default: 0s, not at all.
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

/// What becomes of a drain that takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnTimeout {
    /// The update is given up, and what was changed is undone.
    #[default]
    Abort,
    /// The remaining pods are deleted, whatever their budgets say.
    Force,
}

/// How an updated node is verified before it gives its slot back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verify {
    /// How long node and agent must be Ready without interruption; at most a week. Default: 1m.
    #[schemars(with = "Duration")]
    pub ready_for: String,
    /// For how long the node then keeps its slot while an evicted workload has fewer pods available than before; at most a week.
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
    /// The Prometheus (or what answers like one) that is asked, and the queries.
    pub prometheus: PrometheusGate,
}

/// The source and the queries of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Which versions are allowed.
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
    /// How old a version must be, such as `72h`; at most 90 days. Its age counts from when two nodes (or the only one) first named
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

/// A pool that goes first. It is done with a version when a node of it runs the version and none still wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DependsOn {
    /// Name of the pool. A pool that does not exist is never done.
    #[schemars(with = "PoolName")]
    pub pool: String,
    /// How long it must have been done without interruption, such as `24h`. After that, nodes that join it change nothing; a halt
    /// of the version does. Default: 0s.
    #[serde(default = "at_once")]
    #[schemars(with = "Duration")]
    pub soak: String,
}

fn at_once() -> String {
    "0s".to_owned()
}
