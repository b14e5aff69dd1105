//! Objects as they are watched: of each only what decisions and conditional patches need, with bounds on what others
//! can put into them.

mod budget;
mod lease;
mod node;
mod pod;

use std::collections::BTreeMap;

use brupop_api::item::{self, Readable, Unreadable, lenient_time};
use brupop_api::{BottlerocketFleet, BottlerocketFleetSpec, BottlerocketFleetStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

pub use budget::{Budget, BudgetRemedy};
pub use lease::LeaseRecord;
pub(crate) use node::runs_bottlerocket;
pub use node::{NodeFacts, Words};
pub use pod::{AgentPod, Controller, Pod, PodItem, is_operator_pod};

/// The fleet: the parsed object, and its JSON.
#[derive(Clone, Debug)]
pub struct WatchedFleet {
    pub object: BottlerocketFleet,
    /// UID, generation, spec and status as they were read, for the tests of patches: "no slots" may be stored as `{}` or not at all.
    pub quoted: Value,
}

impl Readable for WatchedFleet {
    type Kind = BottlerocketFleet;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            metadata: item::Metadata,
            spec: Value,
            #[serde(default)]
            status: Option<Value>,
        }
        let Shape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let object = BottlerocketFleet {
            metadata: metadata.into(),
            spec: BottlerocketFleetSpec::deserialize(&spec)?,
            status: status
                .as_ref()
                .map(BottlerocketFleetStatus::deserialize)
                .transpose()?,
        };
        let ObjectMeta {
            uid, generation, ..
        } = &object.metadata;
        let mut quoted = json!({"metadata": {"uid": uid, "generation": generation}, "spec": spec});
        if let Some(status) = status {
            quoted["status"] = status;
        }
        Ok(Self { object, quoted })
    }
}

/// The condition Ready, as Nodes and pods carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It is True.
    pub ready: bool,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default, deserialize_with = "lenient_time")]
    last_transition_time: Option<Timestamp>,
}

impl Readiness {
    fn among(conditions: &[ReadCondition]) -> Option<Self> {
        let ready = conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")?;
        Some(Self {
            ready: ready.status == "True",
            since: ready.last_transition_time,
        })
    }

    /// Since when it has been Ready without interruption, if it is.
    pub fn ready_since(self) -> Option<Timestamp> {
        self.ready.then(|| self.since.unwrap_or(Timestamp::MIN))
    }

    /// Since when it has not been Ready, if it is not and that is known.
    pub fn not_ready_since(self) -> Option<Timestamp> {
        self.since.filter(|_| !self.ready)
    }
}

/// How many bytes these labels or annotations have.
fn bytes(entries: &BTreeMap<String, String>) -> usize {
    entries
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}

#[cfg(test)]
mod tests;
