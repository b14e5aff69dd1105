//! Pools as decisions see them.

use std::cmp::Reverse;

use brupop_api::fleet::UnpooledNodes;
use jiff::Timestamp;

use super::{age, order, unpooled};
use crate::cluster::{Cluster, WatchedPool};
use crate::deadlines::Clock;
use crate::facts::{PoolFacts, Pools};
use crate::known::{Known, KnownPool, Owner, POOLS_MAX};
use crate::policy::Policy;
use crate::rules::{GateState, Rules, limit};
use crate::window::Starts;

/// Why a pool starts nothing before its windows have been evaluated.
const NOT_LOOKED_AT: &str = "the clock was not looked at yet";
/// Why the pools after the first [`POOLS_MAX`] start nothing.
pub(crate) const TOO_MANY: &str = "there are more than 128 pools, and only the first 128 by name count; put nodes that need the same \
                        into one pool";

/// The pools as decisions see them, sorted by name, and the earliest time at which the clock alone changes one of them. One
/// at which nobody has looked holds its nodes.
pub fn pools_at<'a>(
    cluster: &'a Cluster,
    known: &'a Known,
    policy: &'a Policy,
    now: Timestamp,
) -> Pools<'a> {
    static UNKNOWN: KnownPool = KnownPool::UNKNOWN;
    let mut nodes = vec![0; cluster.pools.len()];
    let (mut labelled, mut unselected) = (0, 0);
    for known in known
        .owners
        .values()
        .filter(|known| known.node.facts.labelled)
    {
        labelled += 1;
        match known.owner {
            Owner::Pool(index) => {
                if let Some(count) = nodes.get_mut(index) {
                    *count += 1;
                }
            }
            Owner::Nobody => unselected += 1,
            Owner::Conflict(_) => {}
        }
    }
    let ceiling = ceiling(cluster, labelled);
    let held = unpooled(cluster) == UnpooledNodes::Hold;
    let default = default_pool(known, policy, if held { 0 } else { unselected });
    let pools = cluster.pools.iter().zip(nodes).enumerate();
    let facts = pools.map(|(nth, ((name, pool), nodes))| {
        let known = known.pools.get(name).unwrap_or(&UNKNOWN);
        let misplaced = if nth < POOLS_MAX {
            known.misplaced.as_deref()
        } else {
            Some(TOO_MANY)
        };
        let facts = facts(pool, known, nodes, misplaced);
        let mut after = facts.rules.into_iter().flat_map(|rules| &rules.depends_on);
        let missing = after.find(|(first, _)| !cluster.pools.contains_key(first));
        PoolFacts {
            missing: missing.map(|(first, _)| first.as_str()),
            ..facts
        }
    });
    let mut all: Vec<_> = facts.collect();
    let counted = all.len().min(POOLS_MAX);
    let ledger = cluster.ledger();
    let mut clock = Clock::new(now, &known.ahead);
    order::apply(
        &mut all[..counted],
        ledger.map(|ledger| &ledger.versions),
        &mut clock,
    );
    age::apply(
        &mut all[..counted],
        ledger.map(|ledger| &ledger.seen),
        &mut clock,
    );
    let at = known.pools.values().filter_map(|pool| pool.at.as_ref());
    clock.wake_at(
        at.chain(&known.default_pool)
            .filter_map(|at| at.until)
            .min(),
    );
    Pools {
        default,
        all,
        ceiling: ceiling.unwrap_or(u64::MAX),
        next: clock.next,
        ahead: clock.ahead,
    }
}

/// The most nodes that may be unavailable in the whole fleet of `labelled` nodes, if the fleet says so.
fn ceiling(cluster: &Cluster, labelled: u64) -> Option<u64> {
    let text = cluster.fleet()?.object.spec.max_unavailable.as_ref()?;
    // The schema lets nothing else pass; the lowest limit is the safe one.
    Some(limit(text).unwrap_or_default().of(labelled))
}

/// The default pool with this number of opted-in nodes.
fn default_pool<'a>(known: &Known, policy: &'a Policy, nodes: u64) -> PoolFacts<'a> {
    let (rules, at) = (&policy.default_pool, known.default_pool.as_ref());
    let not_looked_at = Starts::Invalid(NOT_LOOKED_AT);
    PoolFacts {
        nodes,
        limit: rules.limit.of(nodes),
        starts: at.map_or(not_looked_at, |at| at.starts),
        goes_on: at.map_or(not_looked_at, |at| at.goes_on),
        next_window: at.and_then(|at| at.next_window),
        rules: Some(rules),
        ..PoolFacts::DEFAULT
    }
}

/// The pool as decisions see it, with this number of opted-in nodes. `misplaced` says why its place among the others is
/// invalid, if it is.
fn facts<'a>(
    pool: &'a WatchedPool,
    known: &'a KnownPool,
    nodes: u64,
    misplaced: Option<&'a str>,
) -> PoolFacts<'a> {
    let (rules, at) = (pool.rules(), known.at.as_ref());
    let invalid = known
        .invalid
        .as_deref()
        .or(misplaced)
        .or(known.too_short.as_deref());
    let starts = |of: Option<Starts<'static>>| match (invalid, of) {
        (None, Some(starts)) => starts,
        (why, _) => Starts::Invalid(why.unwrap_or(NOT_LOOKED_AT)),
    };
    PoolFacts {
        name: pool.item.name(),
        nodes,
        limit: rules.map_or(1, |rules| rules.limit.of(nodes)),
        one_zone_at_a_time: rules.is_some_and(Rules::one_zone_at_a_time),
        starts: starts(at.map(|at| at.starts)),
        goes_on: starts(at.map(|at| at.goes_on)),
        has_gates: !pool.gates().is_empty(),
        gate: closed_gate(pool, &known.gates),
        next_window: at.and_then(|at| at.next_window),
        rules,
        ..PoolFacts::DEFAULT
    }
}

/// Of its gates that are not open the worst one, and of these the first. Nobody knows of one that was not asked.
fn closed_gate<'a>(pool: &'a WatchedPool, states: &[GateState]) -> Option<(GateState, &'a str)> {
    let states = states
        .iter()
        .copied()
        .chain(std::iter::repeat(GateState::Unknown));
    let gates = states.zip(pool.gates().iter().map(|gate| gate.name.as_str()));
    gates
        .filter(|(state, _)| *state != GateState::Open)
        .min_by_key(|(state, _)| Reverse(*state))
}
