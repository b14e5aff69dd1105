//! Which pool owns a node: of those that select it, the one of the highest priority.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::Item;
use brupop_api::pool::BottlerocketPoolStatus;
use jiff::{SignedDuration, Timestamp};
use kube::core::SelectorExt as _;

use crate::cluster::{Cluster, Member};
use crate::facts::{PoolFacts, Pools};
use crate::observe::age;
use crate::observe::order;
use crate::policy::Durations;
use crate::pool::{Gate, GateState};
use crate::pool::{Pool, Rules, bound as bound_pools};
use crate::window::Span;
use crate::window::Starts;

/// Why a pool is not heeded before the clock was looked at for it.
const NOT_LOOKED_AT: &str = "the clock was not looked at yet";

/// So many pools are heeded, the first by name. The others hold the nodes that they own.
pub(crate) const POOLS_MAX: usize = 128;
/// Why those beyond are not heeded. The number is [`POOLS_MAX`].
const TOO_MANY: &str = "there are more than 128 pools, and the first 128 by name are heeded; put nodes that need the same \
                        into one pool";
/// At most so many pools have the clock looked at for them without a pause: windows may be many and
/// their steps, too.
const LOOKS_AT_ONCE: usize = 2;
/// Nor are more requirements of selectors compared with labels than these, but for at least one node.
const COMPARED_AT_ONCE: usize = 10_000;

/// Which pool owns a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No pool selects it.
    Nobody,
    /// The pool with this index, in the order of their names.
    Pool(usize),
    /// These have the same priority.
    Conflict(String),
}

/// A pool as it is watched, readable or not.
#[derive(Clone, Debug)]
pub struct WatchedPool {
    /// The object.
    pub item: Item<Pool>,
    /// Why it cannot be understood, if so.
    pub invalid: Option<String>,
    /// What the clock says of its rules; worked out anew only when that changes.
    at: Option<AtTime>,
    /// How its gates are, in their order; unknown where there is nothing.
    pub(crate) gate_states: Vec<GateState>,
}

/// What the clock says of a pool's rules, for a span of time.
#[derive(Clone, Debug)]
struct AtTime {
    /// When that began to hold, or earlier times were not looked at.
    from: Timestamp,
    /// When it changes.
    until: Option<Timestamp>,
    starts: Starts<'static>,
    goes_on: Starts<'static>,
    next_window: Option<Span>,
    /// Why no update would ever start, found out once.
    too_short: Option<String>,
}

impl WatchedPool {
    /// The pool in place of what was known of it, and whether it says the same: most changes of a pool are those of its status,
    /// which we write.
    fn in_place_of(before: Option<Self>, item: Item<Pool>) -> (Self, bool) {
        let says_the_same = |before: &Self| match (before.item.ok(), item.ok()) {
            (Some(before), Some(now)) => now.says_the_same(before),
            _ => false,
        };
        let same = before.filter(says_the_same).map(|before| (before.at, before.gate_states));
        let (says_the_same, (at, gate_states)) = (same.is_some(), same.unwrap_or_default());
        (Self { invalid: why_invalid(&item), item, at, gate_states }, says_the_same)
    }

    /// The status that is stored.
    pub fn stored(&self) -> Option<&BottlerocketPoolStatus> {
        self.item.ok().map(|pool| &pool.stored)
    }

