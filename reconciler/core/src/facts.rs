//! What the reconciler decides on: plain values, joined by name, without clock or client.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use brupop_api::Marker;
use brupop_api::crds::SLOTS_MAX;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{AcknowledgedHalt, Slot, VersionRecord};
use brupop_api::marker::Before;
use brupop_api::names::DEFAULT_POOL;
use brupop_api::shadow::DrainObstacle;
use jiff::Timestamp;

use crate::objects::Words;
use crate::rules::{FailureBudget, Rules};
use crate::window::{Starts, Until};
use crate::workloads::Evicted;

/// What a zone is called that has no name.
pub(crate) const NO_ZONE: &str = "of no name";

/// What holds for the whole fleet.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct FleetFacts<'a> {
    /// The time, as it is written into objects. Of the decisions only those about halts depend on it.
    pub now: &'a str,
    /// The term in which this process believes that it leads.
    pub term: u64,
    /// The term in the ledger. Nothing may be written unless it equals `term`.
    pub ledger_term: Option<u64>,
    /// The UID of the fleet.
    pub uid: Option<&'a str>,
    /// The generation of the fleet's spec, of which `starts` and `acknowledged` are.
    pub generation: Option<u64>,
    /// The slots in use.
    pub slots: &'a BTreeMap<String, Slot>,
    /// What the ledger remembers of each version.
    pub versions: &'a BTreeMap<String, VersionRecord>,
    /// What it remembers of versions in single pools, by `<pool>/<version>`.
    pub pool_versions: &'a BTreeMap<String, VersionRecord>,
    /// When versions were first seen on two nodes at a time.
    pub seen: &'a BTreeMap<String, String>,
    /// The halts that a person lifts (`spec.acknowledgedHalts`).
    pub acknowledged: &'a [AcknowledgedHalt],
    /// After how many failed nodes a version is halted.
    pub budget: FailureBudget,
    /// How many nodes may be unavailable at once in the whole fleet.
    pub ceiling: u64,
    /// The pool of nodes that no `BottlerocketPool` selects.
    pub default_pool: &'a PoolFacts<'a>,
    /// All others, sorted by name.
    pub pools: &'a [PoolFacts<'a>],
    /// May new updates start?
    pub starts: Starts<'a>,
    /// Were our own admission rules seen to be in force? `starts` says this only if the fleet is not paused.
    pub enforced: bool,
    /// Was no other operator seen here?
    pub alone: bool,
    /// Are all labelled nodes Ready, and none in the cluster cordoned or about to be removed? If not, somebody may be draining one.
    pub all_in_service: bool,
    /// Must updates wait for a while after each one that ends?
    pub between_updates: BetweenUpdates,
    /// Are pods that are still there at the drain's deadline deleted, whatever their budgets say?
    pub force: bool,
}

/// What there is between two updates (`PAUSE_BETWEEN_UPDATES_SECONDS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetweenUpdates {
    /// They follow each other at once.
    NoPause,
    /// The last pause is over; the next one begins when an update ends.
    PauseIsOver,
    /// One ended not long ago, so the next one waits.
    Pausing,
    /// So it is, for a leader whose clock was ahead has written when; that is to be corrected.
    EndedAhead,
}

/// The facts.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// What holds for the whole fleet.
    pub fleet: FleetFacts<'a>,
    /// Each node that is opted in, carries our changes or has a shadow; sorted by name of the shadow.
    pub views: Vec<NodeView<'a>>,
    /// Views (by index) that cannot be interpreted, and why. They keep their slots; nothing is done for them.
    pub unreadable: BTreeMap<usize, String>,
    /// Labelled nodes for which no shadow can be created, because its name would be too long; by that name.
    pub too_long: Vec<&'a str>,
    /// How many nodes run Bottlerocket and are not opted in.
    pub not_opted_in: u64,
    /// The earliest time at which the clock alone changes a fact.
    pub next: Option<Timestamp>,
}

/// A slot, and the name of the shadow that it is for, as the ledger has it.
pub(crate) type NamedSlot<'a> = (&'a str, &'a Slot);

/// Finds values by name. Names are asked for in their order, and once each: to walk along both costs less than to search.
pub(crate) fn in_order<'a, T>(
    values: &'a BTreeMap<String, T>,
) -> impl FnMut(&str) -> Option<&'a T> + use<'a, T> {
    let mut values = values.iter().peekable();
    move |wanted| loop {
        match values.peek()?.0.as_str().cmp(wanted) {
            Ordering::Less => values.next(),
            Ordering::Equal => return values.next().map(|(_, value)| value),
            Ordering::Greater => return None,
        };
    }
}

