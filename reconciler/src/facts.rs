//! What the reconciler decides on: small values without clock, client or names that matter.

use std::collections::BTreeMap;

use brupop_api::Marker;
use brupop_api::facts::ShadowFacts;
use brupop_api::fleet::{Slot, VersionRecord};

/// What holds for the whole fleet.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct FleetFacts<'a> {
    /// The time, as it is written into objects; nothing is decided on it.
    pub now: &'a str,
    /// The term in which this process believes to lead.
    pub term: u64,
    /// The term that stands in the ledger; no write may be made unless it is ours.
    pub ledger_term: Option<u64>,
    /// The slots in use.
    pub slots: &'a BTreeMap<String, Slot>,
    /// What became of each version.
    pub versions: &'a BTreeMap<String, VersionRecord>,
    /// The versions whose halt a person lifts.
    pub resume: &'a [String],
    /// How many nodes may fail to reach a version before it is halted.
    pub budget: FailureBudget,
    /// How many nodes may be updated at once; `None` = unlimited.
    pub limit: Option<u64>,
    /// May new updates start?
    pub gate: Gate,
    /// Were our own admission rules seen to be in force? Unlike `gate`, this says so of a paused fleet, too.
    pub enforced: bool,
    /// Seconds that an update usually takes, from slot to slot, once one has ended well.
    pub typical_seconds: Option<u64>,
    /// Each labelled node is Ready.
    pub all_ready: bool,
    /// An update ended not long ago, and another one has to wait for that.
    pub resting: bool,
    /// Are nodes excluded from load balancers before they are cordoned?
    pub exclude: bool,
    /// Are pods that still stand at the drain's deadline deleted, whatever their budgets say?
    pub force: bool,
}

impl FleetFacts<'_> {
    /// Does this node wait because an update ended not long ago?
    pub fn rests(&self, node: &NodeFacts<'_>) -> bool {
        self.resting && !node.update_now
    }
}

/// With how many failed nodes a version is halted; `None` = never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureBudget {
    /// While no node has reached it.
    pub unproven: Option<u64>,
    /// Once a node has reached it.
    pub proven: Option<u64>,
}

impl Default for FailureBudget {
    fn default() -> Self {
        Self { unproven: Some(1), proven: Some(2) }
    }
}

/// May new updates start anywhere?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Open,
    /// A person paused the fleet.
    Paused,
    /// The schedule's window is shut.
    OutsideWindow,
    /// Our own admission rules were not seen to be in force.
    AdmissionNotEnforced,
}

/// One node, its shadow and its slot, joined by name.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Name of the shadow, also when there is none.
    pub shadow_name: &'a str,
    /// The Node; `None` when it is gone.
    pub node: Option<NodeFacts<'a>>,
    /// The shadow; `None` when there is none.
    pub shadow: Option<ShadowFacts<'a>>,
    /// UID in the shadow's owner reference to its Node.
    pub owner_uid: Option<&'a str>,
    /// The pods on the node that a drain concerns.
    pub pods: PodFacts<'a>,
    /// The workloads whose pods were evicted from the node.
    pub evicted: Evicted<'a>,
    /// What the clock says.
    pub time: TimeFacts,
}

/// A Node as decisions see it; all of it from one version of the object.
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
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Carries the label that keeps it out of load balancers.
    pub excluded: bool,
    /// Carries our taint.
    pub tainted: bool,
    /// What we changed on it.
    pub marker: Option<&'a Marker>,
    /// Its zone.
    pub zone: Option<&'a str>,
    /// A person paused this node by its annotation.
    pub paused: bool,
    /// A person asked for this node's update now, whatever the window; a back-off holds all the same.
    pub update_now: bool,
    /// The pod of its agent is Ready.
    pub agent_ready: bool,
    /// This process runs on it.
    pub runs_this_process: bool,
}

/// A Node that is not looked after: neither opted in nor changed by us, and without a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outsider<'a> {
    /// Name of the shadow that it would have.
    pub shadow_name: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// What stands in the label that opts in; whoever wrote something else than we would wants the node left out.
    pub label: Option<&'a str>,
    /// `status.nodeInfo.osImage`.
    pub os_image: &'a str,
    /// It was made not long ago, and whoever makes nodes may not be done with its labels.
    pub young: bool,
}

#[cfg(test)]
impl NodeFacts<'static> {
    /// Labelled, Ready, in service, with its agent: for tests to vary.
    pub(crate) const PLAIN: Self = Self {
        name: "n",
        uid: "node-n",
        labelled: true,
        ready: true,
        boot_id: "boot-1",
        version: Some("1.0.0"),
        unschedulable: false,
        excluded: false,
        tainted: false,
        marker: None,
        zone: None,
        paused: false,
        update_now: false,
        agent_ready: true,
        runs_this_process: false,
    };
}

/// Pods of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodFacts<'a> {
    /// They are watched, and known. (`undrainable` is remembered for a while, so it may be set without this.)
    pub known: bool,
    /// Why no drain could empty the node, as its pods and their budgets are now.
    pub undrainable: Option<&'a str>,
    /// None is left that a drain would evict.
    pub drained: bool,
    /// The workloads whose pods would be evicted, as far as they are available now.
    pub owners: &'a [String],
    /// There is a schedulable node other than this one.
    pub has_other_node: bool,
}

/// How the workloads are whose pods were evicted from a node, and that were available then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evicted<'a> {
    /// They are available again, or there are none.
    #[default]
    Back,
    /// This one is not, `<apiVersion>/<kind>/<namespace>/<name>`.
    Missing(&'a str),
    /// They have not been looked at yet.
    Unknown,
}

/// What the clock says of one node; [`crate::observe`] turns times into these.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct TimeFacts {
    /// The node has been out of load balancers for long enough.
    pub exclusion_over: bool,
    /// The node failed not long ago.
    pub backing_off: bool,
    /// The node was made not long ago.
    pub young: bool,
    /// The present step takes longer than it may.
    pub step_overdue: bool,
    /// The drain, or what is between it and the grant, takes longer than it may.
    pub drain_overdue: bool,
    /// The node has been watched for long enough after its update.
    pub soak_over: bool,
    /// Evicted workloads have had long enough to be available again.
    pub workloads_overdue: bool,
    /// For how many seconds the slot has been held, if that is known.
    pub slot_seconds: Option<u64>,
}

impl<'a> Situation<'a> {
    /// The slot of this shadow, if the ledger's is for this very object.
    pub fn slot(&self, fleet: &FleetFacts<'a>) -> Option<&'a Slot> {
        let shadow = self.shadow?;
        fleet.slots.get(self.shadow_name).filter(|slot| slot.uid == shadow.uid)
    }

    /// The node carries changes of ours that are not undone.
    pub fn marked(&self) -> bool {
        self.node.and_then(|node| node.marker).is_some_and(Marker::holds_changes)
    }
}
