//! From objects and the time to facts: what is known of the fleet, and of each node. Pure: the clock is an argument.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use brupop_api::crds::NAME_MAX;
use brupop_api::fleet::{BottlerocketFleetStatus, FailureThreshold, Slot, VersionRecord};
use brupop_api::names::DEFAULT_POOL;
use brupop_api::shadow::ShadowFacts;
use brupop_api::{BottlerocketShadow, Marker};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::cluster::{Cluster, LedNode, NodeRecord};
use crate::facts::{
    FleetFacts, NO_ZONE, NodeView, Observed, Owner, PoolFacts, Pools, is_unavailable,
};
use crate::leader::{LeaderState, NOT_LOOKED_AT, PoolState};
use crate::objects::Ahead;
use crate::objects::Clock;
use crate::objects::{AgentPod, NodeFacts, runs_bottlerocket};
use crate::pool::FirstPool;
use crate::rules::Policy;
use crate::rules::{GateState, Rules, limit};
use crate::status::generation;
use crate::window::{Starts, Until};
use crate::workloads::{self, Evicted, Scales};

/// Turns objects, what else is known, and the time of these pools into facts; `now` is that time, as it is written into objects.
pub fn observe<'a>(
    cluster: &'a Cluster,
    leader: &'a LeaderState,
    pools: &'a Pools<'a>,
    policy: &'a Policy,
    now: &'a str,
) -> Observed<'a> {
    let mut clock = pools.clock.clone();
    let fleet = fleet_facts(cluster, pools, leader, now);
    let mut views = Vec::with_capacity(cluster.records.len());
    let (mut too_long, mut not_opted_in) = (vec![], 0);
    for (name, record) in &cluster.records {
        if let Some(node) = &record.node {
            not_opted_in += u64::from(!node.labelled && runs_bottlerocket(&node.os_image));
        }
        if record.shadow.is_none() && !record.node.as_ref().is_some_and(|node| node.is_managed()) {
            continue;
        }
        if name.len() > NAME_MAX {
            too_long.push(name.as_str());
            continue;
        }
        views.push(view(
            cluster, leader, pools, policy, &mut clock, name, record,
        ));
    }
    note_busy_zones(&pools.all, &mut views);
    note_control_plane(cluster, fleet.slots, &mut views);
    Observed {
        fleet,
        views,
        too_long,
        not_opted_in,
        clock,
    }
}

/// The view of this name, and of the slot of this name if there is one.
fn view<'a>(
    cluster: &'a Cluster,
    leader: &'a LeaderState,
    pools: &'a Pools<'a>,
    policy: &'a Policy,
    clock: &mut Clock<'_>,
    name: &'a str,
    record: &'a NodeRecord,
) -> NodeView<'a> {
    let slot = cluster.ledger().and_then(|ledger| ledger.slots.get(name));
    // No other pool may go on with the update of a pool that is not read any more.
    let its_pool = slot.and_then(|slot| slot.pool.as_deref());
    let is_unread = cluster.pool_left_out.is_some()
        && its_pool.is_some_and(|name| pools.all.iter().all(|pool| pool.name != name));
    let led = &record.led;
    let owner = match led.owner.filter(|_| !is_unread) {
        None if pools.all.is_empty() => Owner::DefaultPool,
        owner => owner.unwrap_or(Owner::Unknown),
    };
    let pool = match owner {
        Owner::Pool(index) => pools.all.get(index),
        _ => None,
    };
    let rules = pool.and_then(|pool| pool.rules);
    let rules = rules.unwrap_or(&policy.default_pool);
    let node = record.node.as_deref();
    let shadow = record.shadow().and_then(ShadowFacts::of);
    let unreadable_shadow = record
        .shadow
        .as_ref()
        .and_then(|item| item.body.as_ref().err());
    let watched = node.and_then(NodeFacts::marker);
    let watched = watched.filter(|_| !rules.durations.workloads.is_zero());
    NodeView {
        shadow_name: name,
        owner,
        node,
        zone: node.and_then(|node| node.label(rules.topology_key())),
        agent_ready: record.agent().is_some_and(AgentPod::is_ready),
        runs_this_process: node.is_some_and(|it| Some(it.name()) == leader.own_node.as_deref()),
        shadow,
        unreadable_shadow: unreadable_shadow.copied(),
        slot,
        owner_uid: shadow.and(record.shadow()).and_then(owner_uid),
        led,
        force: leader.may_force && rules.wants_force,
        evicted: evicted(led, watched),
        busy_zone: None,
        busy_control_plane: None,
        time: clock.facts(policy, rules, record, shadow.as_ref(), slot, pool),
    }
}

/// The workloads whose pods were evicted, if this marker is there to name them.
fn evicted<'a>(led: &'a LedNode, marker: Option<&'a Marker>) -> Evicted<'a> {
    static NONE: Scales = Scales::new();
    let scales = led.scales.as_ref().unwrap_or(&NONE);
    marker.map_or(Evicted::Back, |marker| {
        workloads::evicted(&marker.evicted_owners, scales)
    })
}

fn owner_uid(shadow: &BottlerocketShadow) -> Option<&str> {
    shadow
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Node")
        .map(|owner| owner.uid.as_str())
}

