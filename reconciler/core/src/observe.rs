//! From objects and the time to facts: what is known of the fleet, and of each node. Pure: the clock is an argument.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{FailureThreshold, Slot};
use brupop_api::names::{self, shadow_name};
use brupop_api::{BottlerocketShadow, Marker};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::cluster::{Cluster, NodeRecord};
use crate::cluster::{KnownDrain, LedNode};
use crate::deadlines::{Clock, NodeTimes};
use crate::drain::Obstacle;
use crate::facts::{
    FleetFacts, NO_ZONE, NodeView, Observed, Owner, PodFacts, PoolFacts, Pools, UnmanagedNode,
    in_order, is_unavailable,
};
use crate::leader::LeaderState;
use crate::objects::{AgentPod, NodeFacts, runs_bottlerocket};
use crate::policy::Policy;
use crate::rules::Rules;
use crate::status::generation;
use crate::times::Ahead;
use crate::window::Starts;
use crate::workloads::{self, Evicted, Scales};

/// Longest name of a shadow, as of any object in Kubernetes.
const NAME_MAX: usize = 253;

/// The time of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    pub time: Timestamp,
    /// This time, as it is written into objects.
    pub text: &'a str,
}

/// Turns objects, what else is known, and the time into facts.
pub fn observe<'a>(
    cluster: &'a Cluster,
    leader: &'a LeaderState,
    pools: &'a Pools<'a>,
    policy: &'a Policy,
    now: Now<'a>,
) -> Observed<'a> {
    let clock = Clock {
        next: pools.next,
        ahead: pools.ahead.clone(),
        ..Clock::new(now.time, &leader.ahead)
    };
    let fleet = fleet_facts(cluster, pools, leader, now);
    let mut nodes = Observer {
        policy,
        pools: &pools.all,
        may_force: leader.may_force,
        pool_left_out: cluster.pool_left_out.is_some(),
        clock,
    };
    let mut slot_of = in_order(fleet.slots);
    let mut views = Vec::with_capacity(cluster.records.len());
    let (mut unreadable, mut too_long, mut not_opted_in) = (BTreeMap::new(), vec![], 0);
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
        let (view, why) = nodes.view(name, record, slot_of(name));
        unreadable.extend(why.map(|why| (views.len(), why)));
        views.push(view);
    }
    note_own_node(leader.own_node.as_deref(), &mut views);
    note_busy_zones(&pools.all, fleet.slots, &mut views);
    note_control_plane(cluster, fleet.slots, &mut views);
    let Clock { next, ahead, .. } = nodes.clock;
    Observed {
        fleet,
        views,
        unreadable,
        too_long,
        not_opted_in,
        next,
        ahead,
    }
}

/// Makes the views one after the other.
struct Observer<'a> {
    policy: &'a Policy,
    pools: &'a [PoolFacts<'a>],
    /// Whether this reconciler may delete pods.
    may_force: bool,
    /// There are more pools than are read.
    pool_left_out: bool,
    clock: Clock<'a>,
}

