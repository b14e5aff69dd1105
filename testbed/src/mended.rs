//! Objects with times that Kubernetes serves and its clients cannot read: some tests make such objects, and the test bed
//! has to see them all the same.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object whose times beyond the year 9999 were read as times of the year 9999.
#[derive(Clone, Debug)]
pub(crate) struct Mended<K>(pub(crate) K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Mended<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        mend(&mut object);
        serde_json::from_value(object)
            .map(Self)
            .map_err(D::Error::custom)
    }
}

fn mend(value: &mut Value) {
    match value {
        Value::String(text) if is_beyond(text) => "9999-01-01T00:00:00Z".clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(mend),
        Value::Object(fields) => fields.values_mut().for_each(mend),
        _ => {}
    }
}

/// `10000-01-01T23:58:59Z` and the like.
fn is_beyond(text: &str) -> bool {
    let (year, rest) = text.split_at(text.find('-').unwrap_or(0));
    year.len() > 4
        && year.bytes().all(|byte| byte.is_ascii_digit())
        && rest.contains('T')
        && rest.ends_with('Z')
}

impl<K: Resource> Resource for Mended<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
