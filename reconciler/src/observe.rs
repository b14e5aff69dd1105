//! From objects and the time to facts. Pure: the clock is an argument.

mod clock;
mod monitored;
mod outsiders;
mod side_by_side;

use std::collections::BTreeMap;
use std::sync::Arc;

use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{BottlerocketFleetStatus, Slot, VersionRecord};
use brupop_api::{BottlerocketShadow, Marker, State};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DeserializeGuard;

use crate::drain::DrainPlan;
use crate::facts::{Evicted, FailureBudget, FleetFacts, Gate, NodeFacts, PodFacts, Situation};
use crate::objects::{AgentPod, Ledger, WatchedNode};
use crate::schedule::{Schedule, Starts};
use crate::settings::{Durations, Limit, Settings};
pub use clock::back_off;
use clock::{Clock, Health, Times};
use side_by_side::{SideBySide, union};

/// Longest name of a shadow: that of any object.
const NAME_MAX: usize = 253;

/// The objects at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All Nodes, by the name that their shadow has or would have.
    pub nodes: BTreeMap<String, Arc<WatchedNode>>,
    /// The shadows, by name; those that cannot be read, too.
    pub shadows: BTreeMap<String, Arc<DeserializeGuard<BottlerocketShadow>>>,
    /// The agents' pods, by the name that their node's shadow has or would have.
    pub agents: BTreeMap<String, AgentPod>,
    /// The ledger, if there is one.
    pub ledger: Option<Arc<DeserializeGuard<Ledger>>>,
    /// What a drain has to do, by name of the shadow; of those nodes whose pods are watched and known.
    pub drains: BTreeMap<String, DrainPlan>,
    /// Nodes that no drain could empty, and why, by name of the shadow. Nodes whose pods are no longer watched stay here for
    /// a while.
    pub undrainable: BTreeMap<String, String>,
    /// The first workload that is not available again, if one is not, by name of the shadow; of those updated nodes for
    /// which all were looked at.
    pub evicted: BTreeMap<String, Option<String>>,
}

/// What facts depend on beside objects.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// How long what takes.
    pub durations: &'a Durations,
    /// How many nodes at once.
    pub limit: Limit,
    /// Were our own admission rules seen to be in force?
    pub enforced: bool,
    /// Are pods deleted that still stand at the drain's deadline?
    pub force: bool,
    /// How many may fail to reach a version.
    pub budget: FailureBudget,
    /// The term in which this process leads.
    pub term: u64,
    /// May new updates start?
    pub gate: Gate,
    /// Name of the node that this process runs on, if it is known.
    pub own_node: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
    /// The time, as it is written into objects.
    pub now_text: &'a str,
}

/// The facts.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Of the fleet.
    pub fleet: FleetFacts<'a>,
    /// Of each node that is or was ours to update, by name of the shadow.
    pub situations: Vec<Situation<'a>>,
    /// Of which situations (by index) no sense can be made, and why. They keep their slots, and nothing is done.
    pub unreadable: BTreeMap<usize, String>,
    /// Labelled nodes, by the name their shadow would have, that is too long for one.
    pub too_long: Vec<&'a str>,
    /// The earliest time at which the clock alone changes a fact.
    pub next: Option<Timestamp>,
}

/// May new updates start? A person's word comes first; what makes them unsafe before what makes them untimely, since a
/// node may be exempted from the latter.
pub fn gate(paused: bool, admission_enforced: bool, starts_allowed: bool) -> Gate {
    match (paused, admission_enforced, starts_allowed) {
        (true, _, _) => Gate::Paused,
        (_, false, _) => Gate::AdmissionNotEnforced,
        (_, _, false) => Gate::OutsideWindow,
        (false, true, true) => Gate::Open,
    }
}