    /// Does it select a node with these labels? If not even its selector can be read, nobody knows which nodes it was
    /// meant for, so it holds all.
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.item.ok().and_then(|pool| pool.selector.as_ref());
        selector.is_none_or(|selector| selector.matches(labels))
    }

    fn priority(&self) -> u64 {
        self.item.ok().map_or(u64::MAX, |pool| pool.priority)
    }

    fn rules(&self) -> Option<&Rules> {
        self.item.ok()?.rules.as_ref().ok()
    }

    /// Its gates.
    pub(crate) fn gates(&self) -> &[Gate] {
        self.rules().map_or(&[], |rules| &rules.gates)
    }

    /// May what the clock says have changed since the last time?
    fn is_due(&self, now: Timestamp) -> bool {
        let holds = |at: &AtTime| at.from <= now && at.until.is_none_or(|until| now < until);
        self.rules().is_some() && !self.at.as_ref().is_some_and(holds)
    }

    /// Looks at the clock.
    fn look_at_clock(&mut self, now: Timestamp, min_remaining: SignedDuration) {
        let too_short = match &self.at {
            Some(at) => at.too_short.clone(),
            None => self.rules().and_then(|rules| rules.too_short(min_remaining, now)),
        };
        let at = self.rules().map(|rules| {
            let window = rules.window(now);
            AtTime {
                from: now,
                until: rules.next_change(now, min_remaining, window),
                starts: rules.starts(now, min_remaining, window),
                goes_on: rules.starts(now, SignedDuration::ZERO, window),
                next_window: window,
                too_short,
            }
        });
        self.at = at;
    }

    /// The pool as decisions see it, with so many opted-in nodes; and why it cannot be heeded because of its place
    /// among the others, if so.
    fn facts(&self, nodes: u64, misplaced: Option<&'static str>) -> PoolFacts<'_> {
        let (rules, at) = (self.rules(), self.at.as_ref());
        let too_short = at.and_then(|at| at.too_short.as_deref());
        let invalid = self.invalid.as_deref().or(misplaced).or(too_short);
        let starts = |of: fn(&AtTime) -> Starts<'static>| match (invalid, at) {
            (None, Some(at)) => of(at),
            (why, _) => Starts::Invalid(why.unwrap_or(NOT_LOOKED_AT)),
        };
        PoolFacts {
            name: self.item.name(),
            nodes,
            limit: rules.map_or(1, |rules| rules.limit(nodes)),
            one_zone_at_a_time: rules.is_some_and(Rules::one_zone_at_a_time),
            starts: starts(|at| at.starts),
            goes_on: starts(|at| at.goes_on),
            has_gates: !self.gates().is_empty(),
            gate: self.closed_gate(),
            next_window: at.and_then(|at| at.next_window),
            rules,
            waits_for: BTreeMap::new(),
            ripens: BTreeMap::new(),
        }
    }
}

/// Why it cannot be understood, if so.
fn why_invalid(item: &Item<Pool>) -> Option<String> {
    match &item.body {
        Ok(pool) => pool.rules.as_ref().err().map(ToString::to_string),
        Err(why) => Some(why.to_string()),
    }
}

impl Member for Item<Pool> {
    fn put(self, cluster: &mut Cluster) -> bool {
        let name = self.name().to_owned();
        let (pool, says_the_same) = WatchedPool::in_place_of(cluster.pools.remove(&name), self);
        if !says_the_same {
            cluster.forget_owners();
        }
        cluster.pools.insert(name, pool);
        if bound_pools(cluster.pools.values_mut().filter_map(|pool| pool.item.body.as_mut().ok())) {
            cluster.forget_owners();
            for pool in cluster.pools.values_mut() {
                let invalid = why_invalid(&pool.item);
                if pool.invalid != invalid {
                    (pool.invalid, pool.at) = (invalid, None);
                }
            }
        }
        true
    }

    fn bound(listed: &mut [Self]) {
        bound_pools(listed.iter_mut().filter_map(|item| item.body.as_mut().ok()));
    }

    /// There may be thousands, so their sum is looked at once.
    fn replace(objects: impl IntoIterator<Item = Self>, cluster: &mut Cluster) {
        let mut listed: Vec<Self> = objects.into_iter().collect();
        Self::bound(&mut listed);
        let mut before = std::mem::take(&mut cluster.pools);
        let mut all_say_the_same = true;
        for item in listed {
            let name = item.name().to_owned();
            let (pool, says_the_same) = WatchedPool::in_place_of(before.remove(&name), item);
            all_say_the_same &= says_the_same;
            cluster.pools.insert(name, pool);
        }
        if !(all_say_the_same && before.is_empty()) {
            cluster.forget_owners();
        }
    }

    fn remove(name: &str, cluster: &mut Cluster) {
        cluster.pools.remove(name);
        cluster.forget_owners();
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn names(cluster: &Cluster) -> BTreeSet<String> {
        cluster.pools.keys().cloned().collect()
    }
}

impl Cluster {
    /// Is there a pool of which it is forgotten what it says?
    pub fn has_given_pools_up(&self) -> bool {
        self.pools.values().any(|pool| pool.item.ok().is_some_and(Pool::is_given_up))
    }

    fn forget_owners(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.owner = None);
    }

