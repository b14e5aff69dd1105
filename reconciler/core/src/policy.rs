//! Rules for updating a fleet: plain values.

use jiff::SignedDuration;

use crate::rules::Rules;

/// The rules for updating a fleet.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The rules of the default pool, whose nodes no `BottlerocketPool` selects.
    pub default_pool: Rules,
    pub durations: Durations,
    /// Whether nodes that run Bottlerocket and have no label of ours are opted in.
    pub auto_label: bool,
}

/// Durations and waits of the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// The time that download and activation may take.
    pub stage: SignedDuration,
    pub reboot: SignedDuration,
    /// For short steps: the agent's first and last report of an update, a node that becomes Ready again.
    pub settle: SignedDuration,
    /// Time for which a node waits after its first failure.
    pub back_off_base: SignedDuration,
    /// The age that a node must have before it is updated.
    pub min_node_age: SignedDuration,
    /// Time for which a node that somebody else has cordoned takes a place of the limit.
    pub others_cordon: SignedDuration,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            stage: SignedDuration::from_hours(4),
            reboot: SignedDuration::from_mins(30),
            settle: SignedDuration::from_mins(10),
            back_off_base: SignedDuration::from_mins(2),
            min_node_age: SignedDuration::from_mins(5),
            others_cordon: SignedDuration::from_hours(1),
        }
    }
}

/// The default policy, for tests to borrow from.
#[cfg(test)]
pub(crate) static USUAL: std::sync::LazyLock<Policy> = std::sync::LazyLock::new(Policy::default);
