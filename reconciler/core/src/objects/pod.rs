//! Pods: as a drain needs them, and those of agents.

use std::collections::BTreeMap;

use brupop_api::item::{Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::printable::printable;
use brupop_api::{Item, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ReadCondition, Readiness, bytes};

/// Annotation of mirror pods, which a kubelet runs from its own files.
const MIRROR_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotations by which a pod asks not to be disrupted, and their values.
const DO_NOT_DISRUPT: [(&str, &str); 2] = [
    (names::DO_NOT_DISRUPT_ANNOTATION, "true"),
    (names::SAFE_TO_EVICT_ANNOTATION, "false"),
];
/// The taint of a cordoned node; its effect is `NoSchedule`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Most bytes of labels. They are needed for the selectors of budgets; a pod of sane size has some hundred bytes.
const LABELS_MAX: usize = 8 * 1024;
const LABELS_COUNT_MAX: usize = 128;
/// Most bytes of `apiVersion`, `kind` and `name` of an owner, as they are told to people. Kubernetes takes any text.
const OWNER_MAX: usize = 318;

/// A pod as it is watched, readable or not.
pub type PodItem = Item<Pod>;

/// The part of a pod that a drain needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Pod {
    /// The node that it runs on, or will.
    pub node: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The owner that would make it again.
    pub controller: Option<Controller>,
    /// A kubelet runs it from its own files.
    pub is_mirror: bool,
    /// It is terminating, and should be gone by then.
    pub gone_by: Option<Timestamp>,
    /// It uses a claim of a volume.
    pub has_claim: bool,
    /// It may be scheduled to a cordoned node.
    pub tolerates_cordon: bool,
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
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

impl Pod {
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
    #[serde(default, deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    owner_references: Vec<OwnerReference>,
    #[serde(default, deserialize_with = "lenient_time")]
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    volumes: Vec<Volume>,
    #[serde(deserialize_with = "null_as_default")]
    tolerations: Vec<Toleration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    persistent_volume_claim: Option<IgnoredAny>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<ReadCondition>,
}

/// Whether it tolerates the taint of a cordoned node, which has no value.
fn tolerates_cordon(toleration: &Toleration) -> bool {
    let is_among = |field: &Option<String>, words: &[&str]| {
        words.contains(&field.as_deref().unwrap_or_default())
    };
    let Toleration { key, value, .. } = toleration;
    let matches = if is_among(&toleration.operator, &["Exists"]) {
        is_among(key, &["", CORDON_TAINT])
    } else {
        is_among(key, &[CORDON_TAINT]) && is_among(value, &[""])
    };
    matches && is_among(&toleration.effect, &["", "NoSchedule"])
}

fn controller(owner: OwnerReference) -> Controller {
    let [api_version, kind, name] = [owner.api_version, owner.kind, owner.name]
        .map(|text| printable(&text, OWNER_MAX).into_owned());
    Controller {
        api_version,
        kind,
        name,
    }
}

impl Readable for Pod {
    type Kind = k8s_openapi::api::core::v1::Pod;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let PodShape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let PodMetadata {
            labels,
            annotations,
            owner_references,
            deletion_timestamp,
        } = metadata;
        if labels.len() > LABELS_COUNT_MAX || bytes(&labels) > LABELS_MAX {
            return Err(Unreadable::TooLong("labels"));
        }
        let mut owners = owner_references.into_iter();
        let controlling = owners.find(|owner| owner.controller == Some(true));
        let asks = DO_NOT_DISRUPT
            .iter()
            .find(|(key, value)| annotations.get(*key).is_some_and(|it| it == value));
        Ok(Self {
            node: spec.node_name,
            labels,
            controller: controlling.map(controller),
            is_mirror: annotations.contains_key(MIRROR_POD_ANNOTATION),
            do_not_disrupt: asks.map(|(key, _)| *key),
            gone_by: deletion_timestamp,
            has_claim: spec.volumes.iter().any(|volume| {
                volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
            }),
            tolerates_cordon: spec.tolerations.iter().any(tolerates_cordon),
            finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            pending: status.phase.as_deref() == Some("Pending"),
            readiness: Readiness::among(&status.conditions),
        })
    }
}

/// Whether this is one of the operator's own pods.
pub fn is_operator_pod(pod: &PodItem, namespace: &str) -> bool {
    pod.namespace() == namespace
        && pod
            .ok()
            .is_some_and(|pod| pod.labels.contains_key(names::COMPONENT_LABEL))
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
        Some(Self {
            node: pod.node.clone()?,
            readiness: pod.readiness.filter(|_| pod.gone_by.is_none()),
        })
    }

    pub fn is_ready(&self) -> bool {
        self.readiness.is_some_and(|readiness| readiness.ready)
    }
}
