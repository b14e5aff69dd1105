//! The facts that the reconciler decides on: plain values, joined by name, without clock or client.

use std::collections::BTreeMap;

use brupop_api::crds::SLOTS_MAX;
use brupop_api::fleet::{DonePool, FailureThreshold, ResumedVersion, Slot, VersionRecord};
use brupop_api::item::Unreadable;
use brupop_api::shadow::{LastFailure, ShadowFacts};
use brupop_api::{Marker, State};

use crate::cluster::LedNode;
use crate::drain::{Obstacle, TOO_MANY_PODS};
use crate::objects::Clock;
use crate::objects::NodeFacts;

use crate::objects::Ahead;
use crate::pool::Release;
pub use crate::pool::{FirstPool, Owner, PoolFacts, Pools};
use crate::workloads::Evicted;

/// Name of the zone of nodes without the label.
pub(crate) const NO_ZONE: &str = "of no name";

/// Facts of the whole fleet.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct FleetFacts<'a> {
    /// The time, as it is written into objects. Of the decisions only those about halts depend on it.
    pub now: &'a str,
    /// The times that earlier passes have seen ahead.
    pub ahead: &'a Ahead,
    /// The term in which this process believes that it leads.
    pub term: u64,
    /// The term in the ledger. Nothing may be written unless it equals `term`.
    pub ledger_term: Option<u64>,
    /// The UID of the fleet.
    pub uid: Option<&'a str>,
    /// The generation of the fleet's spec, of which `paused` and `resumed` are.
    pub generation: Option<u64>,
    pub slots: &'a BTreeMap<String, Slot>,
    /// The ledger's records of versions and variants, the oldest first.
    pub versions: &'a [VersionRecord],
    /// The versions that each pool has finished.
    pub done_pools: &'a [DonePool],
    /// The halts that a person ends (`spec.resumedVersions`).
    pub resumed: &'a [ResumedVersion],
    /// After how many failed nodes a version is halted.
    pub threshold: FailureThreshold,
    /// Number of nodes that may be unavailable at once in the whole fleet.
    pub ceiling: u64,
    /// The pool of nodes that no `BottlerocketPool` selects.
    pub default_pool: &'a PoolFacts<'a>,
    /// All others, sorted by name.
    pub pools: &'a [PoolFacts<'a>],
    /// Whether a person has paused the fleet.
    pub paused: bool,
    /// The first pool that is not read, if there are too many: then no update begins.
    pub pool_left_out: Option<&'a str>,
    /// Whether our own admission rules were seen to be in force.
    pub enforced: bool,
    /// Whether no other operator was seen here.
    pub alone: bool,
}

#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Facts of the whole fleet.
    pub fleet: FleetFacts<'a>,
    /// Each node that is opted in, carries our changes or has a shadow; sorted by name of the shadow.
    pub views: Vec<NodeView<'a>>,
    /// Labelled nodes for which no shadow can be created, because its name would be too long; by that name.
    pub too_long: Vec<&'a str>,
    /// Number of nodes that run Bottlerocket and are not opted in.
    pub not_opted_in: u64,
    /// The clock that was asked for all of these facts.
    pub clock: Clock<'a>,
}

/// The record of this version and variant.
pub(crate) fn record_of<'r>(
    records: &'r [VersionRecord],
    (version, variant): Release<'_>,
) -> Option<&'r VersionRecord> {
    records.iter().find(|it| it.is_of(version, variant))
}

/// Whether the version is halted for the variant by these records.
pub(crate) fn is_halted(records: &[VersionRecord], release: Release<'_>) -> bool {
    record_of(records, release).is_some_and(|record| record.halted_at.is_some())
}

impl<'a> FleetFacts<'a> {
    /// The `BottlerocketPool` of this name.
    pub(crate) fn pool(&self, name: &str) -> Option<&'a PoolFacts<'a>> {
        self.pools
            .binary_search_by_key(&name, |pool| pool.name)
            .ok()
            .and_then(|at| self.pools.get(at))
    }

    /// The pool that owns this node.
    pub fn pool_of(&self, view: &NodeView<'_>) -> Option<&'a PoolFacts<'a>> {
        match view.owner {
            Owner::DefaultPool => Some(self.default_pool),
            Owner::Pool(index) => self.pools.get(index),
            Owner::Conflict(..) | Owner::Unknown => None,
        }
    }

