//! What decisions see of pools.

use std::collections::BTreeMap;

use brupop_api::names::DEFAULT_POOL;
use jiff::Timestamp;

use super::Release;
use crate::rules::{GateState, Rules};
use crate::times::Ahead;
use crate::window::{Span, Starts, Until};

/// A pool, as decisions see it.
#[derive(Clone, Debug)]
pub struct PoolFacts<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// How many opted-in nodes it owns.
    pub nodes: u64,
    /// How many of its nodes may be unavailable at once.
    pub limit: u64,
    /// Whether it keeps two of its zones from being unavailable together.
    pub one_zone_at_a_time: bool,
    /// Whether it lets updates start now, and go on to the cordon.
    pub starts: Starts<'a>,
    /// Whether it has gates.
    pub has_gates: bool,
    /// Of its gates one that is not open, and its name.
    pub gate: Option<(GateState, &'a str)>,
    /// The window that is open, or the next one.
    pub next_window: Option<Span>,
    /// Its rules, if they can be understood.
    pub rules: Option<&'a Rules>,
    /// For each version with which a pool is done: the first of the pools that go first and are not done with it for long
    /// enough; `None` = all are.
    pub waits_for: BTreeMap<&'a str, Option<FirstPool<'a>>>,
    /// A pool that goes first, by name, if there is none of this name: it is never done.
    pub missing: Option<&'a str>,
    /// For each version and variant that nodes have reported, if the pool lets versions ripen: until when; `None` = it is old
    /// enough.
    pub ripens: BTreeMap<(&'a str, &'a str), Option<Until>>,
}

impl<'a> PoolFacts<'a> {
    /// A default pool with one node, in which one may be updated at any time.
    pub const DEFAULT: Self = Self {
        name: DEFAULT_POOL,
        nodes: 1,
        limit: 1,
        one_zone_at_a_time: false,
        starts: Starts::Open,
        has_gates: false,
        gate: None,
        next_window: None,
        rules: None,
        waits_for: BTreeMap::new(),
        missing: None,
        ripens: BTreeMap::new(),
    };

    /// The pool that has to be done with this version first, if there is one that is not.
    pub(crate) fn waits_for(&self, version: &str) -> Option<FirstPool<'a>> {
        if let Some(pool) = self.missing {
            return Some(FirstPool {
                pool,
                standing: FirstPoolStanding::Missing,
            });
        }
        let first = || {
            let pool = self.rules?.depends_on.first()?.0.as_str();
            Some(FirstPool {
                pool,
                standing: FirstPoolStanding::NotDone,
            })
        };
        self.waits_for.get(version).copied().unwrap_or_else(first)
    }

    /// Until when this version is too young for nodes of this variant in the pool, if it is.
    pub(crate) fn ripens(&self, (version, variant): Release<'_>) -> Option<Until> {
        let unknown = || self.rules?.min_age.is_positive().then_some(Until::Unknown);
        self.ripens
            .get(&(version, variant))
            .copied()
            .unwrap_or_else(unknown)
    }
}

/// A pool that goes first, and is not done for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FirstPool<'a> {
    /// Its name.
    pub pool: &'a str,
    /// Why others still wait for it.
    pub standing: FirstPoolStanding<'a>,
}

/// Why others still wait for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FirstPoolStanding<'a> {
    /// There is no pool of this name.
    Missing,
    NotDone,
    /// It owns no node, so it is never done.
    Empty,
    /// A node of it runs an older version and does not ask for this one.
    Behind(&'a str),
    /// It is done, and has been for long enough at this time.
    Soaking(Timestamp),
}

/// The pools at one time.
#[derive(Clone, Debug)]
pub struct Pools<'a> {
    /// The pool of nodes that no `BottlerocketPool` selects.
    pub default: PoolFacts<'a>,
    /// All others, sorted by name.
    pub all: Vec<PoolFacts<'a>>,
    /// How many nodes may be unavailable at once in all of them.
    pub ceiling: u64,
    /// The earliest time at which the clock alone changes one of them.
    pub next: Option<Timestamp>,
    /// The times that were ahead when this leader first saw them.
    pub ahead: Ahead,
}
