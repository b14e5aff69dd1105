//! A leader's own knowledge beside the cluster and its nodes: which pool owns a node, what the clock says of pools, and what the shell
//! reports. It ends with the leadership. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brupop_api::crds::DONE_POOLS_MAX;
use brupop_api::pool::PrometheusGate;
use jiff::Timestamp;

use crate::cluster::Cluster;
pub use crate::objects::Ahead;
use crate::pool::{Owner, Pool};
use crate::rules::{GateState, Policy, Rules};
use crate::window::{Span, Starts};

/// A leader's own knowledge of the fleet and its pools.
#[derive(Clone, Debug, Default)]
pub struct LeaderState {
    /// The term in which it leads.
    pub term: u64,
    /// Whether our own admission rules were seen to be in force.
    pub enforced: bool,
    /// Whether no other operator was seen here.
    pub alone: bool,
    /// Name of the node that it runs on, if it is known.
    pub own_node: Option<String>,
    /// Whether this reconciler may delete pods that are left at the drain's deadline.
    pub may_force: bool,
    /// The state of pools and their gates, by name of the pool.
    pub(crate) pools: BTreeMap<String, PoolState>,
    /// The state of the default pool at this time.
    pub(crate) default_pool: PoolState,
    /// The revision of the pools from which owners and pools were computed.
    pub(crate) pools_revision: u64,
    /// The times that were ahead when this leader first saw them.
    pub ahead: Ahead,
}

impl LeaderState {
    /// A leader of this term, on this node, that has found our rules in force and no other operator.
    pub fn new(term: u64, own_node: &str) -> Self {
        Self {
            term,
            enforced: true,
            alone: true,
            own_node: Some(own_node.to_owned()),
            ..Self::default()
        }
    }
}

/// The reason why a pool starts nothing before its windows have been evaluated.
pub(crate) const NOT_LOOKED_AT: &str = "the clock was not looked at yet";

/// The state of a pool, valid as long as no pool's spec changes. What follows from the clock is computed again only when it changes.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    /// The reason why it, or its place among the others, cannot be understood, if so.
    pub(crate) invalid: Option<String>,
    /// When that began to hold which follows from the clock, or earlier times were not looked at.
    from: Timestamp,
    pub(crate) until: Option<Timestamp>,
    pub(crate) starts: Starts<'static>,
    pub(crate) next_window: Option<Span>,
    /// The states of its gates, in their order; unknown where there is none.
    pub(crate) gates: Vec<GateState>,
}

impl Default for PoolState {
    fn default() -> Self {
        Self {
            invalid: None,
            from: Timestamp::MAX,
            until: None,
            starts: Starts::Invalid(NOT_LOOKED_AT),
            next_window: None,
            gates: vec![],
        }
    }
}

impl PoolState {
    fn look(&mut self, rules: &Rules, now: Timestamp) {
        if self.from <= now && self.until.is_none_or(|until| now < until) {
            return;
        }
        let window = rules.window(now);
        (self.from, self.until) = (now, rules.next_change(now, window));
        (self.starts, self.next_window) = (rules.starts(now, window), window);
    }
}

impl LeaderState {
    /// Finds the owners of nodes that are new or have changed, and of all once a pool has changed; records which are cordoned; and
    /// looks at the clock for each pool, the default pool among them.
    pub fn prepare(&mut self, cluster: &mut Cluster, now: Timestamp, policy: &Policy) {
        if self.pools_revision != cluster.pools_revision {
            let mut misplaced = misplaced(&cluster.pools);
            let known = |(name, pool): (&String, &Pool)| {
                let invalid = pool.rules.as_ref().err().cloned();
                let state = PoolState {
                    invalid: invalid.or_else(|| misplaced.remove(name.as_str())),
                    ..PoolState::default()
                };
                (name.clone(), state)
            };
            self.pools = cluster.pools.iter().map(known).collect();
            self.pools_revision = cluster.pools_revision;
            for record in cluster.records.values_mut() {
                record.led.owner = None;
            }
        }
        self.default_pool.look(&policy.default_pool, now);
        for (known, pool) in self.pools.values_mut().zip(cluster.pools.values()) {
            if let Some(rules) = pool.rules() {
                known.look(rules, now);
            }
        }
        let unlabelled = BTreeMap::new();
        for record in cluster.records.values_mut() {
            let (led, node) = (&mut record.led, record.node.as_deref());
            if let (None, Some(node)) = (led.owner, node) {
                let labels = node.labels.as_ref().unwrap_or(&unlabelled);
                led.owner = Some(owner(labels, &cluster.pools));
            }
            let cordoned = node.filter(|node| node.unschedulable);
            led.cordoned = cordoned.map(|node| {
                // A new leader reads it from the taint.
                let tainted = node.cordoned_at.filter(|since| *since <= now);
                tainted.or(led.cordoned).unwrap_or(now)
            });
        }
    }