impl<'a> FleetFacts<'a> {
    /// The pool that steers this node.
    pub fn pool_of(&self, view: &NodeView<'_>) -> Option<&'a PoolFacts<'a>> {
        match view.steering {
            Steering::Default => Some(self.default_pool),
            Steering::Pool(index) => self.pools.get(index),
            Steering::Conflict(_) | Steering::Nobody => None,
        }
    }

    /// How many nodes may be updated at once in all: never more than the ledger has room for.
    pub fn total_limit(&self) -> u64 {
        let all = self.pools.iter().chain([self.default_pool]);
        let with_nodes = all.filter(|pool| pool.nodes > 0 || self.pools.is_empty());
        with_nodes.map(|pool| pool.limit).fold(0, u64::saturating_add).min(self.ceiling).min(SLOTS_MAX)
    }

    /// Does this node wait because an update ended not long ago, or because one ends now?
    pub(crate) fn must_pause(&self, node: &NodeFacts<'_>, ends_now: bool) -> bool {
        let pauses = match self.between_updates {
            BetweenUpdates::NoPause => false,
            BetweenUpdates::PauseIsOver => ends_now,
            BetweenUpdates::Pausing | BetweenUpdates::EndedAhead => true,
        };
        pauses && !node.update_now
    }
}

/// A pool, as decisions see it.
#[derive(Clone, Debug)]
pub struct PoolFacts<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// How many opted-in nodes it owns.
    pub nodes: u64,
    /// How many of its nodes may be unavailable at once.
    pub limit: u64,
    /// Does it keep two of its zones from being unavailable together?
    pub one_zone_at_a_time: bool,
    /// Does it let updates start now?
    pub starts: Starts<'a>,
    /// Does it let updates that have begun go on to the cordon?
    pub goes_on: Starts<'a>,
    /// Has it gates?
    pub has_gates: bool,
    /// Of its gates one that is not open.
    pub gate: Option<ClosedGate<'a>>,
    /// The window that is open, or the next one.
    pub next_window: Option<(Timestamp, Timestamp)>,
    /// Its rules, if they can be understood.
    pub rules: Option<&'a Rules>,
    /// For each version that the ledger knows: the first of the pools that go first and are not done with it for long
    /// enough; `None` = all are.
    pub waits_for: BTreeMap<&'a str, Option<FirstPool<'a>>>,
    /// A pool that goes first, by name, if there is none of this name: it is never done.
    pub missing: Option<&'a str>,
    /// For each version that is known, if the pool lets versions ripen: until when; `None` = it is old enough.
    pub ripens: BTreeMap<&'a str, Option<Until>>,
}