    /// The name of the `BottlerocketPool` with this index.
    pub(crate) fn pool_name(&self, index: usize) -> &'a str {
        self.pools.get(index).map_or("", |pool| pool.name)
    }

    /// Whether this version is halted for the variant of this node.
    pub(crate) fn is_halted_for(&self, view: &NodeView<'_>, version: &str) -> bool {
        view.node
            .is_some_and(|node| is_halted(self.versions, (version, node.variant())))
    }

    /// The time of the halt that a person ends for the version and variant of this record.
    pub(crate) fn named_for(&self, record: &VersionRecord) -> Option<&'a str> {
        let mut resumed = self.resumed.iter();
        let named = resumed.find(|it| record.is_of(&it.version, &it.variant));
        named.map(|resumed| resumed.halted_at.as_str())
    }

    /// Whether this process leads, as the ledger says.
    pub(crate) fn is_led(&self) -> bool {
        self.ledger_term == Some(self.term)
    }

    /// Returns how many nodes may be updated at once in all: never more than the ledger has room for.
    pub fn total_limit(&self) -> u64 {
        let all = self.pools.iter().chain([self.default_pool]);
        let with_nodes = all.filter(|pool| pool.nodes > 0 || self.pools.is_empty());
        with_nodes
            .map(|pool| pool.limit)
            .fold(0, u64::saturating_add)
            .min(self.ceiling)
            .min(SLOTS_MAX)
    }
}

impl FleetFacts<'static> {
    /// A fleet that is led, without slots, in which one node may be updated at once: for tests and the model to vary.
    pub const EXAMPLE: Self = Self {
        now: "2026-11-21T04:00:00Z",
        ahead: Ahead::NONE,
        term: 4,
        ledger_term: Some(4),
        uid: Some("fleet-uid"),
        generation: Some(5),
        slots: &BTreeMap::new(),
        versions: &[],
        done_pools: &[],
        resumed: &[],
        threshold: FailureThreshold::DEFAULT,
        enforced: true,
        alone: true,
        ceiling: SLOTS_MAX,
        default_pool: &PoolFacts::DEFAULT,
        pools: &[],
        paused: false,
        pool_left_out: None,
    };
}

/// One node, its shadow and its slot, joined by name.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct NodeView<'a> {
    /// Name of the shadow, also when there is none.
    pub shadow_name: &'a str,
    pub owner: Owner,
    /// The Node; `None` when it is gone.
    pub node: Option<&'a NodeFacts>,
    /// Its zone, or what its pool takes for one (`spec.topology`).
    pub zone: Option<&'a str>,
    /// The pod of its agent is Ready.
    pub agent_ready: bool,
    /// This process runs on it.
    pub runs_this_process: bool,
    /// The shadow; `None` when there is none.
    pub shadow: Option<ShadowFacts<'a>>,
    /// Why its shadow cannot be read, if that is so.
    pub unreadable_shadow: Option<Unreadable>,
    /// The slot of this name, which may be for an earlier shadow.
    pub slot: Option<&'a Slot>,
    /// UID in the shadow's owner reference to its Node.
    pub owner_uid: Option<&'a str>,
    /// The leader's knowledge of the node: its drain, what stands in the way of that, what is denied.
    pub led: &'a LedNode,
    /// Whether pods that are left at the drain's deadline are deleted, whatever their budgets say.
    pub force: bool,
    /// The workloads whose pods were evicted from the node.
    pub evicted: Evicted<'a>,
    /// Another zone of its pool in which a node is out of service, or has a slot and comes first, if the pool keeps zones
    /// apart.
    pub busy_zone: Option<&'a str>,
    /// If it is of the control plane: another node of it that is out of service, or has a slot, too, and comes first.
    pub busy_control_plane: Option<&'a str>,
    pub time: TimeFacts,
}

/// Facts of one node that [`crate::observe`] computes from times and settings.
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
    /// For longer than a short step may take, the agent has said that the host cannot update; no reboot is claimed.
    pub cannot_update: bool,
    /// The drain, or the time from its end to the grant, takes longer than it may.
    pub drain_overdue: bool,
    /// The node's volumes have not become fewer for so long that its reboot waits for them no more.
    pub volumes_overdue: bool,
    /// The node has been watched for long enough after its update.
    pub verified: bool,
    /// The node has not been Ready for so long that somebody may want to replace it.
    pub lost: bool,
    /// The node has not been Ready for so long that a deletion of its Node is taken for a repair.
    pub missing: bool,
    /// The node has kept its annotations for as long as any node does.
    pub kept_for_long: bool,
    /// Somebody else has cordoned the node not long ago, perhaps to drain it.
    pub cordoned_lately: bool,
    /// The Node is gone, and its update has ended, or its soak begun, not long ago.
    pub removed_soon: bool,
    /// Evicted workloads have had long enough to be available again.
    pub workloads_overdue: bool,
    /// The current step takes longer than it may; or the slot has been held for longer than a short step may take, and the
    /// update has not begun.
    pub trial_overdue: bool,
    /// Seconds for which the slot has been held, if known.
    pub slot_seconds: Option<u64>,
    /// The slot is held for longer than the current step, and what follows its deadline, may take.
    pub slot_overdue: bool,
}

