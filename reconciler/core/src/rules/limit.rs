//! How many nodes of a pool, or of the fleet, may be unavailable at once.

use std::str::FromStr;

/// How many nodes may be updated at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// That many.
    Nodes(u64),
    /// That percentage of the nodes that it limits, rounded down, but at least one.
    Percent(u64),
    /// Any number. The ledger still has no more than [`SLOTS_MAX`](brupop_api::crds::SLOTS_MAX) slots.
    Unlimited,
}

impl Default for Limit {
    fn default() -> Self {
        Self::Nodes(1)
    }
}

impl Limit {
    /// Computes the limit as a number of nodes, where it limits `all`.
    pub fn of(self, all: u64) -> u64 {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::Percent(percent) => (all.saturating_mul(percent) / 100).max(1),
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
            assert_eq!(
                text.parse::<Limit>().unwrap().of(nodes),
                limit,
                "{text} of {nodes}"
            );
        }
    }
}
