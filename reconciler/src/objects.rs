//! Objects as they are watched: trimmed to what decisions and conditional patches need.

mod pods;

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::{BottlerocketFleet, Marker, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};

pub use pods::{AgentPod, MIRROR_POD_ANNOTATION, is_operator_pod, ready_condition, trim_pod};

/// Labels and annotations of a Node that matter here.
const NODE_LABELS: [&str; 3] = [names::UPDATER_INTERFACE_LABEL, names::EXCLUDE_FROM_LB_LABEL, ZONE_LABEL];
const NODE_ANNOTATIONS: [&str; 3] =
    [names::MARKER_ANNOTATION, names::PAUSE_ANNOTATION, names::UPDATE_NOW_ANNOTATION];
/// Well-known label of a Node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A Node, trimmed.
#[derive(Clone, Debug, Deserialize)]
pub struct WatchedNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
    #[serde(skip)]
    read: Read,
}

/// What each pass needs of each Node. It is read once per change of the Node, because passes are far more frequent.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
struct Read {
    labelled: bool,
    excluded: bool,
    tainted: bool,
    takes_pods: bool,
    paused: bool,
    update_now: bool,
    ready_since: Option<Timestamp>,
    version: Option<String>,
    zone: Option<String>,
    marker: Option<Result<Marker, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
    /// As they were read, including fields that we do not know.
    #[serde(default)]
    taints: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<NodeCondition>,
    #[serde(default)]
    node_info: NodeInfo,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default, rename = "lastTransitionTime")]
    since: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct NodeInfo {
    #[serde(default, rename = "bootID")]
    boot_id: String,
    #[serde(default, rename = "osImage")]
    os_image: String,
}

impl NodeStatus {
    fn readiness(&self) -> Option<&NodeCondition> {
        self.conditions.iter().find(|condition| condition.type_ == "Ready")
    }

    fn ready_since(&self) -> Option<Timestamp> {
        let ready = self.readiness().filter(|ready| ready.status == "True")?;
        Some(ready.since.unwrap_or(Timestamp::MIN))
    }
}

impl NodeInfo {
    /// From `Bottlerocket OS 1.19.4 (aws-k8s-1.29)`.
    fn version(&self) -> Option<&str> {
        let rest = self.os_image.strip_prefix(names::OS_IMAGE_PREFIX)?;
        rest.split(' ').next().filter(|version| !version.is_empty())
    }
}

impl WatchedNode {
    /// Drops the fields that are not needed, and reads the others.
    pub fn trim(&mut self) {
        let mut metadata = std::mem::take(&mut self.metadata);
        let keep = |map: Option<BTreeMap<String, String>>, keys: [&str; 3]| {
            map.map(|mut map| {
                map.retain(|key, _| keys.contains(&key.as_str()));
                map
            })
        };
        self.metadata = ObjectMeta {
            labels: keep(metadata.labels.take(), NODE_LABELS),
            annotations: keep(metadata.annotations.take(), NODE_ANNOTATIONS),
            creation_timestamp: metadata.creation_timestamp.take(),
            ..identity(metadata)
        };
        self.status.conditions.retain(|condition| condition.type_ == "Ready");
        self.read = self.read();
    }