    /// Finds the owners of nodes that are new, or whose labels have changed, or of all once a pool has changed; and looks at
    /// the clock for each pool. With less than `min_remaining` of its window left, a pool starts nothing.
    ///
    /// However many pools there are, and whatever they say, it does a bounded part of this at once. Returns whether all is
    /// done; until then nothing may be decided.
    pub fn prepare_pools(&mut self, now: Timestamp, min_remaining: SignedDuration) -> bool {
        let Self { entries, pools, .. } = self;
        let mut due = pools.values_mut().take(POOLS_MAX).filter(|pool| pool.is_due(now));
        for pool in due.by_ref().take(LOOKS_AT_ONCE) {
            pool.look_at_clock(now, min_remaining);
        }
        if due.next().is_some() {
            return false;
        }
        let requirements = |pool: &WatchedPool| 1 + pool.item.ok().map_or(0, |pool| pool.requirements);
        let for_each: usize = pools.values().map(requirements).sum();
        let at_once = COMPARED_AT_ONCE.checked_div(for_each).map_or(usize::MAX, |nodes| nodes.max(1));
        let mut without = entries.values_mut().filter(|entry| entry.owner.is_none() && entry.node.is_some());
        for entry in without.by_ref().take(at_once) {
            let Some(node) = &entry.node else { continue };
            let owner = owner(node.all_labels(), pools);
            let pool = if let Owner::Pool(index) = owner { pools.values().nth(index) } else { None };
            entry.respects_pods = pool.and_then(WatchedPool::rules).map(Rules::respect_do_not_disrupt);
            entry.owner = Some(owner);
        }
        without.next().is_none()
    }

    /// The pools as decisions see them, sorted by name, and the earliest time at which the clock alone changes one of
    /// them. Call [`Self::prepare_pools`] before; a pool that it has not looked at holds its nodes.
    pub fn pools_at(&self, now: Timestamp) -> Pools<'_> {
        let mut nodes = vec![0; self.pools.len()];
        for entry in self.entries.values() {
            if let (Some(Owner::Pool(index)), Some(node)) = (&entry.owner, &entry.node)
                && let Some(count) = nodes.get_mut(*index)
            {
                *count += u64::from(node.facts.labelled);
            }
        }
        let misplaced = order::misplaced(&self.pools);
        let facts = self.pools.values().zip(nodes).enumerate().map(|(nth, (pool, nodes))| {
            let misplaced = misplaced.get(pool.item.name()).copied();
            pool.facts(
                nodes,
                misplaced.filter(|_| nth < POOLS_MAX).or((nth >= POOLS_MAX).then_some(TOO_MANY)),
            )
        });
        let mut all: Vec<_> = facts.collect();
        let heeded = all.len().min(POOLS_MAX);
        let status = self.status();
        let by_order = order::apply(&mut all[..heeded], status.map(|status| &status.versions), now);
        let by_age = age::apply(&mut all[..heeded], status.map(|status| &status.seen), now);
        let by_clock = self.pools.values().filter_map(|pool| pool.at.as_ref()?.until).min();
        Pools { all, next: [by_order, by_age, by_clock].into_iter().flatten().min() }
    }
}

/// How long things may take for the nodes of each pool, and for all others.
#[derive(Clone, Debug)]
pub struct DurationsByOwner {
    of_pools: Vec<Durations>,
    others: Durations,
}

impl DurationsByOwner {
    /// For a node of this owner.
    pub fn of(&self, owner: Option<&Owner>) -> &Durations {
        let of_pool = match owner {
            Some(Owner::Pool(index)) => self.of_pools.get(*index),
            _ => None,
        };
        of_pool.unwrap_or(&self.others)
    }
}

impl Cluster {
    /// How long things may take, if `others` holds where no pool says anything else.
    pub fn durations(&self, others: Durations) -> DurationsByOwner {
        let rules = self.pools.values().map(WatchedPool::rules);
        let of_pools = rules.map(|rules| rules.map_or(others, |rules| rules.durations(others)));
        DurationsByOwner { of_pools: of_pools.collect(), others }
    }

    /// The labels that say in which zones the nodes of each pool are, where these are not the well-known one.
    pub(crate) fn topology_keys(&self) -> Vec<Option<&str>> {
        self.pools.values().map(|pool| pool.rules()?.topology_key()).collect()
    }
}

/// The owner of a node with these labels.
fn owner(labels: &BTreeMap<String, String>, pools: &BTreeMap<String, WatchedPool>) -> Owner {
    let mut selecting = pools.values().enumerate().filter(|(_, pool)| pool.selects(labels));
    let Some(first) = selecting.next() else { return Owner::Nobody };
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
        Some((_, other)) => Owner::Conflict(format!("{} and {}", highest.1.item.name(), other.item.name())),
    }
}

#[cfg(test)]
mod tests;
