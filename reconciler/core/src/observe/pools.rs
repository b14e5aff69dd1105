//! Pools as decisions see them.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::{age, order};
use crate::cluster::{Cluster, WatchedPool};
use crate::deadlines::Clock;
use crate::facts::{Owner, PoolFacts, Pools};
use crate::leader::{KnownPool, LeaderState};
use crate::policy::Policy;
use crate::rules::{GateState, Rules, limit};
use crate::window::Starts;

/// Why a pool starts nothing before its windows have been evaluated.
const NOT_LOOKED_AT: &str = "the clock was not looked at yet";
/// The pools as decisions see them, sorted by name, and the earliest time at which the clock alone changes one of them. One
/// at which nobody has looked holds its nodes.
pub fn pools_at<'a>(
    cluster: &'a Cluster,
    leader: &'a LeaderState,
    policy: &'a Policy,
    now: Timestamp,
) -> Pools<'a> {
    static UNKNOWN: KnownPool = KnownPool::UNKNOWN;
    let mut nodes = vec![0; cluster.pools.len()];
    let (mut labelled, mut unselected) = (0, 0);
    for record in cluster.records.values() {
        if !record.node.as_ref().is_some_and(|node| node.labelled) {
            continue;
        }
        labelled += 1;
        match record.led.owner.unwrap_or(Owner::Unknown) {
            Owner::Pool(index) => {
                if let Some(count) = nodes.get_mut(index) {
                    *count += 1;
                }
            }
            Owner::DefaultPool => unselected += 1,
            Owner::Conflict(..) | Owner::Unknown => {}
        }
    }
    let ceiling = ceiling(cluster, labelled);
    let default = default_pool(leader, policy, unselected);
    let all_read = cluster.pool_left_out.is_none();
    let pools = cluster.pools.iter().zip(nodes);
    let facts = pools.map(|((name, pool), nodes)| {
        let known = leader.pools.get(name).unwrap_or(&UNKNOWN);
        let facts = facts(pool, known, nodes);
        let mut after = facts.rules.into_iter().flat_map(|rules| &rules.depends_on);
        let missing = after.find(|(first, _)| all_read && !cluster.pools.contains_key(first));
        PoolFacts {
            missing: missing.map(|(first, _)| first.as_str()),
            ..facts
        }
    });
    let mut all: Vec<_> = facts.collect();
    let mut clock = Clock::new(now, &leader.ahead);
    if let Some(ledger) = cluster.ledger() {
        order::apply(&mut all, ledger, &mut clock);
        age::apply(&mut all, &ledger.versions, &mut clock);
    }
    let at = leader.pools.values().filter_map(|pool| pool.at.as_ref());
    clock.wake_at(
        at.chain(&leader.default_pool)
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
fn default_pool<'a>(leader: &LeaderState, policy: &'a Policy, nodes: u64) -> PoolFacts<'a> {
    let (rules, at) = (&policy.default_pool, leader.default_pool.as_ref());
    let not_looked_at = Starts::Invalid(NOT_LOOKED_AT);
    PoolFacts {
        nodes,
        limit: rules.limit.of(nodes),
        starts: at.map_or(not_looked_at, |at| at.starts),
        next_window: at.and_then(|at| at.next_window),
        rules: Some(rules),
        ..PoolFacts::DEFAULT
    }
}

/// The pool as decisions see it, with this number of opted-in nodes.
fn facts<'a>(pool: &'a WatchedPool, known: &'a KnownPool, nodes: u64) -> PoolFacts<'a> {
    let (rules, at) = (pool.rules(), known.at.as_ref());
    let invalid = known.invalid.as_deref().or(known.misplaced.as_deref());
    let starts = match (invalid, at) {
        (None, Some(at)) => at.starts,
        (why, _) => Starts::Invalid(why.unwrap_or(NOT_LOOKED_AT)),
    };
    PoolFacts {
        name: pool.item.name(),
        nodes,
        limit: rules.map_or(1, |rules| rules.limit.of(nodes)),
        one_zone_at_a_time: rules.is_some_and(Rules::one_zone_at_a_time),
        starts,
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
