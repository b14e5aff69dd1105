//! What is read of the Lease by which a reconciler leads.

use std::time::Duration;

use brupop_api::item::{Readable, Unreadable, lenient_time};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::Deserialize;

/// What is read of the Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The name of the pod that leads: `spec.holderIdentity`.
    pub holder: Option<String>,
    /// For how long its holder may be silent.
    pub duration: Option<Duration>,
    /// Since when it has had its holder.
    pub acquired: Option<Timestamp>,
    /// When its holder last said that it leads, by its own clock.
    pub renewed: Option<Timestamp>,
    /// How often it has had another holder.
    pub transitions: i32,
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
            #[serde(deserialize_with = "lenient_time")]
            renew_time: Option<Timestamp>,
            lease_transitions: Option<i32>,
        }

        let Shape { spec } = serde_json::from_str(json)?;
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        Ok(Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: seconds.map(Duration::from_secs),
            acquired: spec.acquire_time.and_then(|time| time.parse().ok()),
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or(0).max(0),
        })
    }
}
