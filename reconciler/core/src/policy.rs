//! How a fleet is updated: plain values, whoever sets them.

use std::str::FromStr;

use jiff::SignedDuration;

use crate::window::Schedule;

/// How a fleet is updated.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// How many nodes may be updated at once.
    pub limit: Limit,
    /// After how many failed nodes a version is halted.
    pub failures: FailureBudget,
    /// Deadlines and waits.
    pub durations: Durations,
    /// When updates may start.
    pub schedule: Schedule,
    /// Are pods that are still there at the drain's deadline deleted, whatever their budgets say?
    pub force: bool,
    /// Are pods respected that ask not to be disrupted, where no pool says anything else?
    pub respect_do_not_disrupt: bool,
    /// Are nodes that run Bottlerocket and have no label of ours opted in?
    pub auto_label: bool,
}

/// How long things may take, and how long they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Between a node's exclusion from load balancers and its drain; zero = no exclusion.
    pub exclusion: SignedDuration,
    /// How long a node is watched after its update.
    pub soak: SignedDuration,
    /// How long evicted workloads may take after that to be available again; zero = they are not checked.
    pub workloads: SignedDuration,
    /// For download and activation.
    pub stage: SignedDuration,
    /// For a drain.
    pub drain: SignedDuration,
    /// For a reboot.
    pub reboot: SignedDuration,
    /// For short steps: the agent's first and last report of an update, a node that becomes Ready again.
    pub settle: SignedDuration,
    /// How long a node waits after its first failure.
    pub back_off_base: SignedDuration,
    /// How old a node must be before it is updated.
    pub min_node_age: SignedDuration,
    /// For how long a node that somebody else has cordoned takes a place of the limit.
    pub others_cordon: SignedDuration,
    /// Between the end of an update and the start of another.
    pub pause: SignedDuration,
    /// How much of a window must be left for an update to start.
    pub min_remaining: SignedDuration,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            exclusion: SignedDuration::ZERO,
            soak: SignedDuration::from_mins(1),
            workloads: SignedDuration::from_mins(15),
            stage: SignedDuration::from_hours(4),
            drain: SignedDuration::from_mins(15),
            reboot: SignedDuration::from_mins(30),
            settle: SignedDuration::from_mins(10),
            back_off_base: SignedDuration::from_mins(2),
            min_node_age: SignedDuration::from_mins(5),
            others_cordon: SignedDuration::from_hours(1),
            pause: SignedDuration::ZERO,
            min_remaining: SignedDuration::ZERO,
        }
    }
}

/// After how many failed nodes a version is halted; `None` = never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureBudget {
    /// While no node has reached it.
    pub unproven: Option<u64>,
    /// Once a node has reached it.
    pub proven: Option<u64>,
}

impl FailureBudget {
    /// A version is halted by the first failure, or by the second once a node has reached it.
    pub const DEFAULT: Self = Self { unproven: Some(1), proven: Some(2) };
}

impl Default for FailureBudget {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How many nodes may be updated at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// That many.
    Nodes(u64),
    /// That percentage of the labelled nodes, rounded down, but at least one.
    Percent(u64),
    /// Any number. The ledger has room for so many slots all the same: [`SLOTS_MAX`](brupop_api::crds::SLOTS_MAX).
    Unlimited,
}

impl Default for Limit {
    fn default() -> Self {
        Self::Nodes(1)
    }
}

impl Limit {
    /// The limit as a number of nodes, in a fleet with `labelled` labelled nodes.
    pub fn of(self, labelled: u64) -> u64 {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::Percent(percent) => (labelled.saturating_mul(percent) / 100).max(1),
            Self::Unlimited => u64::MAX,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| digits.parse::<u64>().ok().filter(|number| *number >= 1);
        match (text, text.strip_suffix('%')) {
            ("unlimited", _) => Some(Self::Unlimited),
            (_, Some(digits)) => number(digits).filter(|percent| *percent <= 100).map(Self::Percent),
            (digits, None) => number(digits).map(Self::Nodes),
        }
        .ok_or_else(|| {
            "write an integer from 1 such as 2, a percentage from 1% to 100% such as 10%, or unlimited"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_counted() {
        for (text, nodes, limit) in [
            ("3", 100, 3),
            ("10%", 100, 10),
            ("10%", 19, 1),
            ("10%", 0, 1),
            ("100%", 7, 7),
            ("10%", 50_000, 5_000),
            ("unlimited", 7, u64::MAX),
            ("100000", 7, 100_000),
        ] {
            assert_eq!(text.parse::<Limit>().unwrap().of(nodes), limit, "{text} of {nodes}");
        }
    }
}