impl<'a> Observer<'a> {
    /// The view of this name, and of the slot of this name if there is one; and why it cannot be interpreted if so.
    fn view(
        &mut self,
        name: &'a str,
        record: &'a NodeRecord,
        slot: Option<&'a Slot>,
    ) -> (NodeView<'a>, Option<String>) {
        // No other pool may go on with the update of a pool that is not read any more.
        let its_pool = slot.and_then(|slot| slot.pool.as_deref());
        let is_unread = self.pool_left_out
            && its_pool.is_some_and(|name| self.pools.iter().all(|pool| pool.name != name));
        let led = &record.led;
        let owner = match led.owner.filter(|_| !is_unread) {
            None if self.pools.is_empty() => Owner::DefaultPool,
            owner => owner.unwrap_or(Owner::Unknown),
        };
        let pool = match owner {
            Owner::Pool(index) => self.pools.get(index),
            _ => None,
        };
        let rules = pool.and_then(|pool| pool.rules);
        let node = record.node.as_deref();
        let mut unreadable = node.and_then(|node| node.marker.as_ref()?.as_ref().err().cloned());
        let zone = match rules.and_then(Rules::topology_key) {
            None => node.and_then(|node| node.zone.as_deref()),
            Some(key) => node.and_then(|node| node.all_labels.get(key).map(String::as_str)),
        };
        let shadow = match record.shadow.as_ref().map(|item| &item.body) {
            Some(Ok(shadow)) => ShadowFacts::of(shadow),
            Some(Err(error)) => {
                unreadable = Some(format!("the shadow cannot be read: {error}"));
                None
            }
            None => None,
        };
        let marker = node.and_then(NodeFacts::marker);
        let rules = rules.unwrap_or(&self.policy.default_pool);
        let steps = &rules.durations;
        let times = NodeTimes {
            durations: &self.policy.durations,
            steps,
            record,
            marker,
            shadow: shadow.as_ref(),
            slot,
            pool,
        };
        let time = self.clock.facts(&times);
        let watched = marker.filter(|_| !steps.workloads.is_zero());
        let view = NodeView {
            shadow_name: name,
            owner,
            node,
            zone,
            agent_ready: record.agent().is_some_and(AgentPod::is_ready),
            runs_this_process: false,
            shadow,
            unreadable: unreadable.is_some(),
            owner_uid: shadow.and(record.shadow()).and_then(owner_uid),
            pods: pods(led),
            force: self.may_force && rules.wants_force,
            denied: led.denied.node.as_deref(),
            shadow_denied: led.denied.shadow.as_deref(),
            evicted: evicted(led, watched),
            busy_zone: None,
            busy_control_plane: None,
            time,
        };
        (view, unreadable)
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

fn pods(led: &LedNode) -> PodFacts<'_> {
    let pods = match &led.drain {
        Some(KnownDrain {
            plan, held_up_by, ..
        }) => PodFacts {
            known: true,
            drained: plan.is_done(),
            scales: led.scales.as_ref(),
            left: &plan.left,
            has_claims: plan.has_claims,
            first_left: plan.first_left,
            is_blocked: plan.is_blocked,
            held_up_by: held_up_by.as_deref(),
            overlooked: plan.overlooked,
            operator_pods: &plan.operator_pods,
            ..PodFacts::default()
        },
        None => PodFacts::default(),
    };
    match &led.obstacle {
        Some(Obstacle::Never(why)) => PodFacts {
            undrainable: Some(why),
            ..pods
        },
        Some(Obstacle::TooManyPods) => PodFacts {
            too_many: true,
            ..pods
        },
        Some(Obstacle::Budget { why, waited }) => PodFacts {
            blocked: Some(why),
            waited: *waited,
            ..pods
        },
        None => pods,
    }
}

fn owner_uid(shadow: &BottlerocketShadow) -> Option<&str> {
    shadow
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Node")
        .map(|owner| owner.uid.as_str())
}

/// Notes which node this process runs on. Views are in the order of their names.
fn note_own_node(own_node: Option<&str>, views: &mut [NodeView<'_>]) {
    let Some(own) = own_node.map(shadow_name) else {
        return;
    };
    let at = views
        .binary_search_by(|view| view.shadow_name.cmp(&own))
        .ok();
    if let Some(at) = at {
        views[at].runs_this_process = true;
    }
}

/// Notes, where pools keep zones apart, which nodes must not be taken out of service because of another zone: one with a node
/// that is out of service; or else the first zone with a slot, if slots are in several.
fn note_busy_zones<'a>(
    pools: &[PoolFacts<'a>],
    slots: &BTreeMap<String, Slot>,
    views: &mut [NodeView<'a>],
) {
    let place = |view: &NodeView<'a>| match view.owner {
        Owner::Pool(pool) if pools.get(pool).is_some_and(|pool| pool.one_zone_at_a_time) => {
            Some((pool, view.node.map(|_| view.zone)?))
        }
        _ => None,
    };
    if !pools.iter().any(|pool| pool.one_zone_at_a_time) {
        return;
    }
    let mut busy: BTreeMap<usize, BTreeSet<Option<&'a str>>> = BTreeMap::new();
    let mut with_slots = busy.clone();
    let mut slot_of = in_order(slots);
    for view in views.iter() {
        let has_slot = slot_of(view.shadow_name).is_some();
        let Some((pool, zone)) = place(view) else {
            continue;
        };
        if is_unavailable(view) {
            busy.entry(pool).or_default().insert(zone);
        }
        if has_slot {
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
            [] => first.filter(|(name, _)| *name < own && slots.contains_key(own)),
            away => away.iter().copied().find(|(name, _)| *name != own),
        };
        view.busy_control_plane = busy.map(|(_, node)| node.name());
    }
}

fn fleet_facts<'a>(
    cluster: &'a Cluster,
    pools: &'a Pools<'a>,
    leader: &'a LeaderState,
    now: Now<'a>,
) -> FleetFacts<'a> {
    static NO_SLOTS: BTreeMap<String, Slot> = BTreeMap::new();

    let (watched, ledger) = (cluster.fleet(), cluster.ledger());
    let paused = watched.is_some_and(|fleet| fleet.object.spec.paused);
    FleetFacts {
        now: now.text,
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
        starts: starts(paused, leader.enforced),
        pool_left_out: cluster.pool_left_out.as_deref(),
        enforced: leader.enforced,
        alone: leader.alone,
    }
}

/// Returns whether new updates may start, if their pools let them. A person's pause comes first.
fn starts(paused: bool, admission_enforced: bool) -> Starts<'static> {
    match (paused, admission_enforced) {
        (true, _) => Starts::Paused,
        (false, false) => Starts::AdmissionNotEnforced,
        (false, true) => Starts::Open,
    }
}

impl Cluster {
    /// The nodes that are not managed, by name, and the earliest time at which one of them is no longer young. A node
    /// with a shadow or a marker is not among them: it is tidied up first. Nor is a node whose name is too long for a
    /// shadow.
    pub fn unmanaged_nodes(
        &self,
        min_node_age: SignedDuration,
        now: Timestamp,
    ) -> (Vec<UnmanagedNode<'_>>, Option<Timestamp>) {
        let mut clock = Clock::new(now, Ahead::NONE);
        let unmanaged = self.nodes().filter(|(shadow_name, node)| {
            !node.is_managed() && shadow_name.len() <= NAME_MAX && !self.has_shadow(shadow_name)
        });
        let unmanaged = unmanaged.map(|(shadow_name, node)| UnmanagedNode {
            shadow_name,
            name: node.name(),
            uid: &node.uid,
            label: node.label(names::UPDATER_INTERFACE_LABEL),
            os_image: &node.os_image,
            young: node
                .created
                .is_some_and(|created| !clock.is_older(created, min_node_age)),
        });
        let unmanaged = unmanaged.collect();
        (unmanaged, clock.next)
    }
}

#[cfg(test)]
mod tests;