/// Turns objects and the time into facts.
pub fn observe<'a>(snapshot: &'a Snapshot, circumstances: &Circumstances<'a>) -> Observed<'a> {
    static NO_SLOTS: BTreeMap<String, Slot> = BTreeMap::new();
    static NO_VERSIONS: BTreeMap<String, VersionRecord> = BTreeMap::new();

    let status = snapshot.status();
    let (mut labelled, mut all_ready) = (0, true);
    for node in snapshot.nodes.values().filter(|node| node.labelled()) {
        labelled += 1;
        all_ready &= node.ready();
    }
    let mut clock = Clock::new(circumstances.now);
    let finished = status.and_then(|status| status.last_finished.as_deref());
    let fleet = FleetFacts {
        resting: circumstances.durations.pause.is_positive()
            && !clock.passed_or_unknown(finished, circumstances.durations.pause),
        typical_seconds: status.and_then(|status| status.typical_seconds),
        now: circumstances.now_text,
        term: circumstances.term,
        ledger_term: status.and_then(|status| status.term),
        slots: status.map_or(&NO_SLOTS, |status| &status.slots),
        versions: status.map_or(&NO_VERSIONS, |status| &status.versions),
        resume: snapshot.ledger().map_or(&[], |ledger| &ledger.fleet.spec.resume_versions),
        budget: circumstances.budget,
        limit: circumstances.limit.of(labelled),
        all_ready,
        gate: circumstances.gate,
        enforced: circumstances.enforced,
        force: circumstances.force,
        exclude: circumstances.durations.exclusion.is_positive(),
    };
    let mut looking = Observer {
        circumstances,
        schedulable_nodes: snapshot.schedulable_nodes(),
        clock,
        agents: SideBySide::of(&snapshot.agents),
        drains: SideBySide::of(&snapshot.drains),
        undrainable: SideBySide::of(&snapshot.undrainable),
        evicted: SideBySide::of(&snapshot.evicted),
        slots: SideBySide::of(fleet.slots),
    };
    let mut observed = Observed {
        fleet,
        situations: Vec::with_capacity(snapshot.nodes.len().max(snapshot.shadows.len())),
        unreadable: BTreeMap::new(),
        too_long: vec![],
        next: None,
    };
    for (name, node, shadow) in union(&snapshot.nodes, &snapshot.shadows) {
        if shadow.is_none() && node.is_none_or(|node| !node.is_managed()) {
            continue;
        }
        if name.len() > NAME_MAX {
            observed.too_long.push(name);
            continue;
        }
        let (situation, unreadable) = looking.situation(name, node, shadow);
        if let Some(why) = unreadable {
            observed.unreadable.insert(observed.situations.len(), why);
        }
        observed.situations.push(situation);
    }
    observed.next = looking.clock.next();
    observed
}

impl Snapshot {
    /// The ledger, if there is one that can be read.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()?.0.as_ref().ok()
    }

    /// The ledger's status.
    pub fn status(&self) -> Option<&BottlerocketFleetStatus> {
        self.ledger()?.fleet.status.as_ref()
    }

    /// May new updates start now by the schedule, if they take as long as is wanted or usual?
    pub fn starts_allowed(
        &self,
        starts: &mut Starts,
        schedule: &Schedule,
        settings: &Settings,
        now: Timestamp,
    ) -> bool {
        let typical = self.status().and_then(|status| status.typical_seconds);
        let takes = settings.min_remaining(schedule, now, typical);
        starts.allowed(schedule, now, takes, self.shot_runs(&settings.durations(), now))
    }

    /// Does an update run, or does the fleet rest after one, by which a shot of the schedule is known to be under way? One
    /// that a person asked for tells nothing of it, nor one whose host has not come back for longer than a reboot may take.
    pub fn shot_runs(&self, durations: &Durations, now: Timestamp) -> bool {
        let overdue = |shadow: &BottlerocketShadow| {
            let since = shadow.spec.state_transition_timestamp.as_deref();
            let since = since.and_then(|since| since.parse::<Timestamp>().ok());
            shadow.spec.state == State::RebootedIntoUpdate
                && since.is_some_and(|since| now.duration_since(since) >= durations.reboot)
        };
        let asked_for = |name: &String| self.nodes.get(name).is_some_and(|node| node.update_now());
        let Some(status) = self.status() else { return false };
        let rested = status.last_finished.as_deref().and_then(|finished| finished.parse::<Timestamp>().ok());
        let rests = rested.is_some_and(|finished| now.duration_since(finished) < durations.pause);
        rests && !self.nodes.keys().any(asked_for)
            || status.slots.keys().any(|name| !asked_for(name) && !self.shadow(name).is_some_and(overdue))
    }

    /// How many nodes take new pods now.
    pub fn schedulable_nodes(&self) -> usize {
        self.nodes.values().filter(|node| node.takes_pods()).count()
    }

    /// The shadow of this name, if there is one that can be read.
    pub fn shadow(&self, name: &str) -> Option<&BottlerocketShadow> {
        self.shadows.get(name)?.0.as_ref().ok()
    }
}

