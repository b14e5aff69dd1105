//! Objects as they are watched: of each only what decisions and conditional patches need, with bounds on what others
//! can put into them.

mod node;
mod pod;

use std::collections::BTreeMap;

use brupop_api::item::{self, Readable, Unreadable, lenient_time, null_as_default};
use brupop_api::{BottlerocketFleet, BottlerocketFleetSpec, BottlerocketFleetStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

pub use node::NodeFacts;
pub(crate) use node::runs_bottlerocket;
pub use pod::{
    AgentPod, Allowed, Budget, Controller, Pod, PodItem, is_operator_pod, matters, relaxed,
};

/// The taint of a cordoned node, which the node lifecycle controller adds; its effect is `NoSchedule`.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

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
    pub ready: bool,
    /// The start of this state, if known.
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

    /// Returns since when it has been Ready without interruption, if it is.
    pub fn ready_since(self) -> Option<Timestamp> {
        self.ready.then(|| self.since.unwrap_or(Timestamp::MIN))
    }

    /// Returns since when it has not been Ready, if it is not and that is known.
    pub fn not_ready_since(self) -> Option<Timestamp> {
        self.since.filter(|_| !self.ready)
    }
}

/// The parsed part of the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LeaseRecord {
    /// The name of the pod that leads.
    #[serde(rename = "holderIdentity")]
    pub holder: Option<String>,
    /// Seconds for which its holder may be silent.
    #[serde(rename = "leaseDurationSeconds")]
    pub seconds: Option<u64>,
    /// The time since which it has had its holder.
    #[serde(rename = "acquireTime", deserialize_with = "lenient_time")]
    pub acquired: Option<Timestamp>,
    /// When its holder last said that it leads, by its own clock.
    #[serde(rename = "renewTime", deserialize_with = "lenient_time")]
    pub renewed: Option<Timestamp>,
    /// Number of changes of its holder.
    #[serde(rename = "leaseTransitions", deserialize_with = "null_as_default")]
    pub transitions: i32,
}

impl Readable for LeaseRecord {
    type Kind = Lease;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            #[serde(default)]
            spec: LeaseRecord,
        }
        Ok(serde_json::from_str::<Shape>(json)?.spec)
    }
}

/// The times that had not come when this leader first saw them, and when that was, by the UID of their object.
///
/// A kubelet, a person or an earlier leader may have written a time that has not come yet. It counts as the moment at which this
/// leader first saw it. Otherwise its deadline would come as much later, or never if it counted as now in each pass.
#[derive(Clone, Debug, Default)]
pub struct Ahead(BTreeMap<Timestamp, BTreeMap<String, Timestamp>>);

impl Ahead {
    /// The set without any time that is ahead.
    pub const NONE: &Self = &Self(BTreeMap::new());

    /// Returns since when a time counts that stands in the object of this UID.
    pub fn since(&self, uid: &str, time: Timestamp, now: Timestamp) -> Timestamp {
        let seen = self.0.get(&time).and_then(|seen| seen.get(uid));
        seen.copied().unwrap_or(time.min(now))
    }

    /// Returns since when the time in this text counts, if it can be read.
    pub fn read(&self, uid: &str, text: Option<&str>, now: Timestamp) -> Option<Timestamp> {
        Some(self.since(uid, read_time(text)?, now))
    }

    /// Notes that this time was first seen then.
    pub(crate) fn note(&mut self, uid: &str, time: Timestamp, seen: Timestamp) {
        self.0.entry(time).or_default().insert(uid.to_owned(), seen);
    }
}

/// The time of a pass, and when it has to look again.
#[derive(Clone, Debug)]
pub struct Clock<'k> {
    pub now: Timestamp,
    /// The earliest later time at which one of the answers changes.
    pub next: Option<Timestamp>,
    /// The times that earlier passes have seen ahead.
    pub(crate) known: &'k Ahead,
    /// Those of them that this clock was asked for, and new ones: what the next pass has to know.
    pub ahead: Ahead,
}

impl<'k> Clock<'k> {
    /// A clock that knows which times earlier passes have seen ahead.
    pub fn new(now: Timestamp, known: &'k Ahead) -> Self {
        Self {
            now,
            next: None,
            known,
            ahead: Ahead::default(),
        }
    }

    /// Returns since when this time counts; see [`Ahead::since`].
    pub(crate) fn since(&mut self, uid: &str, time: Timestamp) -> Timestamp {
        let since = self.known.since(uid, time, self.now);
        if since != time {
            self.ahead.note(uid, time, since);
        }
        since
    }

    /// Returns since when the time in this text counts, if it can be read.
    pub(crate) fn read(&mut self, uid: &str, text: Option<&str>) -> Option<Timestamp> {
        Some(self.since(uid, read_time(text)?))
    }

    /// At this time an answer changes that is not this clock's.
    pub(crate) fn wake_at(&mut self, at: Option<Timestamp>) {
        self.next = [self.next, at].into_iter().flatten().min();
    }

    /// Whether so much time has passed since then. No, if there is no time, or it cannot be read.
    pub(crate) fn passed(&mut self, since: Option<Timestamp>, wait: SignedDuration) -> bool {
        since.is_some_and(|since| self.is_older(since, wait))
    }

    /// Whether so much time has passed since then. Yes, if there is no time, or it cannot be read.
    pub(crate) fn passed_or_unknown(
        &mut self,
        since: Option<Timestamp>,
        wait: SignedDuration,
    ) -> bool {
        since.is_none_or(|since| self.is_older(since, wait))
    }

    /// Whether so much time has passed since then.
    pub(crate) fn is_older(&mut self, since: Timestamp, wait: SignedDuration) -> bool {
        let at = since.saturating_add(wait).unwrap_or(Timestamp::MAX);
        self.wake_at(Some(at).filter(|at| *at > self.now));
        at <= self.now
    }
}

/// Returns the time in this text, if it can be read. All times that stand in objects are read here.
pub(crate) fn read_time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// Returns how many bytes these labels or annotations have.
fn bytes(entries: &BTreeMap<String, String>) -> usize {
    entries
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}

#[cfg(test)]
mod tests;
