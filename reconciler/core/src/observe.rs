//! From objects and the time to facts. Pure: the clock is an argument.

mod clock;
mod outsiders;

use std::collections::BTreeMap;

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::{BottlerocketShadow, Marker};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::budgets::Obstacle;
use crate::cluster::{Cluster, Entry};
use crate::drain::DrainPlan;
use crate::facts::{Evicted, FleetFacts, Gate, NodeFacts, NodeView, PodFacts};
use crate::objects::{AgentPod, WatchedNode};
use crate::policy::Policy;
pub use clock::back_off;
use clock::{Clock, Health, Times};

/// Longest name of a shadow, as of any object in Kubernetes.
const NAME_MAX: usize = 253;

/// What the process that leads knows besides objects and policy.
#[derive(Clone, Copy, Debug)]
pub struct Leader<'a> {
    /// The term in which it leads.
    pub term: u64,
    /// Were our own admission rules seen to be in force?
    pub enforced: bool,
    /// Was no other operator seen here?
    pub alone: bool,
    /// Name of the node that it runs on, if it is known.
    pub own_node: Option<&'a str>,
}

/// The time of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The time.
    pub time: Timestamp,
    /// The same time, as it is written into objects.
    pub text: &'a str,
}

/// The facts.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// What holds for the whole fleet.
    pub fleet: FleetFacts<'a>,
    /// Each node that is opted in, carries our changes or has a shadow; sorted by name of the shadow.
    pub views: Vec<NodeView<'a>>,
    /// Situations (by index) that cannot be interpreted, and why. They keep their slots; nothing is done for them.
    pub unreadable: BTreeMap<usize, String>,
    /// Labelled nodes for which no shadow can be created, because its name would be too long; by that name.
    pub too_long: Vec<&'a str>,
    /// The earliest time at which the clock alone changes a fact.
    pub next: Option<Timestamp>,
}

/// Candidates objects and the time into facts.
pub fn observe<'a>(cluster: &'a Cluster, policy: &Policy, leader: &Leader<'a>, now: Now<'a>) -> Observed<'a> {
    static NO_SLOTS: BTreeMap<String, Slot> = BTreeMap::new();
    static NO_VERSIONS: BTreeMap<String, VersionRecord> = BTreeMap::new();

    let status = cluster.status();
    let (mut labelled, mut all_ready) = (0, true);
    for (_, node) in cluster.nodes().filter(|(_, node)| node.labelled()) {
        labelled += 1;
        all_ready &= node.ready();
    }
    let paused = cluster.ledger().is_some_and(|ledger| ledger.fleet.spec.paused);
    let mut clock = Clock::new(now.time);
    let finished = status.and_then(|status| status.last_finished.as_deref());
    let fleet = FleetFacts {
        resting: policy.durations.pause.is_positive()
            && !clock.passed_or_unknown(finished, policy.durations.pause),
        now: now.text,
        term: leader.term,
        ledger_term: status.and_then(|status| status.term),
        slots: status.map_or(&NO_SLOTS, |status| &status.slots),
        versions: status.map_or(&NO_VERSIONS, |status| &status.versions),
        acknowledged: cluster.ledger().map_or(&[], |ledger| &ledger.fleet.spec.acknowledged_halts),
        budget: policy.failures,
        limit: policy.limit.of(labelled),
        all_ready,
        gate: gate(
            paused,
            leader.enforced,
            policy.schedule.is_open(now.time, policy.durations.min_remaining),
        ),
        enforced: leader.enforced,
        alone: leader.alone,
        force: policy.force,
        exclude: policy.durations.exclusion.is_positive(),
    };
    let mut nodes = Observer { policy, own_node: leader.own_node, clock, slots: fleet.slots };
    let mut observed = Observed {
        fleet,
        views: Vec::with_capacity(cluster.entries.len()),
        unreadable: BTreeMap::new(),
        too_long: vec![],
        next: None,
    };
    for (name, entry) in &cluster.entries {
        let is_managed = entry.node.as_ref().is_some_and(|node| node.is_managed());
        if entry.shadow.is_none() && !is_managed {
            continue;
        }
        if name.len() > NAME_MAX {
            observed.too_long.push(name);
            continue;
        }
        let (view, unreadable) = nodes.view(name, entry);
        if let Some(why) = unreadable {
            observed.unreadable.insert(observed.views.len(), why);
        }
        observed.views.push(view);
    }
    observed.next = nodes.clock.next();
    observed
}

/// May new updates start? A person's pause comes first. Rules that are not in force come before the schedule, because
/// some nodes are exempt from the schedule.
fn gate(paused: bool, admission_enforced: bool, window_open: bool) -> Gate {
    match (paused, admission_enforced, window_open) {
        (true, _, _) => Gate::Paused,
        (_, false, _) => Gate::AdmissionNotEnforced,
        (_, _, false) => Gate::OutsideWindow,
        (false, true, true) => Gate::Open,
    }
}

/// Makes the views one after the other.
struct Observer<'a, 'c> {
    policy: &'c Policy,
    own_node: Option<&'a str>,
    clock: Clock,
    slots: &'a BTreeMap<String, Slot>,
}