/// Goes through all that there is, by name.
struct Observer<'a, 'c> {
    circumstances: &'c Circumstances<'a>,
    schedulable_nodes: usize,
    clock: Clock,
    agents: SideBySide<'a, AgentPod>,
    drains: SideBySide<'a, DrainPlan>,
    undrainable: SideBySide<'a, String>,
    evicted: SideBySide<'a, Option<String>>,
    slots: SideBySide<'a, Slot>,
}

impl<'a> Observer<'a, '_> {
    /// The situation of this name, which comes after those before.
    fn situation(
        &mut self,
        name: &'a str,
        watched: Option<&'a Arc<WatchedNode>>,
        shadow: Option<&'a Arc<DeserializeGuard<BottlerocketShadow>>>,
    ) -> (Situation<'a>, Option<String>) {
        let mut unreadable = None;
        let agent = self.agents.at(name);
        let node = watched.map(|node| self.node(node, agent, &mut unreadable));
        let shadow = match shadow.map(|guard| &guard.0) {
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
        let plan = self.drains.at(name);
        let created = watched.and_then(|node| node.created());
        let durations = self.circumstances.durations;
        let health = watched.map_or_else(Health::default, |node| Health::of(node, agent));
        let mut time = self.clock.facts(facts.as_ref(), &Times { durations, transition, marker, health });
        time.young = created.is_some_and(|created| !self.clock.is_older(created, durations.min_node_age));
        let since = self.slots.at(name).and_then(|slot| slot.since.as_deref());
        time.slot_seconds = since.and_then(|since| self.clock.seconds_since(since));
        let situation = Situation {
            shadow_name: name,
            node,
            shadow: facts,
            owner_uid: shadow.and_then(|(_, shadow)| owner_uid(shadow)),
            pods: PodFacts {
                known: plan.is_some(),
                undrainable: self.undrainable.at(name).map(String::as_str),
                drained: plan.is_some_and(DrainPlan::is_done),
                owners: plan.map_or(&[], |plan| &plan.owners),
                has_other_node: has_other_node(self.schedulable_nodes, watched),
            },
            evicted: self.evicted(name, marker.filter(|_| since.is_some())),
            time,
        };
        (situation, unreadable)
    }

    /// A marker counts whose slot says since when: earlier versions named owners whether they were available or not.
    fn evicted(&mut self, name: &str, marker: Option<&Marker>) -> Evicted<'a> {
        let none = marker.is_none_or(|marker| marker.evicted_owners.is_empty());
        match self.evicted.at(name) {
            _ if none || self.circumstances.durations.workloads.is_zero() => Evicted::Back,
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
        /// Stands for a marker that cannot be read: something is there, and the slot is kept.
        static UNREAD: Marker = Marker {
            shadow_uid: String::new(),
            attempt: 0,
            term: 0,
            excluded_at: None,
            drain_started_at: None,
            cordoned_at: None,
            tainted: false,
            drained_at: None,
            evicted_owners: Vec::new(),
        };
        let meta = kube::Resource::meta(node);
        let name = meta.name.as_deref().unwrap_or_default();
        NodeFacts {
            name,
            uid: meta.uid.as_deref().unwrap_or_default(),
            labelled: node.labelled(),
            ready: node.ready(),
            boot_id: node.boot_id(),
            version: node.version(),
            unschedulable: node.unschedulable(),
            excluded: node.excluded(),
            tainted: node.tainted(),
            marker: node.marker().unwrap_or_else(|why| {
                *unreadable = Some(why.to_owned());
                Some(&UNREAD)
            }),
            zone: node.zone(),
            paused: node.paused(),
            update_now: node.update_now(),
            agent_ready: agent.is_some_and(|agent| agent.ready_since.is_some()),
            runs_this_process: self.circumstances.own_node == Some(name),
        }
    }
}

/// Is there a schedulable node other than this one?
pub fn has_other_node(schedulable_nodes: usize, node: Option<&Arc<WatchedNode>>) -> bool {
    schedulable_nodes > usize::from(node.is_some_and(|node| node.takes_pods()))
}

fn owner_uid(shadow: &BottlerocketShadow) -> Option<&str> {
    shadow.owner_references().iter().find(|owner| owner.kind == "Node").map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests;
