//! Parses Nodes, with bounds on values that others can set.

use std::collections::BTreeMap;

use brupop_api::crds::{BOOT_ID_MAX, VERSION_MAX, is_variant};
use brupop_api::item::{Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::{Item, Marker, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSystemInfo, ObjectReference};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{CORDON_TAINT, ReadCondition, Readiness, bytes, read_time};

/// Labels and annotations of a Node that matter here, whatever selectors pools have.
const LABELS: [&str; 4] = [
    names::UPDATER_INTERFACE_LABEL,
    names::EXCLUDE_FROM_LB_LABEL,
    names::ZONE_LABEL,
    names::CONTROL_PLANE_LABEL,
];
const ANNOTATIONS: [&str; 6] = [
    names::MARKER_ANNOTATION,
    names::PAUSE_ANNOTATION,
    names::UPDATE_NOW_ANNOTATION,
    names::RETRY_ANNOTATION,
    names::DO_NOT_DISRUPT_ANNOTATION,
    names::SCALE_DOWN_DISABLED_ANNOTATION,
];
/// Most bytes of these annotations. The marker is the longest, with up to 4 KiB.
const KEPT_MAX: usize = 16 * 1024;
/// Most bytes of all labels. A Node with more is not updated: no pool could tell whether it selects it.
const ALL_LABELS_MAX: usize = 64 * 1024;
/// Longest name of an OS image. A kubelet may report one of more than a megabyte.
const OS_IMAGE_MAX: usize = 256;
/// Most bytes of taints, as JSON.
const TAINTS_MAX: usize = 64 * 1024;
/// A Node with more labels, or more annotations, is not updated. The API server evaluates our policies on each change of
/// a Node, at a cost that grows with their number and is limited: it might refuse to put the node back into service.
const ENTRIES_MAX: usize = 1_000;

/// The part of a Node that decisions and patches need. It is read once per change of the Node, because passes are far more
/// frequent. A Node that cannot be read has a marker that cannot be read, so it is left alone and keeps its slot. It counts as one
/// of its pool, its zone and the control plane all the same.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Item<NodeFacts>")]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct NodeFacts {
    pub name: String,
    pub uid: String,
    pub created: Option<Timestamp>,
    /// Its labels; if it is overgrown, only those that matter whatever selectors pools have.
    pub labels: Option<BTreeMap<String, String>>,
    /// Those of its annotations that matter here.
    pub annotations: Option<BTreeMap<String, String>>,
    /// It has too many labels or annotations: the API server might refuse a change of the Node.
    pub overgrown: bool,
    pub unschedulable: bool,
    /// The time since which it is cordoned, as the taint says that the node lifecycle controller adds.
    pub cordoned_at: Option<Timestamp>,
    /// As they were read, including fields that we do not know.
    pub taints: Vec<Value>,
    pub readiness: Option<Readiness>,
    pub boot_id: String,
    pub os_image: String,
    /// Opted in by its label.
    pub labelled: bool,
    /// Whether it is a node of the control plane. Of these at most one is out of service at a time.
    pub control_plane: bool,
    /// Number of volumes that are in use there, as its kubelet says (`status.volumesInUse`).
    pub volumes_in_use: usize,
    /// Carries the label that keeps it out of load balancers.
    pub excluded: bool,
    pub tainted: bool,
    /// It is being deleted, or a taint announces its removal ([`LEAVING_TAINTS`](names::LEAVING_TAINTS)).
    pub leaving: bool,
    /// A person paused this node by its annotation.
    pub paused: bool,
    /// A person asked for this node's update now, regardless of the window; a back-off still applies.
    pub update_now: bool,
    /// The attempt after which a person lets this node back off no longer.
    pub retry: Option<u64>,
    /// The Bottlerocket version in its OS image.
    pub version: Option<String>,
    /// The variant in its OS image, and the architecture, if they can be read: images of one variant are built apart for each.
    pub variant: Option<String>,
    /// Our changes of it; or why they, or the Node, cannot be read.
    pub marker: Option<Result<Marker, String>>,
}

#[derive(Deserialize)]
struct Shape {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "lenient_time")]
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
    #[serde(deserialize_with = "null_as_default")]
    taints: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<ReadCondition>,
    node_info: NodeSystemInfo,
    /// Their names are of no use here, and there may be any number.
    #[serde(deserialize_with = "null_as_default")]
    volumes_in_use: Vec<IgnoredAny>,
}