impl<'a> Observer<'a, '_> {
    /// The view of this name, and why it cannot be interpreted if so.
    fn view(&mut self, name: &'a str, entry: &'a Entry) -> (NodeView<'a>, Option<String>) {
        let mut unreadable = None;
        let (watched, agent) = (entry.node.as_ref(), entry.agent());
        let node = watched.map(|node| self.node(node, agent, &mut unreadable));
        let shadow = match entry.shadow.as_ref().map(|item| &item.body) {
            Some(Ok(shadow)) => ShadowFacts::of(shadow).map(|facts| (facts, shadow)),
            Some(Err(error)) => {
                unreadable = Some(format!("the shadow cannot be read: {error}"));
                None
            }
            None => None,
        };
        let marker = node.and_then(|node| node.marker);
        let facts = shadow.map(|(facts, _)| facts);
        let transition = shadow.and_then(|(_, shadow)| shadow.spec.state_transition_timestamp.as_deref());
        let plan = entry.drain.as_deref();
        let created = watched.and_then(|node| node.created());
        let durations = &self.policy.durations;
        let health = watched.map_or_else(Health::default, |node| Health::of(node, agent));
        let times = Times { durations, transition, marker, health };
        let mut time = self.clock.facts(facts.as_ref(), &times);
        time.young = created.is_some_and(|created| !self.clock.is_older(created, durations.min_node_age));
        let slot = self.slots.get(name);
        let since = slot.and_then(|slot| slot.since.as_deref());
        time.slot_seconds = since.and_then(|since| self.clock.seconds_since(since));
        time.canary_overdue =
            time.step_overdue || slot.is_some_and(|_| self.clock.stages_late(since, facts.as_ref(), &times));
        time.slot_overdue = slot.is_some_and(|slot| self.clock.slot_overdue(slot, facts.as_ref(), &times));
        let (undrainable, blocked, blocked_for_long) = match &entry.obstacle {
            Some(Obstacle::Never(why)) => (Some(why.as_str()), None, false),
            Some(Obstacle::Now { budget, for_long }) => (None, Some(budget.as_str()), *for_long),
            None => (None, None, false),
        };
        let view = NodeView {
            shadow_name: name,
            node,
            shadow: facts,
            owner_uid: shadow.and_then(|(_, shadow)| owner_uid(shadow)),
            pods: PodFacts {
                known: plan.is_some(),
                undrainable,
                blocked,
                blocked_for_long,
                drained: plan.is_some_and(DrainPlan::is_done),
                owners: plan.map_or(&[], |plan| &plan.owners),
                returning: plan.map_or(&[], |plan| &plan.returning),
                needed: plan.and_then(|plan| plan.needed.as_deref()),
                operator_pods: plan.map_or(&[], |plan| &plan.operator_pods),
            },
            denied: entry.denied.as_deref(),
            evicted: self.evicted(entry, marker.filter(|_| since.is_some())),
            time,
        };
        (view, unreadable)
    }

    /// A marker counts only if its slot has a `since`: earlier versions of the operator recorded owners without
    /// checking that they were available.
    fn evicted(&self, entry: &'a Entry, marker: Option<&Marker>) -> Evicted<'a> {
        let none = marker.is_none_or(|marker| marker.evicted_owners.is_empty());
        match &entry.evicted {
            _ if none || self.policy.durations.workloads.is_zero() => Evicted::Back,
            None => Evicted::Unknown,
            Some(missing) => missing.as_deref().map_or(Evicted::Back, Evicted::Missing),
        }
    }

    fn node(
        &self,
        node: &'a WatchedNode,
        agent: Option<&AgentPod>,
        unreadable: &mut Option<String>,
    ) -> NodeFacts<'a> {
        /// Stands for a marker that cannot be read: the node carries changes, so it keeps its slot.
        static UNREAD: Marker = Marker {
            shadow_uid: String::new(),
            attempt: 0,
            term: 0,
            excluded_at: None,
            drain_started_at: None,
            cordoned_at: None,
            tainted: false,
            do_not_disrupt: false,
            scale_down_disabled: false,
            drained_at: None,
            evicted_owners: Vec::new(),
            left_owners: Vec::new(),
            operator_pods: Vec::new(),
        };
        NodeFacts {
            name: node.name(),
            uid: node.uid(),
            labelled: node.labelled(),
            ready: node.ready(),
            boot_id: node.boot_id(),
            version: node.version(),
            unschedulable: node.unschedulable(),
            excluded: node.excluded(),
            tainted: node.tainted(),
            do_not_disrupt: node.do_not_disrupt(),
            scale_down_disabled: node.scale_down_disabled(),
            leaving: node.leaving(),
            marker: node.marker().unwrap_or_else(|why| {
                *unreadable = Some(why.to_owned());
                Some(&UNREAD)
            }),
            zone: node.zone(),
            paused: node.paused(),
            update_now: node.update_now(),
            agent_ready: agent.is_some_and(|agent| agent.ready_since.is_some()),
            overgrown: node.is_overgrown(),
            runs_this_process: self.own_node == Some(node.name()),
        }
    }
}

fn owner_uid(shadow: &BottlerocketShadow) -> Option<&str> {
    shadow.owner_references().iter().find(|owner| owner.kind == "Node").map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests;
