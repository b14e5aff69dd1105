//! Conditions as the custom resources carry them: why something moves, or why not.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{Counter, Sentence, Time, Word};

/// Condition type of a shadow, and of a pool: is its update moving, and if not, why not.
pub const PROGRESSING: &str = "Progressing";
/// Condition type of a shadow, which it has only while that is so: its node's update holds its slot for longer than the
/// current step may take.
pub const OVERDUE: &str = "Overdue";
/// Condition type of a shadow, once its agent has reported: whether its host chooses an update that it does not run yet.
pub const UPDATE_AVAILABLE: &str = "UpdateAvailable";
/// Condition type of the fleet: are our admission rules seen to be in force.
pub const ADMISSION_ENFORCED: &str = "AdmissionEnforced";
/// Condition type of the fleet: is upstream's operator installed beside this one, so that nothing starts.
pub const OTHER_OPERATOR: &str = "OtherOperator";
/// Condition type of the fleet: have too many nodes failed to reach a version, so that no further one tries.
pub const HALTED: &str = "Halted";
/// Condition type of the fleet: is no node being updated, and no change of the operator left on any Node.
pub const IDLE: &str = "Idle";

/// Condition type of the fleet, and of a pool, that kstatus reads for Flux and Helm: is the spec in force, also while
/// nothing moves.
pub const READY: &str = "Ready";
/// Condition type of the fleet, and of a pool, that kstatus reads, too: is it invalid or halted, so that a person has to act.
pub const STALLED: &str = "Stalled";

/// Condition type of a pool: is its spec understood.
pub const ACCEPTED: &str = "Accepted";
/// Condition type of the fleet, and of a pool: is there no update that is not done on each of its nodes.
pub const UPDATED: &str = "Updated";

/// One condition, shaped like `metav1.Condition`, with limits on every string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The subject of this condition, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(with = "Word")]
    pub type_: Cow<'static, str>,
    /// The value: `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// A stable word for the state, in CamelCase; safe to alert on.
    #[schemars(with = "Word")]
    pub reason: Cow<'static, str>,
    /// The explanation, a sentence for people.
    #[schemars(with = "Sentence")]
    pub message: String,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Counter")]
    pub observed_generation: Option<u64>,
    /// The time at which `status` last changed.
    #[schemars(with = "Time")]
    pub last_transition_time: String,
}

/// Value of a [`Condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// Reasons for which a waiting node must not prefetch: it lacks more than its turn.
pub const REASONS_AGAINST_PREFETCH: [&str; 11] = [
    "VersionHalted",
    "BackingOff",
    "FleetPaused",
    "NodePaused",
    "NodeNotReady",
    "OtherOperator",
    "Frozen",
    "PoolPaused",
    "PoolInvalid",
    "PoolConflict",
    "VersionNotAllowed",
];
