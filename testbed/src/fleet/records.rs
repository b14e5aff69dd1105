//! The ledger's record of one version, in fleets whose hosts have one variant.

use brupop_api::BottlerocketFleetStatus;
use brupop_api::fleet::VersionRecord;

pub trait Records {
    /// The record of this version for the first variant that has one; an empty one if none has.
    fn record(&self, version: &str) -> VersionRecord;
}

impl Records for BottlerocketFleetStatus {
    fn record(&self, version: &str) -> VersionRecord {
        let mut records = self.versions.iter();
        let record = records.find(|record| record.version == version);
        record.cloned().unwrap_or_default()
    }
}