    fn read(&self) -> Read {
        let wanted = |annotation| self.annotation(annotation).is_some_and(|value| value != "false");
        let ready_since = self.status.ready_since();
        let taints = &self.spec.taints;
        Read {
            labelled: self.label(names::UPDATER_INTERFACE_LABEL) == Some(names::UPDATER_INTERFACE_VERSION),
            excluded: self.label(names::EXCLUDE_FROM_LB_LABEL).is_some(),
            tainted: taints.iter().any(|taint| taint["key"] == names::UPDATING_TAINT),
            takes_pods: ready_since.is_some()
                && !self.spec.unschedulable
                && taints.iter().all(|taint| taint["effect"] == "PreferNoSchedule"),
            paused: wanted(names::PAUSE_ANNOTATION),
            update_now: wanted(names::UPDATE_NOW_ANNOTATION),
            ready_since,
            version: self.status.node_info.version().map(str::to_owned),
            zone: self.label(ZONE_LABEL).map(str::to_owned),
            marker: self
                .annotation(names::MARKER_ANNOTATION)
                .map(|text| Marker::parse(text).map_err(|error| error.to_string())),
        }
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Is it opted in?
    pub fn labelled(&self) -> bool {
        self.read.labelled
    }

    /// The value of the opt-in label.
    pub fn interface(&self) -> Option<&str> {
        self.label(names::UPDATER_INTERFACE_LABEL)
    }

    /// `status.nodeInfo.osImage`.
    pub fn os_image(&self) -> &str {
        &self.status.node_info.os_image
    }

    /// Is it opted in, or does it carry changes of ours?
    pub fn is_managed(&self) -> bool {
        self.labelled() || self.read.marker.is_some()
    }

    /// Is it excluded from load balancers, by us or by somebody else?
    pub fn excluded(&self) -> bool {
        self.read.excluded
    }

    /// Its zone.
    pub fn zone(&self) -> Option<&str> {
        self.read.zone.as_deref()
    }

    /// Did a person pause it?
    pub fn paused(&self) -> bool {
        self.read.paused
    }

    /// Did a person ask for its update now?
    pub fn update_now(&self) -> bool {
        self.read.update_now
    }

    /// Is its condition Ready True?
    pub fn ready(&self) -> bool {
        self.ready_since().is_some()
    }

    /// Since when it has been Ready without interruption, if it is.
    pub fn ready_since(&self) -> Option<Timestamp> {
        self.read.ready_since
    }

    /// Since when it has not been Ready, if it is not and that is known.
    pub fn away_since(&self) -> Option<Timestamp> {
        self.status.readiness().filter(|ready| ready.status != "True")?.since
    }

    /// Is it cordoned?
    pub fn unschedulable(&self) -> bool {
        self.spec.unschedulable
    }

    /// Does it carry our taint?
    pub fn tainted(&self) -> bool {
        self.read.tainted
    }

    /// May pods without special tolerations be scheduled here?
    pub fn takes_pods(&self) -> bool {
        self.read.takes_pods
    }

    /// `status.nodeInfo.bootID`.
    pub fn boot_id(&self) -> &str {
        &self.status.node_info.boot_id
    }

    /// The Bottlerocket version that it runs.
    pub fn version(&self) -> Option<&str> {
        self.read.version.as_deref()
    }

    /// When it was created.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|created| created.0)
    }

    /// What we changed on it, from the marker annotation.
    ///
    /// # Errors
    /// The annotation cannot be read. Says what is wrong with it.
    pub fn marker(&self) -> Result<Option<&Marker>, &str> {
        match &self.read.marker {
            None => Ok(None),
            Some(Ok(marker)) => Ok(Some(marker)),
            Some(Err(error)) => Err(error),
        }
    }

    /// The parts that a patch tests or changes, as they were read.
    pub fn quoted(&self) -> Value {
        let mut spec = json!({});
        if self.spec.unschedulable {
            spec["unschedulable"] = json!(true);
        }
        if !self.spec.taints.is_empty() {
            spec["taints"] = json!(self.spec.taints);
        }
        let mut metadata = json!({"uid": self.metadata.uid});
        if let Some(labels) = &self.metadata.labels {
            metadata["labels"] = json!(labels);
        }
        if let Some(annotations) = &self.metadata.annotations {
            metadata["annotations"] = json!(annotations);
        }
        json!({"metadata": metadata, "spec": spec})
    }

    /// Does nothing differ that matters? Most changes of a Node are its kubelet's heartbeats.
    pub fn same_facts(&self, other: &Self) -> bool {
        self.metadata.uid == other.metadata.uid
            && self.metadata.labels == other.metadata.labels
            && self.metadata.annotations == other.metadata.annotations
            && self.spec == other.spec
            && self.status == other.status
    }
}

/// The fleet's ledger: the parsed object, and its JSON.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The object.
    pub fleet: BottlerocketFleet,
    /// The object as it was read, for the tests of patches: "no slots" may be stored as `{}` or not at all.
    pub quoted: Value,
}

impl<'de> Deserialize<'de> for Ledger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quoted = Value::deserialize(deserializer)?;
        let fleet = BottlerocketFleet::deserialize(&quoted).map_err(D::Error::custom)?;
        Ok(Self { fleet, quoted })
    }
}

fn identity(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    }
}

/// The resource that a trimmed type stands for.
macro_rules! stands_for {
    ($type:ty, $resource:ty, $($metadata:ident).+) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = <$resource as Resource>::Scope;

            fn kind(dt: &()) -> Cow<'_, str> {
                <$resource>::kind(dt)
            }

            fn group(dt: &()) -> Cow<'_, str> {
                <$resource>::group(dt)
            }

            fn version(dt: &()) -> Cow<'_, str> {
                <$resource>::version(dt)
            }

            fn plural(dt: &()) -> Cow<'_, str> {
                <$resource>::plural(dt)
            }

            fn meta(&self) -> &ObjectMeta {
                &self.$($metadata).+
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.$($metadata).+
            }
        }
    };
}

stands_for!(WatchedNode, Node, metadata);
stands_for!(Ledger, BottlerocketFleet, fleet.metadata);

#[cfg(test)]
mod tests;
