//! Objects as they are watched: of each only what decisions and conditional patches need, with bounds on what others
//! can put into them.

mod node;

use std::collections::BTreeMap;
use std::fmt;

use brupop_api::item::{self, Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::{BottlerocketFleet, BottlerocketFleetSpec, BottlerocketFleetStatus, Item, names};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::Selector;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) use node::runs_bottlerocket;
pub use node::{WatchedNode, Words};

/// Annotation of mirror pods, which a kubelet runs from its own files.
const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotations by which a pod asks not to be disrupted, and their values.
const DO_NOT_DISRUPT: [(&str, &str); 2] =
    [(names::DO_NOT_DISRUPT_ANNOTATION, "true"), (names::SAFE_TO_EVICT_ANNOTATION, "false")];
/// The annotations of a pod that matter here.
const POD_ANNOTATIONS: [&str; 3] = [MIRROR_POD_ANNOTATION, DO_NOT_DISRUPT[0].0, DO_NOT_DISRUPT[1].0];
/// Most bytes of labels. They are needed for the selectors of budgets; a pod of sane size has some hundred bytes.
const LABELS_MAX: usize = 8 * 1024;
/// Most labels.
const LABELS_COUNT_MAX: usize = 128;
/// Longest `apiVersion`, `kind` and `name` of an owner. Kubernetes takes any.
const OWNER_MAX: usize = 318;
/// Longest selector that is kept, in bytes of its JSON. Anybody with a namespace can make one of more than a megabyte.
const SELECTOR_MAX: usize = 4 * 1024;
/// Most keys and values of a selector.
const REQUIREMENTS_MAX: usize = 64;
/// What the disruption controller writes when it cannot work out a budget, for example because it does not know the
/// controller of one of its pods.
const SYNC_FAILED: &str = "SyncFailed";

/// A pod as it is watched, readable or not.
pub type PodItem = Item<Pod>;

/// What a drain needs of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The node that it runs on, or will.
    pub node: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The owner that would make it again.
    pub controller: Option<Controller>,
    /// A kubelet runs it from its own files.
    pub is_mirror: bool,
    /// It is terminating, and should be gone by then.
    pub gone_by: Option<Timestamp>,
    /// How many seconds it may take to end.
    pub grace_period: i64,
    /// It has run to its end.
    pub finished: bool,
    /// It has not begun to run.
    pub pending: bool,
    /// Its condition Ready, if it has one.
    pub readiness: Option<Readiness>,
    /// The annotation by which it asks not to be disrupted, if it does.
    pub do_not_disrupt: Option<&'static str>,
}

/// The owner that controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
}

impl Pod {
    /// Is it Ready?
    pub fn is_ready(&self) -> bool {
        self.readiness.is_some_and(|readiness| readiness.ready)
    }
}

#[derive(Deserialize)]
struct PodShape {
    metadata: PodMetadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    #[serde(default, deserialize_with = "pod_labels")]
    labels: Kept,
    #[serde(default, deserialize_with = "pod_annotations")]
    annotations: Kept,
    #[serde(default, deserialize_with = "null_as_default")]
    owner_references: Vec<OwnerReference>,
    #[serde(default, deserialize_with = "lenient_time")]
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<ReadCondition>,
}

impl OwnerReference {
    fn read(self) -> Result<Controller, Unreadable> {
        let Self { api_version, kind, name, .. } = self;
        if [&api_version, &kind, &name].iter().any(|text| text.len() > OWNER_MAX) {
            return Err(Unreadable::TooLong("owner"));
        }
        Ok(Controller { api_version, kind, name })
    }
}

fn pod_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kept, D::Error> {
    Keep { keys: None, most_bytes: LABELS_MAX }.read(deserializer)
}

fn pod_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kept, D::Error> {
    Keep { keys: Some(&POD_ANNOTATIONS), most_bytes: LABELS_MAX }.read(deserializer)
}

