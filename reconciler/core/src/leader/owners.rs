//! Which pool owns a node: of those that select it, the one of the highest priority.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::LeaderState;
use super::misplaced::misplaced;
use crate::cluster::{Cluster, WatchedPool};
use crate::facts::Owner;
use crate::policy::Policy;
use crate::rules::{GateQuery, GateState, Rules};
use crate::window::{Span, Starts};

/// What is known of a pool, as long as no pool's spec changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPool {
    /// Why it cannot be understood, if so.
    pub(crate) invalid: Option<String>,
    /// Why its place among the others is invalid, if so.
    pub(crate) misplaced: Option<String>,
    /// What the clock says of its rules; worked out again only when that changes.
    pub(crate) at: Option<AtTime>,
    /// How its gates are, in their order; unknown where there is nothing.
    pub(crate) gates: Vec<GateState>,
}

/// What the clock says of a pool's rules, for a span of time.
#[derive(Clone, Debug)]
pub(crate) struct AtTime {
    /// When that began to hold, or earlier times were not looked at.
    from: Timestamp,
    /// When it changes.
    pub(crate) until: Option<Timestamp>,
    pub(crate) starts: Starts<'static>,
    pub(crate) next_window: Option<Span>,
}

impl AtTime {
    /// Of these rules.
    fn of(rules: &Rules, now: Timestamp) -> Self {
        let window = rules.window(now);
        Self {
            from: now,
            until: rules.next_change(now, window),
            starts: rules.starts(now, window),
            next_window: window,
        }
    }

    fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }
}

impl KnownPool {
    /// A pool at which nobody has looked.
    pub(crate) const UNKNOWN: Self = Self {
        invalid: None,
        misplaced: None,
        at: None,
        gates: vec![],
    };

    /// Looks at the clock, if what it says may have changed since the last time.
    fn look_at_clock(&mut self, pool: &WatchedPool, now: Timestamp) {
        if !self.at.as_ref().is_some_and(|at| at.holds(now)) {
            self.at = pool.rules().map(|rules| AtTime::of(rules, now));
        }
    }
}

impl LeaderState {
    /// Finds the owners of nodes that are new or have changed, and of all once a pool has changed; and looks at the clock for each
    /// pool, the default pool among them.
    pub fn prepare_pools(&mut self, cluster: &mut Cluster, now: Timestamp, policy: &Policy) {
        if self.pools_revision != cluster.pools_revision {
            let mut misplaced = misplaced(&cluster.pools);
            let known = |(name, pool): (&String, &WatchedPool)| {
                let known = KnownPool {
                    invalid: pool.invalid(),
                    misplaced: misplaced.remove(name.as_str()),
                    ..KnownPool::UNKNOWN
                };
                (name.clone(), known)
            };
            self.pools = cluster.pools.iter().map(known).collect();
            self.pools_revision = cluster.pools_revision;
            for record in cluster.records.values_mut() {
                record.led.owner = None;
            }
        }
        if !self.default_pool.as_ref().is_some_and(|at| at.holds(now)) {
            self.default_pool = Some(AtTime::of(&policy.default_pool, now));
        }
        for (known, pool) in self.pools.values_mut().zip(cluster.pools.values()) {
            known.look_at_clock(pool, now);
        }
        for record in cluster.records.values_mut() {
            if let (None, Some(node)) = (record.led.owner, &record.node) {
                record.led.owner = Some(owner(&node.all_labels, &cluster.pools));
            }
        }
    }

    /// Whether this is what is known of these pools.
    pub fn is_of(&self, cluster: &Cluster) -> bool {
        self.pools_revision == cluster.pools_revision
    }

    /// Records for each pool which of its gates is not open.
    pub fn record_gates(&mut self, cluster: &Cluster, state: impl Fn(&GateQuery) -> GateState) {
        for (known, pool) in self.pools.values_mut().zip(cluster.pools.values()) {
            known.gates = pool.gates().iter().map(|gate| state(&gate.query)).collect();
        }
    }
}

/// The rules of each pool; where a pool has none, and for nodes that no pool may update, those of the default pool.
#[derive(Clone, Debug)]
pub struct RulesByOwner<'a> {
    of_pools: Vec<&'a Rules>,
    default: &'a Rules,
}

impl<'a> RulesByOwner<'a> {
    /// Of these pools, beside the default pool of this policy.
    pub fn new(cluster: &'a Cluster, policy: &'a Policy) -> Self {
        let default = &policy.default_pool;
        let of_pools = cluster
            .pools
            .values()
            .map(|pool| pool.rules().unwrap_or(default));
        Self {
            of_pools: of_pools.collect(),
            default,
        }
    }

    /// For a node of this owner.
    pub fn of(&self, owner: Option<Owner>) -> &'a Rules {
        match owner {
            Some(Owner::Pool(index)) => self.of_pools.get(index).unwrap_or(&self.default),
            _ => self.default,
        }
    }
}

/// The owner of a node with these labels.
fn owner(labels: &BTreeMap<String, String>, pools: &BTreeMap<String, WatchedPool>) -> Owner {
    let mut selecting = pools
        .values()
        .enumerate()
        .filter(|(_, pool)| pool.selects(labels));
    let Some(first) = selecting.next() else {
        return Owner::DefaultPool;
    };
    let (mut highest, mut tied) = (first, None);
    for pool in selecting {
        match pool.1.priority().cmp(&highest.1.priority()) {
            std::cmp::Ordering::Greater => (highest, tied) = (pool, None),
            std::cmp::Ordering::Equal => tied = tied.or(Some(pool)),
            std::cmp::Ordering::Less => {}
        }
    }
    match tied {
        None => Owner::Pool(highest.0),
        Some((other, _)) => Owner::Conflict(highest.0, other),
    }
}

#[cfg(test)]
mod tests;
