//! What the API server drops of an object before anybody is asked: fields that the schema does not know.

use brupop_api::BottlerocketShadow;
use kube::CustomResourceExt as _;
use kube::Resource as _;
use serde_json::Value;
use std::sync::LazyLock;

/// The schema of a shadow.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let versions =
        serde_json::to_value(BottlerocketShadow::crd().spec.versions).unwrap_or_default();
    let served = versions
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["name"] == BottlerocketShadow::version(&()).as_ref());
    served.map_or(Value::Null, |version| {
        version["schema"]["openAPIV3Schema"].clone()
    })
});

/// Takes unknown fields from a shadow; its metadata are left alone.
pub(crate) fn prune(shadow: &mut Value) {
    let Some(object) = shadow.as_object_mut() else {
        return;
    };
    object.retain(|field, _| {
        ["apiVersion", "kind", "metadata", "spec", "status"].contains(&field.as_str())
    });
    for half in ["spec", "status"] {
        if let Some(value) = object.get_mut(half) {
            known_fields(value, &SCHEMA["properties"][half]);
        }
    }
}

fn known_fields(value: &mut Value, schema: &Value) {
    match (value, schema) {
        (Value::Object(fields), schema) => {
            let Some(properties) = schema["properties"].as_object() else {
                return;
            };
            fields.retain(|field, _| properties.contains_key(field));
            for (field, value) in fields {
                known_fields(value, &properties[field]);
            }
        }
        (Value::Array(items), schema) => {
            for item in items {
                known_fields(item, &schema["items"]);
            }
        }
        _ => {}
    }
}