impl Readable for Pod {
    type Kind = k8s_openapi::api::core::v1::Pod;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let PodShape { metadata, spec, status } = serde_json::from_str(json)?;
        if metadata.labels.count > LABELS_COUNT_MAX {
            return Err(Unreadable::TooLong("labels"));
        }
        let controller = metadata.owner_references.into_iter().find(|owner| owner.controller);
        let annotations = metadata.annotations.complete("annotations")?.unwrap_or_default();
        let asks =
            DO_NOT_DISRUPT.iter().find(|(key, value)| annotations.get(*key).is_some_and(|it| it == value));
        Ok(Self {
            node: spec.node_name,
            labels: metadata.labels.complete("labels")?.unwrap_or_default(),
            controller: controller.map(OwnerReference::read).transpose()?,
            is_mirror: annotations.contains_key(MIRROR_POD_ANNOTATION),
            do_not_disrupt: asks.map(|(key, _)| *key),
            gone_by: metadata.deletion_timestamp,
            grace_period: spec.termination_grace_period_seconds.unwrap_or(0),
            finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            pending: status.phase.as_deref() == Some("Pending"),
            readiness: Readiness::among(&status.conditions),
        })
    }
}

/// Is this one of the operator's own pods?
pub fn is_operator_pod(pod: &PodItem, namespace: &str) -> bool {
    pod.namespace() == namespace
        && pod.ok().is_some_and(|pod| pod.labels.contains_key(names::COMPONENT_LABEL))
}

/// An agent's pod: where it is, and whether it is Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPod {
    /// The node that it runs on.
    pub node: String,
    /// Its condition Ready; `None` also while it is terminating.
    pub readiness: Option<Readiness>,
}

impl AgentPod {
    /// Reads this pod; `None` if it is on no node yet, or cannot be read.
    pub fn of(pod: &PodItem) -> Option<Self> {
        let pod = pod.ok()?;
        Some(Self { node: pod.node.clone()?, readiness: pod.readiness.filter(|_| pod.gone_by.is_none()) })
    }

    /// Is it Ready?
    pub fn is_ready(&self) -> bool {
        self.readiness.is_some_and(|readiness| readiness.ready)
    }
}

/// What a drain needs of a budget.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Budget {
    /// Which pods it covers; `None` = no pods.
    pub selector: Option<Selector>,
    /// How many keys and values the selector has.
    pub requirements: usize,
    /// Are pods that are not Ready evicted whatever it allows?
    pub spares_ready_only: bool,
    /// Are as many pods healthy as must be, and must any be? Then pods that are not Ready are evicted, too.
    pub enough_healthy: bool,
    /// Its controller cannot work it out, so it allows nothing.
    pub sync_failed: bool,
    /// How many disruptions it allows now.
    pub allowed: i32,
    /// How many pods it covers.
    pub expected_pods: i32,
    /// How many of them must be healthy.
    pub desired_healthy: i32,
    /// Has its controller seen its latest version?
    pub observed: bool,
}

#[derive(Deserialize)]
struct BudgetShape {
    metadata: BudgetMetadata,
    #[serde(default)]
    spec: BudgetSpec,
    #[serde(default)]
    status: Option<BudgetStatus>,
}