impl<'a> PoolFacts<'a> {
    /// A default pool with one node, in which one may be updated at any time.
    pub const DEFAULT: Self = Self {
        name: DEFAULT_POOL,
        nodes: 1,
        limit: 1,
        one_zone_at_a_time: false,
        starts: Starts::Open,
        goes_on: Starts::Open,
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
            return Some(FirstPool { pool, standing: FirstPoolStanding::Missing });
        }
        let first = || {
            let pool = self.rules?.after.first()?.0.as_str();
            Some(FirstPool { pool, standing: FirstPoolStanding::NotDone })
        };
        self.waits_for.get(version).copied().unwrap_or_else(first)
    }

    /// Until when this version is too young for the pool, if it is.
    pub(crate) fn ripens(&self, version: &str) -> Option<Until> {
        let unknown = || self.rules?.min_age.is_positive().then_some(Until::Unknown);
        self.ripens.get(version).copied().unwrap_or_else(unknown)
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
    /// It is not done.
    NotDone,
    /// A node of it runs an older version and does not ask for this one.
    Behind(&'a str),
    /// It is done, and has been for long enough at this time.
    Soaking(Timestamp),
}

/// A gate that is not open, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedGate<'a> {
    /// Something is wrong, or was so not long ago.
    Closed(&'a str),
    /// Nobody knows.
    Unknown(&'a str),
    /// Nobody knows, but that may be because this leader is new.
    Awaited(&'a str),
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
}

/// Which pool says how and when a node is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering<'a> {
    /// The default pool.
    #[default]
    Default,
    /// The `BottlerocketPool` with this index.
    Pool(usize),
    /// These contend for it, so none does.
    Conflict(&'a str),
    /// None selects it, and the fleet says to hold such nodes.
    Nobody,
}

/// One node, its shadow and its slot, joined by name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeView<'a> {
    /// Name of the shadow, also when there is none.
    pub shadow_name: &'a str,
    /// Which pool steers it.
    pub steering: Steering<'a>,
    /// The Node; `None` when it is gone.
    pub node: Option<NodeFacts<'a>>,
    /// The shadow; `None` when there is none.
    pub shadow: Option<ShadowFacts<'a>>,
    /// Its Node, the marker or its shadow cannot be read: it keeps its slot, and nothing follows from the rest.
    pub unreadable: bool,
    /// UID in the shadow's owner reference to its Node.
    pub owner_uid: Option<&'a str>,
    /// The pods on the node that a drain concerns.
    pub pods: PodFacts<'a>,
    /// Why the API server takes no change of the Node, if that is so.
    pub denied: Option<&'a str>,
    /// The workloads whose pods were evicted from the node.
    pub evicted: Evicted<'a>,
    /// Another zone of its pool in which a node is out of service, or has a slot and comes first, if the pool keeps zones
    /// apart.
    pub busy_zone: Option<&'a str>,
    /// If it is of the control plane: another node of it that is out of service, or has a slot, too, and comes first.
    pub busy_control_plane: Option<&'a str>,
    /// What the clock says.
    pub time: TimeFacts,
}

/// A Node, as decisions see it. All fields come from one version of the object.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct NodeFacts<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// Opted in by its label.
    pub labelled: bool,
    /// The condition Ready is True.
    pub ready: bool,
    /// `status.nodeInfo.bootID`.
    pub boot_id: &'a str,
    /// The Bottlerocket version in `status.nodeInfo.osImage`.
    pub version: Option<&'a str>,
    /// And the variant.
    pub variant: Option<&'a str>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Is it a node of the control plane? Of these at most one is out of service at a time.
    pub control_plane: bool,
    /// Its kubelet says that volumes are in use there (`status.volumesInUse`).
    pub volumes_in_use: bool,
    /// Carries the label that keeps it out of load balancers.
    pub excluded: bool,
    /// Carries our taint.
    pub tainted: bool,
    /// The annotation that keeps Karpenter from disrupting it, if it is there.
    pub do_not_disrupt: Option<Words>,
    /// The annotation that keeps the cluster autoscaler from removing it, if it is there.
    pub scale_down_disabled: Option<Words>,
    /// It is being deleted, or an autoscaler says that it removes it.
    pub leaving: bool,
    /// What we changed on it.
    pub marker: Option<&'a Marker>,
    /// Its zone, or what its pool takes for one (`spec.topology`).
    pub zone: Option<&'a str>,
    /// A person paused this node by its annotation.
    pub paused: bool,
    /// A person asked for this node's update now, regardless of the window; a back-off still applies.
    pub update_now: bool,
    /// The pod of its agent is Ready.
    pub agent_ready: bool,
    /// It has so many labels or annotations that the API server might refuse changes of it.
    pub overgrown: bool,
    /// This process runs on it.
    pub runs_this_process: bool,
}

/// A Node that the operator does not manage: not opted in, not changed by us, and without a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmanagedNode<'a> {
    /// Name of the shadow that it would have.
    pub shadow_name: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// The value of the opt-in label. A value other than ours means that somebody wants the node left out.
    pub label: Option<&'a str>,
    /// `status.nodeInfo.osImage`.
    pub os_image: &'a str,
    /// It was created not long ago, so that its labels may not be complete.
    pub young: bool,
}

/// Pods of a node.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct PodFacts<'a> {
    /// They are watched, and known. (`undrainable` and `blocked` are remembered for a while, so they may be set without this.)
    pub known: bool,
    /// There are too many of them to be known.
    pub too_many: bool,
    /// Why no drain could empty the node, as its pods and their budgets are now.
    pub undrainable: Option<&'a str>,
    /// Which budget allows no disruption that a drain needs, as of now.
    pub blocked: Option<&'a str>,
    /// One has not done so for as long as a drain may take.
    pub blocked_for_long: bool,
    /// No pod is left that a drain would evict.
    pub drained: bool,
    /// The workloads whose pods would be evicted; only those that are available now.
    pub owners: &'a [String],
    /// How each of them is now.
    pub owners_before: &'a [Before],
    /// The workloads whose pods have come back to the node each time that they were evicted.
    pub returning: &'a [String],
    /// A pod that would be left on the node, for it or its like came back each time, is covered by a budget. Says which.
    pub needed: Option<&'a str>,
    /// What the drain of the node fails on if it fails now.
    pub failing: Option<&'a DrainObstacle>,
    /// Pods that should have been gone by then are not waited for any more.
    pub overlooked: Option<Timestamp>,
    /// No other pod is left to evict, so it is the turn of these pods of the operator itself, which no marker lists yet.
    /// Their UIDs.
    pub operator_pods: &'a [String],
}