/// Notes, where pools keep zones apart, which nodes must not be taken out of service because of another zone: one with a node
/// that is out of service; or else the first zone with a slot, if slots are in several.
fn note_busy_zones<'a>(pools: &[PoolFacts<'a>], views: &mut [NodeView<'a>]) {
    let place = |view: &NodeView<'a>| match view.owner {
        Owner::Pool(pool) if pools.get(pool).is_some_and(PoolFacts::one_zone_at_a_time) => {
            Some((pool, view.node.map(|_| view.zone)?))
        }
        _ => None,
    };
    if !pools.iter().any(PoolFacts::one_zone_at_a_time) {
        return;
    }
    let mut busy: BTreeMap<usize, BTreeSet<Option<&'a str>>> = BTreeMap::new();
    let mut with_slots = busy.clone();
    for view in views.iter() {
        let Some((pool, zone)) = place(view) else {
            continue;
        };
        if is_unavailable(view) {
            busy.entry(pool).or_default().insert(zone);
        }
        if view.slot.is_some() {
            with_slots.entry(pool).or_default().insert(zone);
        }
    }
    for view in views {
        let Some((pool, zone)) = place(view) else {
            continue;
        };
        let other = match busy.get(&pool) {
            Some(busy) => busy.iter().find(|busy| **busy != zone),
            None => with_slots
                .get(&pool)
                .and_then(BTreeSet::first)
                .filter(|first| **first < zone),
        };
        view.busy_zone = other.map(|zone| zone.unwrap_or(NO_ZONE));
    }
}

/// Notes which other node of the control plane keeps each of its nodes in service: one that is out of service, opted in or
/// not; or else the first with a slot, if both have one.
fn note_control_plane<'a>(
    cluster: &'a Cluster,
    slots: &BTreeMap<String, Slot>,
    views: &mut [NodeView<'a>],
) {
    let all: Vec<_> = cluster
        .nodes()
        .filter(|(_, node)| node.control_plane)
        .collect();
    let away: Vec<_> = all
        .iter()
        .filter(|(_, node)| node.is_away())
        .take(2)
        .collect();
    let first = all.iter().find(|(name, _)| slots.contains_key(*name));
    for view in views
        .iter_mut()
        .filter(|view| view.node.is_some_and(|node| node.control_plane))
    {
        let own = view.shadow_name;
        let busy = match &away[..] {
            [] => first.filter(|(name, _)| *name < own && view.slot.is_some()),
            away => away.iter().copied().find(|(name, _)| *name != own),
        };
        view.busy_control_plane = busy.map(|(_, node)| node.name());
    }
}

fn fleet_facts<'a>(
    cluster: &'a Cluster,
    pools: &'a Pools<'a>,
    leader: &'a LeaderState,
    now: &'a str,
) -> FleetFacts<'a> {
    static NO_SLOTS: BTreeMap<String, Slot> = BTreeMap::new();

    let (watched, ledger) = (cluster.fleet(), cluster.ledger());
    FleetFacts {
        now,
        ahead: &leader.ahead,
        term: leader.term,
        ledger_term: ledger.and_then(|ledger| ledger.term),
        uid: watched.and_then(|fleet| fleet.object.metadata.uid.as_deref()),
        generation: watched.and_then(|fleet| generation(&fleet.object.metadata)),
        slots: ledger.map_or(&NO_SLOTS, |ledger| &ledger.slots),
        versions: ledger.map_or(&[], |ledger| &ledger.versions),
        done_pools: ledger.map_or(&[], |ledger| &ledger.done_pools),
        resumed: watched.map_or(&[], |fleet| &fleet.object.spec.resumed_versions),
        threshold: watched.map_or(FailureThreshold::DEFAULT, |fleet| {
            fleet.object.spec.failure_threshold
        }),
        ceiling: pools.ceiling,
        default_pool: &pools.default,
        pools: &pools.all,
        paused: watched.is_some_and(|fleet| fleet.object.spec.paused),
        pool_left_out: cluster.pool_left_out.as_deref(),
        enforced: leader.enforced,
        alone: leader.alone,
    }
}

impl Cluster {
    /// The nodes that are not managed and no longer young, and the earliest time at which another one is no longer young. A node
    /// with a shadow or a marker is not among them: it is tidied up first. Nor is a node whose name is too long for a
    /// shadow.
    pub fn unmanaged_nodes(
        &self,
        min_node_age: SignedDuration,
        now: Timestamp,
    ) -> (Vec<&NodeFacts>, Option<Timestamp>) {
        let mut clock = Clock::new(now, Ahead::NONE);
        let unmanaged = self.nodes().filter(|(shadow_name, node)| {
            !node.is_managed() && shadow_name.len() <= NAME_MAX && !self.has_shadow(shadow_name)
        });
        let unmanaged = unmanaged.map(|(_, node)| &**node);
        let old = unmanaged.filter(|node| clock.passed_or_unknown(node.created, min_node_age));
        let old = old.collect();
        (old, clock.next)
    }
}

