//! What a request changes, compared as values: an absent status and an empty one are the same, and so are a field that
//! is null and one that is not there.

use kube::core::DynamicObject;
use kube::core::admission::AdmissionRequest;
use serde_json::{Map, Value};

/// Most bytes of a diff that are handed on to the audit log.
const DIFF_MAX: usize = 2048;
/// Most changed fields that are named.
const NAMED_MAX: usize = 16;

/// The differing fields of a request's old and new object, and both objects' specs and statuses.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Names of what differs: `metadata`, `spec.<field>`, `status.<field>` or `<field>`; in order.
    pub fields: Vec<String>,
    pub(super) old: Halves,
    pub(super) new: Halves,
}

/// Spec and status of an object, without null fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Halves {
    pub spec: Map<String, Value>,
    pub status: Map<String, Value>,
    rest: Map<String, Value>,
}

impl Halves {
    fn of(object: Option<&DynamicObject>) -> Self {
        let mut rest = object.and_then(|object| object.data.as_object()).cloned().unwrap_or_default();
        let mut half = |name| match rest.remove(name) {
            Some(Value::Object(mut map)) => {
                map.retain(|_, value| !value.is_null());
                map
            }
            None | Some(Value::Null) => Map::new(),
            // Not an object: keep it in sight, under a name that no field has.
            Some(other) => Map::from_iter([(String::new(), other)]),
        };
        Self { spec: half("spec"), status: half("status"), rest }
    }
}

impl Change {
    /// What this request changes. A creation changes nothing into the new object, a deletion the old one into nothing.
    pub fn of(request: &AdmissionRequest<DynamicObject>) -> Self {
        let (old, new) = (Halves::of(request.old_object.as_ref()), Halves::of(request.object.as_ref()));
        let mut fields = Vec::new();
        if metadata_differs(request.old_object.as_ref(), request.object.as_ref()) {
            fields.push("metadata".to_owned());
        }
        fields.extend(differing(&old.spec, &new.spec).map(|field| format!("spec.{field}")));
        fields.extend(differing(&old.status, &new.status).map(|field| format!("status.{field}")));
        fields.extend(differing(&old.rest, &new.rest).cloned());
        Self { fields, old, new }
    }

    /// The changed fields in a bounded line, for logs and the audit annotation.
    pub fn summary(&self) -> String {
        let named = self.fields.iter().take(NAMED_MAX).cloned();
        let more = self.fields.len().saturating_sub(NAMED_MAX);
        named.chain((more > 0).then(|| format!("and {more} more"))).collect::<Vec<_>>().join(",")
    }

    /// The change of spec and status as a JSON patch; its beginning and size, if that is more than an audit log should
    /// carry.
    pub fn diff(&self) -> String {
        let whole = |halves: &Halves| serde_json::json!({"spec": halves.spec, "status": halves.status});
        let patch = json_patch::diff(&whole(&self.old), &whole(&self.new));
        match serde_json::to_string(&patch) {
            Ok(text) if text.len() <= DIFF_MAX => text,
            Ok(text) => {
                let shown = &text[..text.floor_char_boundary(DIFF_MAX)];
                format!("{shown}… ({} operations in {} bytes)", patch.0.len(), text.len())
            }
            Err(error) => error.to_string(),
        }
    }
}

/// Fields that differ, in order of their names.
fn differing<'a>(
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let changed = old.iter().filter(|(field, value)| new.get(*field) != Some(*value)).map(|(field, _)| field);
    let added = new.keys().filter(|field| !old.contains_key(*field));
    let mut fields: Vec<_> = changed.chain(added).collect();
    fields.sort_unstable();
    fields.into_iter()
}

/// The API server keeps `resourceVersion`, `generation` and `managedFields` itself; the rest is somebody's.
fn metadata_differs(old: Option<&DynamicObject>, new: Option<&DynamicObject>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return old.is_some() != new.is_some() };
    let mut old_metadata = old.metadata.clone();
    let mut new_metadata = new.metadata.clone();
    for metadata in [&mut old_metadata, &mut new_metadata] {
        metadata.managed_fields = None;
        metadata.resource_version = None;
        metadata.generation = None;
    }
    old_metadata != new_metadata || old.types != new.types
}
