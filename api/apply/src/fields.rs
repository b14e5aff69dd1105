//! [`Fields`] of the objects that ship, by the place of each field in their JSON.

use brupop_api::{Field, Value, Write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::{Fields, NotApplied};

/// An object as JSON. One that has no such field shows it as absent.
struct Document(Json);

impl Fields for Document {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        field.value_in(&self.0)
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        let value = field.json(value, &self.0);
        put(&mut self.0, &field.pointer(), value);
    }
}

impl<T: Serialize + DeserializeOwned> Fields for T {
    fn get(&self, field: Field<'_>) -> Option<Value<'_>> {
        field.value_in(&json!(self))
    }

    fn set(&mut self, field: Field<'_>, value: &Value<'_>) {
        let mut document = Document(json!(self));
        document.set(field, value);
        take(self, document);
    }

    fn carry_out(&mut self, write: &Write<'_>) -> Result<(), NotApplied> {
        let mut document = Document(json!(self));
        document.carry_out(write)?;
        take(self, document);
        Ok(())
    }
}

fn take<T: DeserializeOwned>(object: &mut T, Document(json): Document) {
    if let Ok(after) = T::deserialize(json) {
        *object = after;
    }
}

/// Null takes away. The API server keeps no empty labels, annotations and lists of taints.
fn put(object: &mut Json, pointer: &str, value: Json) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    if object.pointer(parent).is_none_or(Json::is_null) {
        if value.is_null() {
            return;
        }
        put(object, parent, json!({}));
    }
    let Some(members) = object.pointer_mut(parent).and_then(Json::as_object_mut) else {
        return;
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    if !value.is_null() {
        members.insert(key, value);
    } else if members.remove(&key).is_some()
        && members.is_empty()
        && parent.matches('/').count() > 1
    {
        put(object, parent, Json::Null);
    }
}
