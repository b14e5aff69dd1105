//! What the fleet's status keeps of slots and versions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds::{UID_MAX, VARIANTS_MAX};
use crate::schema::{self, Counter, Time, Variant, Version, Word};

/// The right to update one node, once.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Slot {
    /// UID of the shadow, so that a recreated shadow has no slot.
    #[schemars(length(max = UID_MAX), regex(pattern = schema::UID))]
    pub uid: String,
    /// The attempt this slot is for: the shadow's `spec.attempt` once its spec has moved.
    #[schemars(with = "Counter")]
    pub attempt: u64,
    /// When it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<String>,
    /// The version to which it lets the node be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Version>")]
    pub version: Option<String>,
    /// The pool that owned the node then, and in which the slot counts for as long as it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = crate::crds::POOL_NAME_MAX), regex(pattern = schema::NAME))]
    pub pool: Option<String>,
    /// The host claimed its reboot, and its node was not Ready for long: if the Node is deleted now, the update has failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lost: bool,
    /// The node's failure in this attempt is counted in `versions` already.
    #[serde(default, skip_serializing_if = "is_false")]
    pub counted: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// What became of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionRecord {
    /// When the record was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub first_seen: Option<String>,
    /// The last nodes that failed to reach it, on facts of Nodes; each node once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = crate::crds::FAILED_NODES_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"])
    )]
    pub failures: Vec<NodeFailure>,
    /// How many nodes have reached it.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub succeeded: u64,
    /// Variants of which a node has reached it; the first ones, if they are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Variant>", length(max = VARIANTS_MAX), extend("x-kubernetes-list-type" = "set"))]
    pub proven_variants: Vec<String>,
    /// Set when no new node is to be updated to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<Halt>,
    /// Up to when a person has acknowledged its halts (`spec.acknowledgedHalts`): only failures after that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub acknowledged_at: Option<String>,
    /// Pools that others depend on (`spec.dependsOn`), once they have been done with this version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = crate::crds::DONE_POOLS_MAX,
        "x-kubernetes-validations" = schema::name_keys(crate::crds::POOL_NAME_MAX)
    ))]
    pub done_pools: BTreeMap<String, Done>,
}

/// How long a pool has been done with a version: a node of it runs the version, and none wants it any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// Since when it is done; absent while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<String>,
    /// For how long it had been done before, in seconds: the longest time.
    #[serde(default)]
    #[schemars(with = "Counter")]
    pub longest_seconds: u64,
}

/// A node that failed to reach a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFailure {
    /// Name of the node.
    #[schemars(length(max = crate::crds::NAME_MAX), regex(pattern = schema::NAME))]
    pub node: String,
    /// When it was counted: later than what a person had acknowledged by then.
    #[schemars(with = "Time")]
    pub at: String,
    /// Why, in CamelCase.
    #[schemars(with = "Word")]
    pub reason: String,
    /// The variant that its Node showed. Without it, the failure counts in every variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Variant>")]
    pub variant: Option<String>,
}

/// Why no new node is updated to a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Halt {
    /// When the last failure was counted, also while it is halted: what a person acknowledges to lift this.
    #[schemars(with = "Time")]
    pub at: String,
    /// Why.
    #[schemars(length(max = crate::crds::HALT_REASON_MAX), regex(pattern = crate::printable::PATTERN))]
    pub reason: String,
    /// The variants in which it is halted; none = in every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Variant>", length(max = VARIANTS_MAX), extend("x-kubernetes-list-type" = "set"))]
    pub variants: Vec<String>,
}

impl VersionRecord {
    /// Is the version halted for a node of this variant? One whose variant is not known is held by every halt.
    pub fn is_halted_for(&self, variant: Option<&str>) -> bool {
        self.halted
            .as_ref()
            .is_some_and(|halt| halt.covers(variant))
    }

    /// Has a node of this variant reached the version? If the variant is not known: has any?
    pub fn is_proven_for(&self, variant: Option<&str>) -> bool {
        let named = |variant: &str| self.proven_variants.iter().any(|proven| proven == variant);
        self.succeeded > 0 && variant.is_none_or(named)
    }
}

impl Halt {
    /// Does it hold nodes of this variant?
    pub fn covers(&self, variant: Option<&str>) -> bool {
        self.variants.is_empty()
            || variant.is_none_or(|variant| self.variants.iter().any(|halted| halted == variant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_halt_holds_its_variants_and_nodes_of_unknown_ones() {
        let record = |variants: Option<&[&str]>| VersionRecord {
            halted: variants.map(|variants| Halt {
                variants: texts(variants),
                ..Halt::default()
            }),
            ..VersionRecord::default()
        };
        for (variants, variant, held) in [
            (None, Some("aws-k8s"), false),
            (None, None, false),
            (Some(&[][..]), Some("aws-k8s"), true),
            (Some(&[][..]), None, true),
            (Some(&["metal-k8s"][..]), Some("aws-k8s"), false),
            (Some(&["metal-k8s", "aws-k8s"][..]), Some("aws-k8s"), true),
            (Some(&["metal-k8s"][..]), None, true),
        ] {
            assert_eq!(
                record(variants).is_halted_for(variant),
                held,
                "{variants:?} {variant:?}"
            );
        }
    }

    #[test]
    fn a_version_is_proven_where_it_was_reached() {
        for (succeeded, proven, variant, expected) in [
            (0, &[][..], None, false),
            (0, &["aws-k8s"][..], Some("aws-k8s"), false),
            (1, &["aws-k8s"][..], Some("aws-k8s"), true),
            (1, &["aws-k8s"][..], Some("metal-k8s"), false),
            (1, &["aws-k8s"][..], None, true),
        ] {
            let record = VersionRecord {
                succeeded,
                proven_variants: texts(proven),
                ..VersionRecord::default()
            };
            assert_eq!(
                record.is_proven_for(variant),
                expected,
                "{succeeded} {proven:?} {variant:?}"
            );
        }
    }

    #[test]
    fn a_flag_of_a_slot_is_written_if_it_is_set() {
        let slot = Slot {
            lost: true,
            counted: true,
            ..Slot::default()
        };
        assert_eq!(
            json!(slot),
            json!({"uid": "", "attempt": 0, "lost": true, "counted": true})
        );
        assert_eq!(json!(Slot::default()), json!({"uid": "", "attempt": 0}));
    }
}
