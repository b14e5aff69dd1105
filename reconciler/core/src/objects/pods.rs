//! Pods as drains need them, and what an agent's pod shows about its agent.

use std::collections::BTreeMap;

use brupop_api::item::{Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::{Item, names};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::kept::{Keep, Kept};
use super::readiness::{Condition, Readiness};

/// Annotation of mirror pods, which a kubelet runs from its own files.
const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Most bytes of labels. They are needed for the selectors of budgets; a pod of sane size has some hundred bytes.
const LABELS_MAX: usize = 8 * 1024;
/// Most labels.
const LABELS_COUNT_MAX: usize = 128;
/// Longest `apiVersion`, `kind` and `name` of an owner. Kubernetes takes any.
const OWNER_MAX: usize = 318;

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
    /// It has run to its end.
    pub finished: bool,
    /// It has not begun to run.
    pub pending: bool,
    /// Its condition Ready, if it has one.
    pub readiness: Option<Readiness>,
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
struct Shape {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default, deserialize_with = "labels")]
    labels: Kept,
    #[serde(default, deserialize_with = "annotations")]
    annotations: Kept,
    #[serde(default, deserialize_with = "null_as_default")]
    owner_references: Vec<Owner>,
    #[serde(default, deserialize_with = "lenient_time")]
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
}

impl Owner {
    fn read(self) -> Result<Controller, Unreadable> {
        let Self { api_version, kind, name, .. } = self;
        if [&api_version, &kind, &name].iter().any(|text| text.len() > OWNER_MAX) {
            return Err(Unreadable::TooLong("owner"));
        }
        Ok(Controller { api_version, kind, name })
    }
}

fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kept, D::Error> {
    Keep { keys: None, most_bytes: LABELS_MAX }.read(deserializer)
}

fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kept, D::Error> {
    Keep { keys: Some(&[MIRROR_POD_ANNOTATION]), most_bytes: LABELS_MAX }.read(deserializer)
}

impl Readable for Pod {
    type Kind = k8s_openapi::api::core::v1::Pod;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        if metadata.labels.count > LABELS_COUNT_MAX {
            return Err(Unreadable::TooLong("labels"));
        }
        let controller = metadata.owner_references.into_iter().find(|owner| owner.controller);
        Ok(Self {
            node: spec.node_name,
            labels: metadata.labels.complete("labels")?.unwrap_or_default(),
            controller: controller.map(Owner::read).transpose()?,
            is_mirror: metadata.annotations.complete("annotations")?.is_some_and(|kept| !kept.is_empty()),
            gone_by: metadata.deletion_timestamp,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPod {
    /// The node that it runs on.
    pub node: String,
    /// Since when it is Ready; `None` if it is not.
    pub ready_since: Option<Timestamp>,
    /// Since when it is not, if that is known.
    pub away_since: Option<Timestamp>,
}

impl AgentPod {
    /// Reads this pod; `None` if it is on no node yet, or cannot be read.
    pub fn of(pod: &PodItem) -> Option<Self> {
        let pod = pod.ok()?;
        let node = pod.node.clone()?;
        let readiness = pod.readiness.filter(|_| pod.gone_by.is_none());
        let (ready, away) = (readiness.filter(|it| it.ready), readiness.filter(|it| !it.ready));
        Some(Self {
            node,
            ready_since: ready.map(|ready| ready.since.unwrap_or(Timestamp::MIN)),
            away_since: away.and_then(|away| away.since),
        })
    }
}
