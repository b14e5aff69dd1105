//! The Lease as it is read, and as it is written.

use std::time::Duration;

use brupop_api::Item;
use brupop_api::item::{Readable, Unreadable};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::Deserialize;

use super::View;

/// The longest silence of a leader that anybody waits for, and the longest that `LEASE_DURATION_SECONDS` may be. A Lease
/// that asks for more was not written by a reconciler, or by one whose token was stolen.
pub const LONGEST: Duration = Duration::from_mins(5);

/// What is read of the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// `spec.holderIdentity`.
    pub holder: Option<String>,
    duration: Option<Duration>,
    acquired: Option<Timestamp>,
    transitions: i32,
}

impl Readable for Claim {
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

impl Claim {
    /// This claim as the election sees it; `ours` is the duration of a Lease of ours.
    pub fn view(&self, ours: Duration) -> View<'_> {
        View { holder: self.holder.as_deref(), duration: self.duration.unwrap_or(ours).min(LONGEST) }
    }

    /// The Lease to write, so that it is held by `us` from now on.
    pub fn claimed(&self, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
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
        LeaseSpec { holder_identity: None, ..self.claimed(us, duration, now) }
    }
}

/// The Lease with this spec, as it is put in the place of the one that was read. It has no labels, annotations, owners
/// and finalizers: we write none, so any that are there were planted.
pub fn replacement(read: Option<&Item<Claim>>, name: &str, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: read.and_then(|lease| lease.metadata.uid.clone()),
        resource_version: read.and_then(|lease| lease.metadata.resource_version.clone()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const OURS: Duration = Duration::from_secs(15);

    fn read(spec: &Value) -> Item<Claim> {
        let metadata = json!({"name": "l", "uid": "u", "resourceVersion": "7", "finalizers": ["x/y"],
            "ownerReferences": [{}], "managedFields": [{"time": "10000-01-01T23:58:59Z"}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn nobody_waits_longer_than_the_longest() {
        let duration = |seconds: Value| {
            let item = read(&json!({"holderIdentity": "other", "leaseDurationSeconds": seconds}));
            item.ok().unwrap().view(OURS).duration.as_secs()
        };
        assert_eq!(duration(json!(2_147_483_647)), 300);
        assert_eq!(duration(json!(60)), 60);
        assert_eq!(duration(json!(-1)), 15);
        assert_eq!(duration(json!(null)), 15);
    }

    #[test]
    fn times_that_cannot_be_read_cost_nothing() {
        let far = "10000-01-01T23:58:59.000000Z";
        let item = read(&json!({"holderIdentity": "us", "renewTime": far, "acquireTime": far}));
        let now: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        let spec = item.ok().unwrap().claimed("us", OURS, now);
        assert_eq!(spec.acquire_time, Some(MicroTime(now)));
    }

    #[test]
    fn a_replacement_carries_nothing_planted() {
        let item = read(&json!({"holderIdentity": "other", "leaseTransitions": 3, "strategy": "x"}));
        let spec = item.ok().unwrap().claimed("us", OURS, Timestamp::UNIX_EPOCH);
        let lease = serde_json::to_value(replacement(Some(&item), "l", spec)).unwrap();
        assert_eq!(lease["metadata"], json!({"name": "l", "uid": "u", "resourceVersion": "7"}));
        let kept = ["holderIdentity", "leaseTransitions"].map(|field| lease["spec"][field].clone());
        assert_eq!((kept, lease["spec"].get("strategy")), ([json!("us"), json!(4)], None));
    }
}
