//! The part of a review that the verdict looks at. Objects stay plain JSON, so that a change of an unknown field is seen,
//! too.

use super::{Refusal, Rule};
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::admission::Operation;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// The request of an `AdmissionReview`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowRequest {
    /// Tells which review an answer belongs to.
    pub uid: String,
    pub kind: GroupVersionKind,
    pub resource: GroupVersionResource,
    /// The sub-resource, if it is about one.
    #[serde(default)]
    pub sub_resource: Option<String>,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: Option<String>,
    /// The operation of the request.
    pub operation: Operation,
    pub user_info: UserInfo,
    /// The object as it would be stored; `None` in a deletion.
    #[serde(default)]
    pub object: Option<ReviewedShadow>,
    /// The object as it is now; `None` in a creation.
    #[serde(default)]
    pub old_object: Option<ReviewedShadow>,
    #[serde(default)]
    pub dry_run: bool,
}

/// An object without members that are null, and without what is none of our business in the metadata: what the API server
/// keeps there itself (`managedFields`, `resourceVersion` and `generation`), and labels and annotations, which other people's
/// admission may add to any write.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Members")]
pub struct ReviewedShadow {
    /// The fields `apiVersion` and `kind`.
    pub(super) types: Map<String, Value>,
    pub(super) metadata: Map<String, Value>,
    pub(super) spec: Map<String, Value>,
    pub(super) status: Map<String, Value>,
    /// All other members, which no shadow has.
    pub(super) rest: Map<String, Value>,
}

impl ReviewedShadow {
    /// The owners; empty if they cannot be read.
    pub(super) fn owners(&self) -> Vec<OwnerReference> {
        let owners = self.metadata.get("ownerReferences").map(Vec::deserialize);
        owners.and_then(Result::ok).unwrap_or_default()
    }
}

/// Whether this owner is the Node of this name.
pub(super) fn is_node(owner: &OwnerReference, name: &str) -> bool {
    owner.api_version == "v1" && owner.kind == "Node" && owner.name == name
}

/// Reads one half of a shadow: `half` is "spec" or "status".
///
/// # Errors
/// It is not what a `BottlerocketShadow` v2 holds there.
pub(super) fn read<T: DeserializeOwned>(
    map: &Map<String, Value>,
    half: &str,
) -> Result<T, Refusal> {
    T::deserialize(map).map_err(|error| {
        Rule::Unreadable.refuse(
            half,
            format!("this is no valid BottlerocketShadow v2: {error}"),
        )
    })
}

/// The members of an object, as they are read.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Members {
    #[serde(default)]
    metadata: Option<ShadowMetadata>,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "metadata")]
struct ShadowMetadata {
    /// It makes up about half of a review.
    #[serde(default, rename = "managedFields")]
    _managed_fields: IgnoredAny,
    #[serde(default, rename = "resourceVersion")]
    _resource_version: IgnoredAny,
    #[serde(default, rename = "generation")]
    _generation: IgnoredAny,
    #[serde(default, rename = "labels")]
    _labels: IgnoredAny,
    #[serde(default, rename = "annotations")]
    _annotations: IgnoredAny,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl From<Members> for ReviewedShadow {
    fn from(members: Members) -> Self {
        let (metadata, mut rest) = (
            members.metadata.unwrap_or_default(),
            without_null(members.rest),
        );
        let types = ["apiVersion", "kind"]
            .into_iter()
            .filter_map(|name| rest.remove_entry(name))
            .collect();
        Self {
            types,
            metadata: without_null(metadata.fields),
            spec: half(members.spec),
            status: half(members.status),
            rest,
        }
    }
}

fn without_null(mut fields: Map<String, Value>) -> Map<String, Value> {
    fields.retain(|_, value| !value.is_null());
    fields
}

fn half(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => without_null(fields),
        Value::Null => Map::new(),
        // Not an object: keep it under a name that no field has, so that a change of it is seen.
        other => Map::from_iter([(String::new(), other)]),
    }
}
