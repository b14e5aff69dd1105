//! Requests of the plugin to the API server.

use http::Method;
use serde_json::Value;

/// The form of a written change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Merge,
    JsonPatch,
    /// The whole object, by PUT: what is there, with the body merged into it.
    Put,
    Apply,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// A shadow that is there is changed, or a sub-resource of it (empty: the object itself).
    Update {
        /// The sub-resource, which is `status` as a rule.
        sub_resource: &'static str,
        way: Way,
        body: Value,
    },
    /// A shadow that is not there is made: the body merged into the one that would be expected.
    Create(Value),
    Delete,
    /// All shadows of the namespace are deleted.
    DeleteAll,
}

impl Ask {
    /// Whether the shadow must not be there before.
    pub fn creates(&self) -> bool {
        matches!(self, Self::Create(_))
    }

    /// The sub-resource that is asked for; empty for the object itself.
    pub(crate) fn sub_resource(&self) -> &'static str {
        match self {
            Self::Update { sub_resource, .. } => sub_resource,
            Self::Create(_) | Self::Delete | Self::DeleteAll => "",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    /// The body; may be empty.
    pub body: String,
}
