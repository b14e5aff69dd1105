//! Pools as decisions see them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{age, order};
use crate::cluster::{Cluster, WatchedPool};
use crate::facts::{ClosedGate, PoolFacts, Pools};
use crate::known::{Known, KnownPool, Owner, POOLS_MAX};
use crate::pool::{GateState, Rules};
use crate::window::Starts;

/// Why a pool starts nothing before its windows have been evaluated.
const NOT_LOOKED_AT: &str = "the clock was not looked at yet";
/// Why the pools after the first [`POOLS_MAX`] start nothing.
pub(crate) const TOO_MANY: &str = "there are more than 128 pools, and the first 128 by name are heeded; put nodes that need the same \
                        into one pool";

/// The pools as decisions see them, sorted by name, and the earliest time at which the clock alone changes one of them. One
/// at which nobody has looked holds its nodes.
pub fn pools_at<'a>(cluster: &'a Cluster, known: &'a Known, now: Timestamp) -> Pools<'a> {
    static UNKNOWN: KnownPool = KnownPool::UNKNOWN;
    let mut nodes = vec![0; cluster.pools.len()];
    for known in known.owners.values() {
        if let Owner::Pool(index) = known.owner
            && let Some(count) = nodes.get_mut(index)
        {
            *count += u64::from(known.node.facts.labelled);
        }
    }
    let misplaced = order::misplaced(&cluster.pools);
    let pools = cluster.pools.iter().zip(nodes).enumerate();
    let facts = pools.map(|(nth, ((name, pool), nodes))| {
        let misplaced = if nth < POOLS_MAX { misplaced.get(name.as_str()).copied() } else { Some(TOO_MANY) };
        facts(pool, known.pools.get(name).unwrap_or(&UNKNOWN), nodes, misplaced)
    });
    let mut all: Vec<_> = facts.collect();
    let heeded = all.len().min(POOLS_MAX);
    let status = cluster.status();
    let by_order = order::apply(&mut all[..heeded], status.map(|status| &status.versions), now);
    let by_age = age::apply(&mut all[..heeded], status.map(|status| &status.seen), now);
    let by_clock = known.pools.values().filter_map(|pool| pool.at.as_ref()?.until).min();
    Pools { all, next: [by_order, by_age, by_clock].into_iter().flatten().min() }
}

/// The pool as decisions see it, with this number of opted-in nodes. `misplaced` says why its place among the others is
/// invalid, if it is.
fn facts<'a>(
    pool: &'a WatchedPool,
    known: &'a KnownPool,
    nodes: u64,
    misplaced: Option<&'static str>,
) -> PoolFacts<'a> {
    let (rules, at) = (pool.rules(), known.at.as_ref());
    let too_short = at.and_then(|at| at.too_short.as_deref());
    let invalid = known.invalid.as_deref().or(misplaced).or(too_short);
    let starts = |of: Option<Starts<'static>>| match (invalid, of) {
        (None, Some(starts)) => starts,
        (why, _) => Starts::Invalid(why.unwrap_or(NOT_LOOKED_AT)),
    };
    PoolFacts {
        name: pool.item.name(),
        nodes,
        limit: rules.map_or(1, |rules| rules.limit(nodes)),
        one_zone_at_a_time: rules.is_some_and(Rules::one_zone_at_a_time),
        starts: starts(at.map(|at| at.starts)),
        goes_on: starts(at.map(|at| at.goes_on)),
        has_gates: !pool.gates().is_empty(),
        gate: closed_gate(pool, &known.gates),
        next_window: at.and_then(|at| at.next_window),
        rules,
        waits_for: BTreeMap::new(),
        ripens: BTreeMap::new(),
    }
}

/// The first of its gates that is closed; or else of which nobody knows, for long or for now.
fn closed_gate<'a>(pool: &'a WatchedPool, states: &[GateState]) -> Option<ClosedGate<'a>> {
    let states = states.iter().copied().chain(std::iter::repeat(GateState::Unknown));
    let of = |wanted: GateState| {
        let mut gates = pool.gates().iter().zip(states.clone());
        gates.find(|(_, state)| *state == wanted).map(|(gate, _)| gate.name.as_str())
    };
    let unknown = || of(GateState::Unknown).map(ClosedGate::Unknown);
    let awaited = || of(GateState::Awaited).map(ClosedGate::Awaited);
    of(GateState::Closed).map(ClosedGate::Closed).or_else(unknown).or_else(awaited)
}
