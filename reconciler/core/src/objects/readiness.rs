//! The condition Ready, as Nodes and pods carry it.

use brupop_api::item::lenient_time;
use jiff::Timestamp;
use serde::Deserialize;

/// The condition Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It is True.
    pub ready: bool,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
}

/// A condition of a Node or a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default, deserialize_with = "lenient_time")]
    last_transition_time: Option<Timestamp>,
}

impl Readiness {
    /// The condition Ready among these, if it is there.
    pub(super) fn among(conditions: &[Condition]) -> Option<Self> {
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
        Some(Self { ready: ready.status == "True", since: ready.last_transition_time })
    }
}
