//! Objects as the API server serves them, read one by one: an object that cannot be read costs itself, and neither the
//! list nor the watch that it came with.
//!
//! What the API server accepts is more than what its clients can read. It takes the time `9999-12-31T23:59:59-23:59`,
//! and serves it as `10000-01-01T23:58:59Z`, in `managedFields` and elsewhere. So each type reads only the fields that it
//! needs, `managedFields` are never among them, and times are read leniently.

use std::borrow::Cow;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

/// An object that is parsed from the API server's answers.
pub trait Readable: Sized + Clone + Debug + Send + Sync + 'static {
    /// The resource that the object belongs to.
    type Kind: Resource;

    /// Reads the object from its JSON.
    ///
    /// # Errors
    /// A field that is needed is missing, is not what it should be, or is longer than this type keeps.
    fn read(json: &str) -> Result<Self, Unreadable>;
}

/// An object, or why it cannot be read.
#[derive(Clone, Debug)]
pub struct Item<T> {
    /// Namespace, name, UID and resource version, and nothing else.
    pub metadata: ObjectMeta,
    /// The parsed body, or why it cannot be parsed.
    pub body: Result<T, Unreadable>,
}

impl<T> Item<T> {
    /// Returns what was read, if it could be.
    pub fn ok(&self) -> Option<&T> {
        self.body.as_ref().ok()
    }

    /// `metadata.name`; empty if it cannot be read.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`; empty for an object without a namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// `metadata.uid`; empty if it cannot be read.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
}

impl<'de, T: Readable> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self {
            metadata: identity(json.get()),
            body: T::read(json.get()),
        })
    }
}

impl<T: Readable> Resource for Item<T> {
    type DynamicType = <T::Kind as Resource>::DynamicType;
    type Scope = <T::Kind as Resource>::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::Kind::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::Kind::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::Kind::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::Kind::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Namespace, name, UID and resource version of an object, as far as they can be read.
fn identity(json: &str) -> ObjectMeta {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Shape {
        metadata: Identity,
    }

    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Identity {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
    }

    let Shape { metadata } = serde_json::from_str(json).unwrap_or_default();
    ObjectMeta {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    }
}

/// The parsed part of the `metadata` of our own kinds and of budgets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            owner_references: metadata.owner_references,
            ..Self::default()
        }
    }
}

/// Reads a time, if there is one. A text that is no time, or none that can be represented, counts as the far future: what
/// waits for it to be past does not begin.
///
/// # Errors
/// It is no text.
pub fn lenient_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Cow<'_, str>>::deserialize(deserializer)?;
    Ok(text.map(|text| text.parse().unwrap_or(Timestamp::MAX)))
}