impl Readable for NodeFacts {
    type Kind = Node;

    fn read(json: &str) -> Result<Self, Unreadable> {
        let mut node = Self::default();
        if let Err(why) = node.fill(serde_json::from_str(json)?) {
            node.marker = Some(Err(unreadable(why)));
        }
        Ok(node)
    }
}

impl From<Item<Self>> for NodeFacts {
    fn from(item: Item<Self>) -> Self {
        let (name, uid) = (item.name().to_owned(), item.uid().to_owned());
        let read = item.body.unwrap_or_else(|why| Self {
            marker: Some(Err(unreadable(why))),
            ..Self::default()
        });
        Self { name, uid, ..read }
    }
}

fn unreadable(why: Unreadable) -> String {
    format!("the Node cannot be read: {why}")
}

impl NodeFacts {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The condition Ready is True.
    pub fn is_ready(&self) -> bool {
        self.readiness.is_some_and(|readiness| readiness.ready)
    }

    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The Bottlerocket version in its OS image.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The variant and the architecture of its image, or [`UNKNOWN_VARIANT`](names::UNKNOWN_VARIANT).
    pub fn variant(&self) -> &str {
        self.variant.as_deref().unwrap_or(names::UNKNOWN_VARIANT)
    }

    /// The marker, if there is one that can be read.
    pub fn marker(&self) -> Option<&Marker> {
        self.marker.as_ref()?.as_ref().ok()
    }

    /// Whether nothing is left on it of an update, as far as that can be read. Annotations that are kept for the pods of other
    /// nodes are not.
    pub(crate) fn is_tidy(&self) -> bool {
        let is_kept = |read: &Result<Marker, _>| read.as_ref().is_ok_and(Marker::is_kept);
        self.marker.as_ref().is_none_or(is_kept)
    }

    /// Whether it is opted in, or carries changes of ours.
    pub fn is_managed(&self) -> bool {
        self.labelled || self.marker.is_some()
    }

    /// Whether it is out of service: not Ready, cordoned by anybody, or changed by us.
    pub(crate) fn is_away(&self) -> bool {
        let is_changed =
            |read: &Result<Marker, _>| read.as_ref().map_or(true, Marker::holds_changes);
        !self.is_ready() || self.unschedulable || self.marker.as_ref().is_some_and(is_changed)
    }