impl<'a> NodeView<'a> {
    /// Nothing is there of this name.
    pub fn nothing(shadow_name: &'a str) -> Self {
        Self {
            shadow_name,
            ..Self::default()
        }
    }

    /// Whether its Node, the marker or its shadow cannot be read: it keeps its slot, and nothing follows from the rest.
    pub(crate) fn is_unreadable(&self) -> bool {
        let marker = self.node.and_then(|node| node.marker.as_ref());
        self.unreadable_shadow.is_some() || marker.is_some_and(Result::is_err)
    }

    /// Returns the view with the slot of its name in this fleet: for tests and the model.
    #[must_use]
    pub fn with_slot_of(self, fleet: &FleetFacts<'a>) -> Self {
        let slot = fleet.slots.get(self.shadow_name);
        Self { slot, ..self }
    }

    /// The slot, if it is for this very shadow.
    pub fn held(&self) -> Option<&'a Slot> {
        self.slot.filter(|slot| self.holds(slot))
    }

    /// Whether this slot, which has the shadow's name, is for this very shadow.
    pub(crate) fn holds(&self, slot: &Slot) -> bool {
        self.shadow.is_some_and(|shadow| shadow.uid == slot.uid)
    }

    /// The failure with which the attempt of this slot has ended, if it has.
    pub(crate) fn failure_in(&self, slot: &Slot) -> Option<&'a LastFailure> {
        let failure = self.shadow?.spec.last_failure.as_ref();
        failure.filter(|failure| failure.attempt == slot.attempt)
    }

    /// The version to which a slot taken now would let this node be updated, and its variant.
    pub(crate) fn release(&self) -> Option<Release<'a>> {
        let shadow = self.shadow?;
        let version = match shadow.spec.state {
            State::Idle => shadow.update(),
            _ => shadow.spec.version.as_deref(),
        };
        Some((version?, self.node?.variant()))
    }

    /// Whether its Node was deleted soon after its update: perhaps an autoscaler removes what is updated.
    pub fn is_removed_after_update(&self) -> bool {
        self.shadow.is_some_and(|ShadowFacts { spec, status, .. }| {
            let in_service = matches!(spec.state, State::Idle | State::MonitoringUpdate);
            let updated = spec.version.is_some() && status.current_version == spec.version;
            self.node.is_none() && in_service && updated && self.time.removed_soon
        })
    }

    /// Returns why no drain could empty the node, as its pods and their budgets are now, if that is so.
    pub(crate) fn undrainable(&self) -> Option<&'a str> {
        match self.led.obstacle.as_ref()? {
            Obstacle::Never(why) if !self.force => Some(why),
            Obstacle::TooManyPods => Some(TOO_MANY_PODS),
            Obstacle::Never(_) | Obstacle::Budget { .. } => None,
        }
    }

    /// Returns the budget that the node waits for before its drain begins, if one allows no disruption now.
    pub(crate) fn awaited_budget(&self) -> Option<&'a str> {
        match self.led.obstacle.as_ref()? {
            Obstacle::Budget { why, waited } if !self.force && !waited => Some(why),
            _ => None,
        }
    }

    /// Whether the Node that owns the shadow has lost its label.
    pub(crate) fn is_opted_out(&self) -> bool {
        self.node.is_some_and(|node| {
            !node.labelled && self.owner_uid.is_none_or(|uid| uid == node.uid.as_str())
        })
    }

    /// The person's number, if it is of no more use: the node has failed again since, or succeeded.
    pub(crate) fn past_retry(&self) -> Option<u64> {
        let (retry, shadow) = self.node.and_then(|node| node.retry).zip(self.shadow)?;
        (Some(retry) < shadow.spec.attempt && !shadow.spec.is_retried(Some(retry))).then_some(retry)
    }

    /// Whether its agent has reported in the boot in which the Node is.
    pub(crate) fn has_reported(&self) -> bool {
        self.node.zip(self.shadow).is_some_and(|(node, shadow)| {
            shadow.status.current_version.is_some()
                && shadow.status.boot_id.as_deref() == Some(node.boot_id())
        })
    }

    /// Whether the node carries changes of ours that are not undone.
    pub fn marked(&self) -> bool {
        self.node
            .and_then(NodeFacts::marker)
            .is_some_and(Marker::holds_changes)
    }
}

/// Whether the node is out of service.
pub(crate) fn is_unavailable(view: &NodeView<'_>) -> bool {
    // Nobody knows whether we have cordoned what cannot be read.
    let unknown = |node: &NodeFacts| view.is_unreadable() && node.unschedulable;
    let by_itself =
        |node: &NodeFacts| node.labelled && (!node.is_ready() || view.time.cordoned_lately);
    view.node
        .is_some_and(|node| by_itself(node) || unknown(node))
        || view.marked()
}