/// The pools as decisions see them, sorted by name, and the earliest time at which the clock alone changes one of them. One
/// at which nobody has looked holds its nodes.
pub fn pools_at<'a>(
    cluster: &'a Cluster,
    leader: &'a LeaderState,
    policy: &'a Policy,
    now: Timestamp,
) -> Pools<'a> {
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
    let default = facts(
        DEFAULT_POOL,
        Some(&policy.default_pool),
        Some(&leader.default_pool),
        unselected,
    );
    let all_read = cluster.pool_left_out.is_none();
    let pools = cluster.pools.iter().zip(nodes);
    let facts = pools.map(|((name, pool), nodes)| {
        let facts = facts(name, pool.rules(), leader.pools.get(name), nodes);
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
        await_first_pools(&mut all, ledger, &mut clock);
        await_ages(&mut all, &ledger.versions, &mut clock);
    }
    let states = leader.pools.values().chain([&leader.default_pool]);
    clock.wake_at(states.filter_map(|state| state.until).min());
    Pools {
        default,
        all,
        ceiling: ceiling.unwrap_or(u64::MAX),
        clock,
    }
}

/// The most nodes that may be unavailable in the whole fleet of `labelled` nodes, if the fleet says so.
fn ceiling(cluster: &Cluster, labelled: u64) -> Option<u64> {
    let text = cluster.fleet()?.object.spec.max_unavailable.as_ref()?;
    // The schema lets nothing else pass; the lowest limit is the safe one.
    Some(limit(text).unwrap_or_default().of(labelled))
}

/// The pool with these rules as decisions see it, with this number of opted-in nodes.
fn facts<'a>(
    name: &'a str,
    rules: Option<&'a Rules>,
    known: Option<&'a PoolState>,
    nodes: u64,
) -> PoolFacts<'a> {
    let starts = known.map_or(Starts::Invalid(NOT_LOOKED_AT), |known| {
        let why = known.invalid.as_deref();
        why.map_or(known.starts, Starts::Invalid)
    });
    PoolFacts {
        name,
        nodes,
        limit: rules.map_or(1, |rules| rules.limit.of(nodes)),
        starts,
        gate: rules.and_then(|rules| closed_gate(rules, known.map_or(&[], |known| &known.gates))),
        next_window: known.and_then(|known| known.next_window),
        rules,
        ..PoolFacts::DEFAULT
    }
}

/// Of its gates that are not open the worst one, and of these the first. Nobody knows of one that was not asked.
fn closed_gate<'a>(rules: &'a Rules, states: &[GateState]) -> Option<(GateState, &'a str)> {
    let states = states
        .iter()
        .copied()
        .chain(std::iter::repeat(GateState::Unknown));
    let gates = states.zip(rules.gates.iter().map(|gate| gate.name.as_str()));
    gates
        .filter(|(state, _)| *state != GateState::Open)
        .min_by_key(|(state, _)| Reverse(*state))
}

/// Computes for each version which pool has to be done with it first (`spec.dependsOn`), by the pools that the ledger says are done.
pub fn await_first_pools<'a>(
    pools: &mut [PoolFacts<'a>],
    ledger: &'a BottlerocketFleetStatus,
    clock: &mut Clock<'_>,
) {
    for pool in pools {
        let Some(rules) = pool.rules.filter(|rules| !rules.depends_on.is_empty()) else {
            continue;
        };
        for done in &ledger.done_pools {
            let version = done.version.as_str();
            if pool.waits_for.contains_key(version) {
                continue;
            }
            let mut first = None;
            for (name, soak) in &rules.depends_on {
                let mut all = ledger.done_pools.iter();
                let done = all.find(|done| done.pool == *name && done.version == version);
                let since = done.and_then(|done| clock.read(name, Some(&done.since)));
                match since.and_then(|since| since.checked_add(*soak).ok()) {
                    Some(at) if at <= clock.now => {}
                    due => {
                        let soaking = due.map(|due| FirstPool::Soaking(name, due));
                        first = first.or(soaking).or(Some(FirstPool::NotDone(name)));
                        clock.wake_at(due);
                    }
                }
            }
            pool.waits_for.insert(version, first);
        }
    }
}

/// Computes for each version and variant whether it is old enough for each pool (`spec.versions.minAge`).
fn await_ages<'a>(
    pools: &mut [PoolFacts<'a>],
    versions: &'a [VersionRecord],
    clock: &mut Clock<'_>,
) {
    for pool in pools {
        let min_age = pool
            .rules
            .map_or(SignedDuration::ZERO, |rules| rules.min_age);
        if min_age.is_zero() {
            continue;
        }
        for record in versions.iter().filter(|it| it.reported_at.is_some()) {
            let (version, reported) = (record.version.as_str(), record.reported_at.as_deref());
            let since = clock.read(version, reported);
            let ripe = since.and_then(|since| since.checked_add(min_age).ok());
            let waits = ripe.filter(|at| *at > clock.now);
            clock.wake_at(waits);
            let until = if ripe.is_none() {
                Some(Until::Unknown)
            } else {
                waits.map(Until::At)
            };
            pool.ripens
                .insert((version, record.variant.as_str()), until);
        }
    }
}

#[cfg(test)]
mod tests;