    /// Whether this is what is known of these pools.
    pub fn is_of(&self, cluster: &Cluster) -> bool {
        self.pools_revision == cluster.pools_revision
    }

    /// Records for each pool which of its gates is not open.
    pub fn record_gates(
        &mut self,
        cluster: &Cluster,
        state: impl Fn(&PrometheusGate) -> GateState,
    ) {
        for (known, pool) in self.pools.values_mut().zip(cluster.pools.values()) {
            known.gates = pool
                .gates()
                .iter()
                .map(|gate| state(&gate.prometheus))
                .collect();
        }
    }
}

impl Cluster {
    /// The rules for a node of this owner: those of its pool, or of the default pool where that has none, or no pool may update it.
    pub fn rules<'a>(&'a self, owner: Option<Owner>, policy: &'a Policy) -> &'a Rules {
        let pool = match owner {
            Some(Owner::Pool(index)) => self.pools.values().nth(index),
            _ => None,
        };
        pool.and_then(Pool::rules).unwrap_or(&policy.default_pool)
    }
}

/// The owner of a node with these labels: of the pools that select it, the one of the highest priority.
fn owner(labels: &BTreeMap<String, String>, pools: &BTreeMap<String, Pool>) -> Owner {
    let selecting = pools.values().enumerate();
    let selecting: Vec<_> = selecting.filter(|(_, pool)| pool.selects(labels)).collect();
    let highest = selecting.iter().map(|(_, pool)| pool.priority).max();
    let mut first = selecting
        .iter()
        .filter(|(_, pool)| Some(pool.priority) == highest);
    match (first.next(), first.next()) {
        (None, _) => Owner::DefaultPool,
        (Some((index, _)), None) => Owner::Pool(*index),
        (Some((one, _)), Some((other, _))) => Owner::Conflict(*one, *other),
    }
}

/// The reason why pools that wait for each other are not understood; their names follow.
const CIRCLE: &str = "spec.dependsOn: these pools wait for each other, so none of them would ever begin; take one of them out: ";

/// The reason why a pool is not understood that comes after one of too many. The number is [`DONE_POOLS_MAX`].
const TOO_MANY: &str = "spec.dependsOn: more than 16 pools go before others, and the ledger has room for the first 16 by name; \
                        let one pool of them go first for several";

/// The pools whose `spec.dependsOn` is invalid, and why.
fn misplaced(pools: &BTreeMap<String, Pool>) -> BTreeMap<&str, String> {
    let after = |name: &str| {
        let rules = pools.get(name).and_then(Pool::rules);
        rules
            .map_or(&[][..], |rules| &rules.depends_on)
            .iter()
            .map(|(pool, _)| pool.as_str())
    };
    let known: BTreeSet<&str> = pools.keys().flat_map(|name| after(name)).collect();
    let known: BTreeSet<&str> = known.into_iter().take(DONE_POOLS_MAX).collect();
    // The shortest way from a pool back to it. Those that are too many are said to be so.
    let circle = |name: &str| {
        let mut ways = VecDeque::from_iter(known.get(name).map(|name| vec![*name]));
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for next in way.last().into_iter().flat_map(|last| after(last)) {
                let way = [&way[..], &[next]].concat();
                if next == name {
                    return Some(way);
                }
                if known.contains(next) && seen.insert(next) {
                    ways.push_back(way);
                }
            }
        }
        None
    };
    let why = |name: &str| {
        let too_many = || {
            after(name)
                .any(|pool| !known.contains(pool))
                .then(|| TOO_MANY.to_owned())
        };
        circle(name)
            .map(|way| format!("{CIRCLE}{}", way.join(" after ")))
            .or_else(too_many)
    };
    pools
        .keys()
        .filter_map(|name| Some((name.as_str(), why(name)?)))
        .collect()
}

#[cfg(test)]
mod tests;