#[derive(Deserialize)]
struct BudgetMetadata {
    #[serde(default)]
    generation: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetSpec {
    selector: Option<Box<RawValue>>,
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetStatus {
    observed_generation: Option<i64>,
    disruptions_allowed: i32,
    expected_pods: i32,
    current_healthy: i32,
    desired_healthy: i32,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<BudgetCondition>,
}

#[derive(Deserialize)]
struct BudgetCondition {
    #[serde(default)]
    reason: String,
}

impl Readable for Budget {
    type Kind = PodDisruptionBudget;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let BudgetShape { metadata, spec, status } = serde_json::from_str(json)?;
        let status = status.unwrap_or_default();
        let (selector, requirements) =
            spec.selector.map(|selector| read_selector(&selector)).transpose()?.unzip();
        Ok(Self {
            selector,
            requirements: requirements.unwrap_or(0),
            spares_ready_only: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            enough_healthy: status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy,
            sync_failed: status.conditions.iter().any(|condition| condition.reason == SYNC_FAILED),
            allowed: status.disruptions_allowed,
            expected_pods: status.expected_pods,
            desired_healthy: status.desired_healthy,
            observed: status.observed_generation.is_none_or(|seen| Some(seen) == metadata.generation),
        })
    }
}

fn read_selector(json: &RawValue) -> Result<(Selector, usize), Unreadable> {
    if json.get().len() > SELECTOR_MAX {
        return Err(Unreadable::TooLong("selector"));
    }
    let selector: LabelSelector = serde_json::from_str(json.get())?;
    let expressions = selector.match_expressions.iter().flatten();
    let of_expressions: usize =
        expressions.map(|expression| 1 + expression.values.as_ref().map_or(0, Vec::len)).sum();
    let requirements = selector.match_labels.as_ref().map_or(0, BTreeMap::len) + of_expressions;
    if requirements > REQUIREMENTS_MAX {
        return Err(Unreadable::TooLong("selector"));
    }
    match Selector::try_from(selector) {
        Ok(selector) => Ok((selector, requirements)),
        Err(error) => Err(serde_json::Error::custom(error).into()),
    }
}

/// The fleet: the parsed object, and its JSON.
#[derive(Clone, Debug)]
pub struct WatchedFleet {
    /// The object.
    pub object: BottlerocketFleet,
    /// UID, generation, spec and status as they were read, for the tests of patches: "no slots" may be stored as `{}` or not at all.
    pub quoted: Value,
}

impl Readable for WatchedFleet {
    type Kind = BottlerocketFleet;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            metadata: item::Metadata,
            spec: Value,
            #[serde(default)]
            status: Option<Value>,
        }
        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        let object = BottlerocketFleet {
            metadata: metadata.into(),
            spec: BottlerocketFleetSpec::deserialize(&spec)?,
            status: status.as_ref().map(BottlerocketFleetStatus::deserialize).transpose()?,
        };
        let ObjectMeta { uid, generation, .. } = &object.metadata;
        let mut quoted = json!({"metadata": {"uid": uid, "generation": generation}, "spec": spec});
        if let Some(status) = status {
            quoted["status"] = status;
        }
        Ok(Self { object, quoted })
    }
}

/// The condition Ready, as Nodes and pods carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It is True.
    pub ready: bool,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default, deserialize_with = "lenient_time")]
    last_transition_time: Option<Timestamp>,
}

impl Readiness {
    fn among(conditions: &[ReadCondition]) -> Option<Self> {
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
        Some(Self { ready: ready.status == "True", since: ready.last_transition_time })
    }

    /// Since when it has been Ready without interruption, if it is.
    pub fn ready_since(self) -> Option<Timestamp> {
        self.ready.then(|| self.since.unwrap_or(Timestamp::MIN))
    }

    /// Since when it has not been Ready, if it is not and that is known.
    pub fn not_ready_since(self) -> Option<Timestamp> {
        self.since.filter(|_| !self.ready)
    }
}

/// Labels or annotations that were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    entries: Option<BTreeMap<String, String>>,
    is_complete: bool,
    /// The number of all entries, also of those that were not kept.
    count: usize,
}

/// What is kept.
#[derive(Clone, Copy)]
struct Keep {
    /// The keys; `None` = all.
    keys: Option<&'static [&'static str]>,
    /// The most bytes of keys and values.
    most_bytes: usize,
}

impl Kept {
    /// The entries; `None` if the object has no such map.
    ///
    /// # Errors
    /// There were more than were to be kept. `what` says what they are, in the plural.
    fn complete(self, what: &'static str) -> Result<Option<BTreeMap<String, String>>, Unreadable> {
        if self.entries.is_none() || self.is_complete {
            Ok(self.entries)
        } else {
            Err(Unreadable::TooLong(what))
        }
    }
}

impl Keep {
    /// Reads a map; null counts as none.
    fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Kept, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Keep {
    type Value = Kept;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_none<E>(self) -> Result<Kept, E> {
        Ok(Kept::default())
    }

    fn visit_unit<E>(self) -> Result<Kept, E> {
        Ok(Kept::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kept, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kept, A::Error> {
        let (mut entries, mut count, mut bytes) = (BTreeMap::new(), 0, 0);
        while let Some(key) = map.next_key::<String>()? {
            count += 1;
            if self.keys.is_some_and(|keys| !keys.contains(&key.as_str())) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<String>()?;
            bytes += key.len() + value.len();
            if bytes <= self.most_bytes {
                entries.insert(key, value);
            }
        }
        Ok(Kept { entries: Some(entries), is_complete: bytes <= self.most_bytes, count })
    }
}

#[cfg(test)]
mod tests;