/// What the clock says about one node. [`crate::observe`] makes these from times.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct TimeFacts {
    /// The node is kept out of load balancers for a while before it is cordoned.
    pub exclude: bool,
    /// The node has been out of load balancers for long enough.
    pub exclusion_over: bool,
    /// The node failed not long ago.
    pub backing_off: bool,
    /// The node was created not long ago.
    pub young: bool,
    /// The current step takes longer than it may.
    pub step_overdue: bool,
    /// For longer than a short step may take, the agent has said that the host's API does not answer; no reboot is claimed.
    pub host_silent: bool,
    /// The drain, or the time from its end to the grant, takes longer than it may.
    pub drain_overdue: bool,
    /// The node has been seen empty for so long that its reboot waits for volumes no more.
    pub volumes_overdue: bool,
    /// The node has been watched for long enough after its update.
    pub soak_over: bool,
    /// The node has not been Ready for so long, since its host began its reboot, that it may be lost.
    pub not_ready_for_long: bool,
    /// The node, which keeps annotations for autoscalers, has not been Ready for so long that somebody may want to replace it.
    pub kept_is_lost: bool,
    /// The node has kept its annotations for as long as staging may take, which is the longest that another waits for it.
    pub kept_for_long: bool,
    /// Somebody else has cordoned the node not long ago, perhaps to drain it.
    pub cordoned_lately: bool,
    /// The Node is gone, and its update has ended, or its soak begun, not longer ago than staging may take.
    pub removed_soon: bool,
    /// Evicted workloads have had long enough to be available again.
    pub workloads_overdue: bool,
    /// The current step takes longer than it may; or the slot has been held for longer than a short step may take, and the
    /// host has not staged the update.
    pub trial_overdue: bool,
    /// For how many seconds the slot has been held, if that is known.
    pub slot_seconds: Option<u64>,
    /// The slot is held for longer than the current step, and what follows its deadline, may take.
    pub slot_overdue: bool,
    /// A leader whose clock was ahead has written when the step began: that has not come yet, and counts as now.
    pub transition_ahead: bool,
}

impl<'a> NodeView<'a> {
    /// Nothing is there of this name.
    pub fn nothing(shadow_name: &'a str) -> Self {
        Self { shadow_name, ..Self::default() }
    }

    /// The slot of this shadow, if the ledger's slot of that name has this shadow's UID.
    pub fn slot(&self, fleet: &FleetFacts<'a>) -> Option<&'a Slot> {
        fleet.slots.get(self.shadow_name).filter(|slot| self.holds(slot))
    }

    /// Is this slot, which has the shadow's name, for this very shadow?
    pub(crate) fn holds(&self, slot: &Slot) -> bool {
        self.shadow.is_some_and(|shadow| shadow.uid == slot.uid)
    }

    /// Does the node carry changes of ours that are not undone?
    pub fn marked(&self) -> bool {
        self.node.and_then(|node| node.marker).is_some_and(Marker::holds_changes)
    }
}

impl NodeFacts<'_> {
    /// Is nothing left on it of an update? Annotations that are kept for the pods of other nodes are not.
    pub(crate) fn is_tidy(&self) -> bool {
        self.marker.is_none_or(Marker::is_kept)
    }
}

/// Is the node out of service?
pub(crate) fn is_unavailable(view: &NodeView<'_>) -> bool {
    // Nobody knows whether we have cordoned what cannot be read.
    let unknown = |node: NodeFacts<'_>| view.unreadable && node.unschedulable;
    let by_itself = |node: NodeFacts<'_>| node.labelled && (!node.ready || view.time.cordoned_lately);
    view.node.is_some_and(|node| by_itself(node) || unknown(node)) || view.marked()
}

impl FleetFacts<'static> {
    /// A fleet that is led, without slots, in which one node may be updated at once: for tests and the model to vary.
    pub const EXAMPLE: Self = Self {
        now: "2026-11-21T04:00:00Z",
        term: 4,
        ledger_term: Some(4),
        uid: Some("fleet-uid"),
        generation: Some(5),
        slots: &BTreeMap::new(),
        versions: &BTreeMap::new(),
        pool_versions: &BTreeMap::new(),
        seen: &BTreeMap::new(),
        acknowledged: &[],
        budget: FailureBudget::DEFAULT,
        enforced: true,
        alone: true,
        force: false,
        all_in_service: true,
        between_updates: BetweenUpdates::NoPause,
        ceiling: SLOTS_MAX,
        default_pool: &PoolFacts::DEFAULT,
        pools: &[],
        starts: Starts::Open,
    };
}

impl NodeFacts<'static> {
    /// A node that is labelled, Ready and in service, with its agent: for tests and the model to vary.
    pub const EXAMPLE: Self = Self {
        name: "n",
        uid: "node-n",
        labelled: true,
        ready: true,
        boot_id: "boot-1",
        version: Some("1.0.0"),
        variant: None,
        unschedulable: false,
        control_plane: false,
        volumes_in_use: false,
        excluded: false,
        tainted: false,
        do_not_disrupt: None,
        scale_down_disabled: None,
        leaving: false,
        marker: None,
        zone: None,
        paused: false,
        update_now: false,
        agent_ready: true,
        overgrown: false,
        runs_this_process: false,
    };
}
