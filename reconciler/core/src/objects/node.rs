//! Nodes as decisions and conditional patches need them.

mod facts;

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::{Item, Marker, names};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::{Value, json};

pub use facts::NodeFacts;
use facts::Shape;
pub(crate) use facts::runs_bottlerocket;

/// The value of an annotation that we may have set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// As we write it.
    Ours,
    /// Anything else: somebody has written it.
    Others,
}

impl Words {
    /// Reads the value.
    pub fn of(value: &str) -> Self {
        if value == names::KEPT_FROM_AUTOSCALERS {
            Self::Ours
        } else {
            Self::Others
        }
    }
}

/// A Node. One that cannot be read has a marker that cannot be read, so it is left alone and keeps its slot. It counts as one of
/// its pool, its zone and the control plane all the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Item<Shape>")]
pub struct WatchedNode {
    metadata: ObjectMeta,
    /// What is read of it.
    pub facts: NodeFacts,
}

impl From<Item<Shape>> for WatchedNode {
    fn from(item: Item<Shape>) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut facts = NodeFacts {
            name: text(&item.metadata.name),
            uid: text(&item.metadata.uid),
            ..NodeFacts::default()
        };
        if let Err(why) = item.body.and_then(|shape| facts.read(shape)) {
            facts.marker = Some(Err(format!("the Node cannot be read: {why}")));
        }
        Self {
            metadata: item.metadata,
            facts,
        }
    }
}

impl WatchedNode {
    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        &self.facts.uid
    }

    /// Whether it is opted in, or carries changes of ours.
    pub fn is_managed(&self) -> bool {
        self.facts.labelled || self.facts.marker.is_some()
    }

    /// The value of this annotation, if it is one of those that matter here.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.facts
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Whether it is out of service: not Ready, cordoned by anybody, or changed by us.
    pub(crate) fn is_away(&self) -> bool {
        let is_changed = self
            .marker()
            .map_or(true, |marker| marker.is_some_and(Marker::holds_changes));
        !self.facts.is_ready() || self.facts.unschedulable || is_changed
    }

    /// Whether a person has paused it.
    pub fn is_paused(&self) -> bool {
        self.facts.paused
    }

    /// Whether a person has asked for its update now.
    pub fn is_asked_for(&self) -> bool {
        self.facts.update_now
    }

    /// All of its labels; none if it has too many.
    pub(crate) fn all_labels(&self) -> &BTreeMap<String, String> {
        &self.facts.all_labels
    }

    /// The value of the opt-in label.
    pub(crate) fn opt_in_label(&self) -> Option<&str> {
        self.facts
            .labels
            .as_ref()?
            .get(names::UPDATER_INTERFACE_LABEL)
            .map(String::as_str)
    }

    /// What we changed on it, from the marker annotation.
    ///
    /// # Errors
    /// The annotation cannot be read, or the Node as a whole. Says what is wrong with it.
    pub fn marker(&self) -> Result<Option<&Marker>, &str> {
        match &self.facts.marker {
            None => Ok(None),
            Some(Ok(marker)) => Ok(Some(marker)),
            Some(Err(error)) => Err(error),
        }
    }

    /// The parts that a patch tests or changes, as they were read.
    pub fn quoted(&self) -> Value {
        let mut spec = json!({});
        if self.facts.unschedulable {
            spec["unschedulable"] = json!(true);
        }
        if !self.facts.taints.is_empty() {
            spec["taints"] = json!(self.facts.taints);
        }
        let mut metadata = json!({"uid": self.metadata.uid});
        if let Some(labels) = &self.facts.labels {
            metadata["labels"] = json!(labels);
        }
        if let Some(annotations) = &self.facts.annotations {
            metadata["annotations"] = json!(annotations);
        }
        json!({"metadata": metadata, "spec": spec})
    }

    /// Whether nothing differs that matters. Most changes of a Node are its kubelet's heartbeats.
    pub fn same_facts(&self, other: &Self) -> bool {
        self.facts == other.facts
    }
}

impl Resource for WatchedNode {
    type DynamicType = ();
    type Scope = <Node as Resource>::Scope;

    fn kind(dt: &()) -> Cow<'_, str> {
        Node::kind(dt)
    }

    fn group(dt: &()) -> Cow<'_, str> {
        Node::group(dt)
    }

    fn version(dt: &()) -> Cow<'_, str> {
        Node::version(dt)
    }

    fn plural(dt: &()) -> Cow<'_, str> {
        Node::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