/// Reads a value that may be null or absent. Use it with `#[serde(default)]`.
///
/// # Errors
/// It is neither null nor such a value.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reasons why something cannot be read. The sentence names the place, and quotes nothing, as serde's own sentences do: what stands
/// there may be a secret in somebody else's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unreadable {
    /// It is not the JSON that it should be, and was read from a text.
    #[error("{what} (line {line}, column {column})")]
    At {
        /// The fault, in a few words.
        what: &'static str,
        /// The line of the fault, from 1.
        line: usize,
        /// The column of the fault, from 0.
        column: usize,
    },
    /// It is not the JSON that it should be.
    #[error("{0}")]
    Somewhere(&'static str),
    /// A field is longer than its reader keeps.
    #[error("its {0} is too long")]
    TooLong(&'static str),
    /// It stands for all of its kind in its namespace, of which there are more than its reader keeps.
    #[error("there are too many of them in its namespace, or too large ones")]
    TooMany,
}

impl From<&serde_json::Error> for Unreadable {
    fn from(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            Category::Io => "it cannot be read",
            Category::Syntax => "it is not JSON, or nested too deeply",
            Category::Data => "it is JSON of another shape",
            Category::Eof => "it ends too early",
        };
        match (error.line(), error.column()) {
            (0, _) => Self::Somewhere(what),
            (line, column) => Self::At { what, line, column },
        }
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BottlerocketShadow;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    fn shadow(name: &str) -> Value {
        json!({
            "apiVersion": BottlerocketShadow::api_version(&()), "kind": "BottlerocketShadow",
            "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
                "managedFields": [{"time": "10000-01-01T23:58:59Z"}]},
            "spec": {"state": "Idle"}, "status": {"problem": "OfALaterRelease"},
        })
    }

    #[test]
    fn a_list_survives_one_bad_object() {
        let mut bad = shadow("bad");
        bad["spec"]["state"] = json!("Dreaming of the password hunter2");
        let list = json!({"kind": "BottlerocketShadowList", "apiVersion": BottlerocketShadow::api_version(&()),
            "metadata": {"resourceVersion": "9"}, "items": [shadow("a"), bad, shadow("b")]});
        let list: ObjectList<Item<BottlerocketShadow>> =
            serde_json::from_str(&list.to_string()).unwrap();
        let names: Vec<_> = list
            .items
            .iter()
            .map(|item| (item.name(), item.ok().is_some()))
            .collect();
        assert_eq!(names, [("a", true), ("bad", false), ("b", true)]);
        let why = list.items[1].body.as_ref().unwrap_err().to_string();
        assert!(
            why.contains("line 1, column") && !why.contains("hunter2"),
            "{why}"
        );
        assert_eq!(
            list.items[1].metadata.resource_version.as_deref(),
            Some("7")
        );
        let identity = list.items[1].metadata.clone();
        let known =
            [identity.namespace, identity.name, identity.uid].map(Option::unwrap_or_default);
        assert_eq!(
            known,
            ["ns", "bad", "u"],
            "an Event about it has to find it"
        );
        assert_eq!(Resource::meta(&list.items[1]), &list.items[1].metadata);
        let read = list.items[0].ok().unwrap();
        assert_eq!(
            (read.metadata.generation, &read.metadata.managed_fields),
            (Some(2), &None)
        );
    }

    #[test]
    fn a_watch_event_survives_its_object() {
        let line = format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            json!({"metadata": {"name": "n"}, "spec": 3})
        );
        let WatchEvent::Modified(item) = serde_json::from_str(&line).unwrap() else {
            panic!("{line}")
        };
        let item: Item<BottlerocketShadow> = item;
        assert_eq!((item.name(), item.ok().is_none()), ("n", true));
    }

    #[test]
    fn unreadable_identity_is_empty() {
        for json in [
            "{}",
            r#"{"metadata": null}"#,
            r#"{"metadata": {"name": 3}}"#,
            "[]",
            "7",
        ] {
            assert_eq!(identity(json), ObjectMeta::default(), "{json}");
        }
    }

    #[test]
    fn a_time_beyond_all_calendars_is_far_away() {
        #[derive(Deserialize)]
        struct At(#[serde(deserialize_with = "lenient_time")] Option<Timestamp>);
        let read = |value: Value| serde_json::from_value::<At>(value).map(|at| at.0).ok();
        assert_eq!(
            read(json!("10000-01-01T23:58:59Z")),
            Some(Some(Timestamp::MAX))
        );
        assert_eq!(read(json!("soon")), Some(Some(Timestamp::MAX)));
        assert_eq!(
            read(json!("1970-01-01T00:00:00Z")),
            Some(Some(Timestamp::UNIX_EPOCH))
        );
        assert_eq!(read(json!(null)), Some(None));
        assert_eq!(read(json!(5)), None);
    }

    #[test]
    fn errors_of_json_quote_no_value() {
        let secret = r#"{"password": "hunter2"}"#;
        let read = |text: &str| serde_json::from_str::<Vec<u8>>(text).unwrap_err();
        let typed = serde_json::from_value::<u8>("hunter2".into()).unwrap_err();
        assert!(
            typed.to_string().contains("hunter2"),
            "serde quotes no longer: {typed}"
        );
        for (error, expected) in [
            (
                read(secret),
                "it is JSON of another shape (line 1, column 0)",
            ),
            (
                read("[\n 1, \"hunter2\"]"),
                "it is JSON of another shape (line 2, column 13)",
            ),
            (
                read("[1, hunter2]"),
                "it is not JSON, or nested too deeply (line 1, column 5)",
            ),
            (read("[1,"), "it ends too early (line 1, column 3)"),
            (typed, "it is JSON of another shape"),
        ] {
            assert_eq!(Unreadable::from(&error).to_string(), expected, "{error}");
        }
    }
}
