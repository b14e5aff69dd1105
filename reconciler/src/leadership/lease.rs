//! What the election sees of the Lease, and what it writes.

use std::time::Duration;

use brupop_api::Item;
use brupop_core::objects::LeaseRecord;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::timing::SeenLease;

/// The longest silence of a leader that anybody waits for, and the longest that `LEASE_DURATION_SECONDS` may be. A Lease
/// that asks for more was not written by a reconciler, or by one whose token was stolen.
pub const LONGEST: Duration = Duration::from_mins(5);

/// This record as the election sees it; `ours` is the duration of a Lease of ours.
pub fn seen(record: &LeaseRecord, ours: Duration) -> SeenLease<'_> {
    SeenLease {
        holder: record.holder.as_deref(),
        duration: record.duration.unwrap_or(ours).min(LONGEST),
    }
}

/// The Lease to write, so that it is held by `us` from now on.
pub fn held_by(record: &LeaseRecord, us: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    let ours = record.holder.as_deref() == Some(us);
    LeaseSpec {
        holder_identity: Some(us.to_owned()),
        lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: Some(MicroTime(record.acquired.filter(|_| ours).unwrap_or(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(record.transitions.saturating_add(i32::from(!ours))),
        ..LeaseSpec::default()
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
    Lease {
        metadata,
        spec: Some(spec),
    }
}
