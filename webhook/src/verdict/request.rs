//! The part of a review that the verdict looks at. Objects stay plain JSON, so that a change of an unknown field is seen,
//! too.

use super::{Refusal, Rule};
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::admission::Operation;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The request of an `AdmissionReview`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowRequest {
    /// Tells which review an answer belongs to.
    pub uid: String,
    /// Kind of the object.
    pub kind: GroupVersionKind,
    /// The resource.
    pub resource: GroupVersionResource,
    /// The sub-resource, if it is about one.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Name of the object.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: Option<String>,
    /// What is to be done.
    pub operation: Operation,
    /// Who asks.
    pub user_info: UserInfo,
    /// The object as it would be stored; `None` in a deletion.
    #[serde(default)]
    pub object: Option<ReviewedShadow>,
    /// The object as it is now; `None` in a creation.
    #[serde(default)]
    pub old_object: Option<ReviewedShadow>,
    /// Nothing will be stored.
    #[serde(default)]
    pub dry_run: bool,
}

/// An object without members that are null, and without what the API server keeps in the metadata itself:
/// `managedFields`, `resourceVersion` and `generation`.
#[derive(Clone, Debug, Default)]
pub struct ReviewedShadow {
    /// `apiVersion` and `kind`.
    pub(super) types: Map<String, Value>,
    pub(super) metadata: Map<String, Value>,
    pub(super) spec: Map<String, Value>,
    pub(super) status: Map<String, Value>,
    /// All other members, which no shadow has.
    pub(super) rest: Map<String, Value>,
    /// Number of entries of `managedFields`.
    pub(super) managers: usize,
}

impl ReviewedShadow {
    /// The owners; empty if they cannot be read.
    pub(super) fn owners(&self) -> Vec<OwnerReference> {
        let owners = self.metadata.get("ownerReferences").map(Vec::deserialize);
        owners.and_then(Result::ok).unwrap_or_default()
    }
}

/// Is this owner the Node of this name?
pub(super) fn is_node(owner: &OwnerReference, name: &str) -> bool {
    owner.api_version == "v1" && owner.kind == "Node" && owner.name == name
}

/// Reads one half of a shadow: `half` is "spec" or "status".
///
/// # Errors
/// It is not what a `BottlerocketShadow` v2 holds there.
pub(super) fn read<T: DeserializeOwned>(map: &Map<String, Value>, half: &str) -> Result<T, Refusal> {
    let unreadable = |error: String| {
        Rule::Unreadable.refuse(half, format!("it must read as a BottlerocketShadow v2, but: {error}"))
    };
    // serde takes `{"Idle": null}` for a state. Nobody else does.
    let mut states = ["state", "current_state"].iter().filter_map(|field| map.get(*field));
    if let Some(state) = states.find(|state| !state.is_string()) {
        return Err(unreadable(format!("{state} is not a state")));
    }
    T::deserialize(map).map_err(|error| unreadable(error.to_string()))
}

impl<'de> Deserialize<'de> for ReviewedShadow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = ReviewedShadow;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ReviewedShadow, A::Error> {
        let mut object = ReviewedShadow::default();
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "metadata" => {
                    let metadata = members.next_value::<Option<ShadowMetadata>>()?.unwrap_or_default();
                    (object.metadata, object.managers) = (metadata.fields, metadata.managers);
                }
                "spec" => object.spec = half(members.next_value()?),
                "status" => object.status = half(members.next_value()?),
                "apiVersion" | "kind" => put(&mut object.types, name, members.next_value()?),
                _ => put(&mut object.rest, name, members.next_value()?),
            }
        }
        Ok(object)
    }
}

#[derive(Default)]
struct ShadowMetadata {
    fields: Map<String, Value>,
    managers: usize,
}

impl<'de> Deserialize<'de> for ShadowMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetadataMembers)
    }
}

struct MetadataMembers;

impl<'de> Visitor<'de> for MetadataMembers {
    type Value = ShadowMetadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ShadowMetadata, A::Error> {
        let mut metadata = ShadowMetadata::default();
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                // They make up about half of a review, and only their number matters.
                "managedFields" => {
                    let entries = members.next_value::<Option<Vec<IgnoredAny>>>()?;
                    metadata.managers = entries.map_or(0, |entries| entries.len());
                }
                "resourceVersion" | "generation" => {
                    members.next_value::<IgnoredAny>()?;
                }
                _ => put(&mut metadata.fields, name, members.next_value()?),
            }
        }
        Ok(metadata)
    }
}

/// Of members with the same name the last one counts, as usual in JSON.
fn put(map: &mut Map<String, Value>, name: String, value: Value) {
    if value.is_null() {
        map.remove(&name);
    } else {
        map.insert(name, value);
    }
}

fn half(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(mut fields) => {
            fields.retain(|_, value| !value.is_null());
            fields
        }
        Value::Null => Map::new(),
        // Not an object: keep it under a name that no field has, so that a change of it is seen.
        other => Map::from_iter([(String::new(), other)]),
    }
}
