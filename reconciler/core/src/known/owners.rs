//! Which pool owns a node: of those that select it, the one of the highest priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Known;
use super::misplaced::misplaced;
use crate::cluster::{Cluster, WatchedPool};
use crate::objects::WatchedNode;
use crate::policy::Policy;
use crate::rules::{GateQuery, GateState, Rules};
use crate::window::{Span, Starts};

/// Maximum number of pools that start updates, the first by name. The others hold the nodes that they own.
pub(crate) const POOLS_MAX: usize = 128;
/// Maximum number of requirements of selectors that are compared with labels at once, but for at least one node.
const COMPARED_AT_ONCE: usize = 10_000;

/// Which pool owns a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// No `BottlerocketPool` selects it.
    Nobody,
    /// The pool with this index, in the order of their names.
    Pool(usize),
    /// These have the same priority.
    Conflict(String),
}

/// The owner of a Node, as long as neither the Node nor a pool says anything else.
#[derive(Clone, Debug)]
pub(crate) struct KnownOwner {
    pub(crate) owner: Owner,
    /// The Node, or one that says the same.
    pub(crate) node: Arc<WatchedNode>,
}

/// What is known of a pool, as long as it says the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPool {
    /// See [`WatchedPool::said`].
    said: u64,
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
        said: 0,
        invalid: None,
        misplaced: None,
        at: None,
        gates: vec![],
    };
}

impl KnownOwner {
    /// Does it hold for this Node?
    fn holds(&mut self, node: &Arc<WatchedNode>) -> bool {
        let same = Arc::ptr_eq(&self.node, node) || self.node.same_facts(node);
        if same {
            self.node = Arc::clone(node);
        }
        same
    }
}

impl Known {
    /// What follows from the cluster and the time alone, however long it takes to find out.
    pub fn of(cluster: &Cluster, now: Timestamp, policy: &Policy) -> Self {
        let mut known = Self::default();
        while !known.prepare_pools(cluster, now, policy) {}
        known.note_cordons(cluster, now);
        known
    }

    /// Finds the owners of nodes that are new, or of which something has changed, or of all once a pool has changed; and looks at
    /// the clock for each pool, the default pool among them.
    ///
    /// However many pools there are, and whatever they say, it does a bounded part of this at once. Returns whether all is
    /// done; until then nothing may be decided.
    pub fn prepare_pools(&mut self, cluster: &Cluster, now: Timestamp, policy: &Policy) -> bool {
        if self.said != cluster.said {
            let mut before = std::mem::take(&mut self.pools);
            let mut misplaced = misplaced(&cluster.pools);
            let pools = cluster.pools.iter().map(|(name, pool)| {
                let said = pool.said;
                let same = before.remove(name).filter(|before| before.said == said);
                let known = same.unwrap_or_else(|| KnownPool {
                    said,
                    invalid: pool.invalid(),
                    ..KnownPool::default()
                });
                (
                    name.clone(),
                    KnownPool {
                        misplaced: misplaced.remove(name.as_str()),
                        ..known
                    },
                )
            });
            self.pools = pools.collect();
            self.owners.clear();
            self.said = cluster.said;
        }
        if !self.default_pool.as_ref().is_some_and(|at| at.holds(now)) {
            self.default_pool = Some(AtTime::of(&policy.default_pool, now));
        }
        for (known, pool) in self
            .pools
            .values_mut()
            .zip(cluster.pools.values())
            .take(POOLS_MAX)
        {
            if !known.at.as_ref().is_some_and(|at| at.holds(now)) {
                known.at = pool.rules().map(|rules| AtTime::of(rules, now));
            }
        }
        self.find_owners(cluster)
    }

    /// Finds owners that are not known. Returns whether all are.
    fn find_owners(&mut self, cluster: &Cluster) -> bool {
        let requirements =
            |pool: &WatchedPool| 1 + pool.item.ok().map_or(0, |pool| pool.requirements);
        let for_each: usize = cluster.pools.values().map(requirements).sum();
        let at_once = COMPARED_AT_ONCE
            .checked_div(for_each)
            .map_or(usize::MAX, |nodes| nodes.max(1));
        let mut owners = self.owners.iter_mut().peekable();
        let (mut without, mut gone) = (vec![], false);
        for (name, node) in cluster.nodes() {
            while owners.next_if(|(known, _)| known.as_str() < name).is_some() {
                gone = true;
            }
            let known = owners.next_if(|(known, _)| known.as_str() == name);
            if !known.is_some_and(|(_, known)| known.holds(node)) {
                without.push((name, node));
            }
        }
        if gone || owners.next().is_some() {
            self.owners.retain(|name, _| cluster.node(name).is_some());
        }
        let all_at_once = without.len() <= at_once;
        for (name, node) in without.into_iter().take(at_once) {
            let owner = owner(node.all_labels(), &cluster.pools);
            self.owners.insert(
                name.to_owned(),
                KnownOwner {
                    owner,
                    node: Arc::clone(node),
                },
            );
        }
        all_at_once
    }

    /// Is this what is known of these pools?
    pub fn is_of(&self, cluster: &Cluster) -> bool {
        self.said == cluster.said
    }

    /// Which pool owns this node.
    pub fn owner(&self, name: &str) -> Option<&Owner> {
        self.owners.get(name).map(|known| &known.owner)
    }

    /// Notes for each pool which of its gates is not open.
    pub fn note_gates(&mut self, cluster: &Cluster, state: impl Fn(&GateQuery) -> GateState) {
        for (known, pool) in self
            .pools
            .values_mut()
            .zip(cluster.pools.values())
            .take(POOLS_MAX)
        {
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
    pub fn of(&self, owner: Option<&Owner>) -> &'a Rules {
        match owner {
            Some(Owner::Pool(index)) => self.of_pools.get(*index).unwrap_or(&self.default),
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
        return Owner::Nobody;
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
        Some((_, other)) => Owner::Conflict(format!(
            "{} and {}",
            highest.1.item.name(),
            other.item.name()
        )),
    }
}

#[cfg(test)]
mod tests;
