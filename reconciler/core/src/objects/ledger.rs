//! The fleet's ledger: the parsed object, and its JSON.

use brupop_api::item::{Metadata, Readable, Unreadable};
use brupop_api::{BottlerocketFleet, BottlerocketFleetSpec, BottlerocketFleetStatus};
use serde::Deserialize;
use serde_json::{Value, json};

/// The fleet's ledger: the parsed object, and its JSON.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The object.
    pub fleet: BottlerocketFleet,
    /// Spec and status as they were read, for the tests of patches: "no slots" may be stored as `{}` or not at all.
    pub quoted: Value,
}

impl Readable for Ledger {
    type Kind = BottlerocketFleet;

    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape {
            metadata: Metadata,
            spec: Value,
            #[serde(default)]
            status: Option<Value>,
        }
        let Shape { metadata, spec, status } = serde_json::from_str(json)?;
        let fleet = BottlerocketFleet {
            metadata: metadata.into(),
            spec: BottlerocketFleetSpec::deserialize(&spec)?,
            status: status.as_ref().map(BottlerocketFleetStatus::deserialize).transpose()?,
        };
        let mut quoted = json!({"spec": spec});
        if let Some(status) = status {
            quoted["status"] = status;
        }
        Ok(Self { fleet, quoted })
    }
}
