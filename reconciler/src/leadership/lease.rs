//! What is read of the Lease, and what is written.

use std::time::Duration;

use brupop_api::Item;
use brupop_api::item::{Readable, Unreadable};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::Deserialize;

use super::step::SeenLease;

/// The longest silence of a leader that anybody waits for, and the longest that `LEASE_DURATION_SECONDS` may be. A Lease
/// that asks for more was not written by a reconciler, or by one whose token was stolen.
pub const LONGEST: Duration = Duration::from_mins(5);

/// What is read of the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`.
    pub holder: Option<String>,
    duration: Option<Duration>,
    acquired: Option<Timestamp>,
    transitions: i32,
}

impl Readable for LeaseRecord {
    type Kind = Lease;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            #[serde(default)]
            spec: Spec,
        }

        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Spec {
            holder_identity: Option<String>,
            lease_duration_seconds: Option<i64>,
            acquire_time: Option<String>,
            lease_transitions: Option<i32>,
        }

        let Shape { spec } = serde_json::from_str(json)?;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Ok(Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: seconds.map(Duration::from_secs),
            acquired: spec.acquire_time.and_then(|time| time.parse().ok()),
            transitions: spec.lease_transitions.unwrap_or(0).max(0),
        })
    }
}

impl LeaseRecord {
    /// This record as the election sees it; `ours` is the duration of a Lease of ours.
    pub fn seen(&self, ours: Duration) -> SeenLease<'_> {
        SeenLease { holder: self.holder.as_deref(), duration: self.duration.unwrap_or(ours).min(LONGEST) }
    }

    /// The Lease to write, so that it is held by `us` from now on.
    pub fn held_by(&self, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
        let ours = self.holder.as_deref() == Some(us);
        LeaseSpec {
            holder_identity: Some(us.to_owned()),
            lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: Some(MicroTime(self.acquired.filter(|_| ours).unwrap_or(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(self.transitions.saturating_add(i32::from(!ours))),
            ..LeaseSpec::default()
        }
    }

    /// The Lease to write, so that nobody holds it.
    pub fn released(&self, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
        LeaseSpec { holder_identity: None, ..self.held_by(us, duration, now) }
    }
}

/// The Lease with this spec, as it is put in the place of the one that was read. It has no labels, annotations, owners
/// and finalizers: we write none, so any that are there were planted.
pub fn replacement(read: Option<&Item<LeaseRecord>>, name: &str, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: read.and_then(|lease| lease.metadata.uid.clone()),
        resource_version: read.and_then(|lease| lease.metadata.resource_version.clone()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}