    /// The value of this annotation, if it is one of those that matter here.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of this label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The parts that a patch tests or changes, as they were read.
    pub fn quoted(&self) -> Value {
        let mut spec = json!({});
        if self.unschedulable {
            spec["unschedulable"] = json!(true);
        }
        if !self.taints.is_empty() {
            spec["taints"] = json!(self.taints);
        }
        let mut metadata = json!({"uid": self.uid});
        for (key, entries) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if let Some(entries) = entries {
                metadata[key] = json!(entries);
            }
        }
        json!({"metadata": metadata, "spec": spec})
    }

    /// Returns what an Event about it names.
    pub fn object_ref(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    pub const EXAMPLE_VARIANT: &str = "aws-k8s-1.36";

    /// A node that is opted in, Ready and in service: for tests and the model to vary.
    pub fn example() -> Self {
        let text = |text: &str| Some(text.to_owned());
        Self {
            name: "n".to_owned(),
            uid: "node-n".to_owned(),
            labelled: true,
            readiness: Some(Readiness {
                ready: true,
                since: None,
            }),
            boot_id: "boot-1".to_owned(),
            version: text("1.0.0"),
            variant: text(Self::EXAMPLE_VARIANT),
            ..Self::default()
        }
    }

    /// Reads first what other nodes depend on: where the node is, and whether it is in service. That is kept also if the rest
    /// cannot be read.
    fn fill(&mut self, shape: Shape) -> Result<(), Unreadable> {
        let (metadata, spec, status) = (shape.metadata, shape.spec, shape.status);
        let (labels, mut annotations) = (metadata.labels, metadata.annotations);
        let (boot_id, os_image) = (status.node_info.boot_id, status.node_info.os_image);
        self.unschedulable = spec.unschedulable;
        self.readiness = Readiness::among(&status.conditions);
        let count = |them: &Option<BTreeMap<_, _>>| them.as_ref().map_or(0, BTreeMap::len);
        self.overgrown = count(&labels).max(count(&annotations)) > ENTRIES_MAX
            || labels
                .as_ref()
                .is_some_and(|labels| bytes(labels) > ALL_LABELS_MAX);
        self.labels = labels;
        if let Some(labels) = self.labels.as_mut().filter(|_| self.overgrown) {
            labels.retain(|key, _| LABELS.contains(&key.as_str()));
        }
        self.labelled =
            self.label(names::UPDATER_INTERFACE_LABEL) == Some(names::UPDATER_INTERFACE_VERSION);
        self.control_plane = self.label(names::CONTROL_PLANE_LABEL).is_some();
        self.excluded = self.label(names::EXCLUDE_FROM_LB_LABEL).is_some();
        if boot_id.len() > BOOT_ID_MAX {
            return Err(Unreadable::TooLong("boot id"));
        }
        if os_image.len() > OS_IMAGE_MAX {
            return Err(Unreadable::TooLong("OS image"));
        }
        if json!(spec.taints).to_string().len() > TAINTS_MAX {
            return Err(Unreadable::TooLong("taints"));
        }
        if let Some(annotations) = &mut annotations {
            annotations.retain(|key, _| ANNOTATIONS.contains(&key.as_str()));
            if bytes(annotations) > KEPT_MAX {
                return Err(Unreadable::TooLong("annotations"));
            }
        }
        self.annotations = annotations;
        let has_taint = |key: &str| spec.taints.iter().any(|taint| taint["key"] == key);
        self.created = metadata.creation_timestamp;
        let cordoned = spec.taints.iter().find(|it| it["key"] == CORDON_TAINT);
        self.cordoned_at = cordoned.and_then(|taint| read_time(taint["timeAdded"].as_str()));
        self.volumes_in_use = status.volumes_in_use.len();
        self.tainted = has_taint(names::UPDATING_TAINT);
        self.leaving = metadata.deletion_timestamp.is_some()
            || names::LEAVING_TAINTS.iter().any(|key| has_taint(key));
        // Whatever else people write there: nothing starts that they may not have meant to start.
        self.paused = self
            .annotation(names::PAUSE_ANNOTATION)
            .is_some_and(|value| value != "false");
        self.update_now = self.annotation(names::UPDATE_NOW_ANNOTATION) == Some("true");
        // Only as it would be written again: a patch tests it.
        self.retry = self.annotation(names::RETRY_ANNOTATION).and_then(|text| {
            let number = text.parse().ok();
            number.filter(|number: &u64| number.to_string() == text)
        });
        self.version = version(&os_image).map(str::to_owned);
        self.variant = variant(&os_image, &status.node_info.architecture);
        self.marker = self.annotation(names::MARKER_ANNOTATION).map(|text| {
            Marker::parse(text).map_err(|why| {
                let annotation = names::MARKER_ANNOTATION;
                format!("the node's annotation {annotation} cannot be read: {why}")
            })
        });
        self.taints = spec.taints;
        (self.boot_id, self.os_image) = (boot_id, os_image);
        Ok(())
    }
}

/// Whether this is the OS image of a host that runs Bottlerocket, as its kubelet says.
pub(crate) fn runs_bottlerocket(os_image: &str) -> bool {
    os_image.starts_with(names::OS_IMAGE_PREFIX)
}

/// From `Bottlerocket OS 1.19.4 (aws-k8s-1.29)`.
fn version(os_image: &str) -> Option<&str> {
    let rest = os_image.strip_prefix(names::OS_IMAGE_PREFIX)?;
    rest.split(' ')
        .next()
        .filter(|version| (1..=VERSION_MAX).contains(&version.len()))
}

/// From the same, what stands between the brackets, and the architecture.
fn variant(os_image: &str, architecture: &str) -> Option<String> {
    let (_, rest) = os_image
        .strip_prefix(names::OS_IMAGE_PREFIX)?
        .split_once(" (")?;
    let variant = rest.strip_suffix(')').filter(|it| !it.is_empty())?;
    let parts = [variant, architecture].into_iter();
    let both = parts
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    is_variant(&both).then_some(both)
}
