//! What the reconciler decides on: plain values, joined by name, without clock or client.

mod node;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use brupop_api::crds::SLOTS_MAX;
use brupop_api::fleet::{DonePool, FailureThreshold, ResumedVersion, Slot, VersionRecord};
use jiff::Timestamp;

use crate::times::Ahead;
use crate::window::Starts;

pub use crate::pool::{FirstPool, FirstPoolStanding, PoolFacts, Pools};
pub(crate) use node::is_unavailable;
pub use node::{NodeView, Owner, PodFacts, TimeFacts, UnmanagedNode};

/// What a zone is called that has no name.
pub(crate) const NO_ZONE: &str = "of no name";

/// What holds for the whole fleet.
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
    /// The generation of the fleet's spec, of which `starts` and `resumed` are.
    pub generation: Option<u64>,
    /// The slots in use.
    pub slots: &'a BTreeMap<String, Slot>,
    /// What the ledger remembers of each version and variant, the oldest first.
    pub versions: &'a [VersionRecord],
    /// Which pools are done with which versions.
    pub done_pools: &'a [DonePool],
    /// The halts that a person ends (`spec.resumedVersions`).
    pub resumed: &'a [ResumedVersion],
    /// After how many failed nodes a version is halted.
    pub threshold: FailureThreshold,
    /// How many nodes may be unavailable at once in the whole fleet.
    pub ceiling: u64,
    /// The pool of nodes that no `BottlerocketPool` selects.
    pub default_pool: &'a PoolFacts<'a>,
    /// All others, sorted by name.
    pub pools: &'a [PoolFacts<'a>],
    /// Whether new updates may start.
    pub starts: Starts<'a>,
    /// The first pool that is not read, if there are too many: then no update begins.
    pub pool_left_out: Option<&'a str>,
    /// Whether our own admission rules were seen to be in force. `starts` says this only if the fleet is not paused.
    pub enforced: bool,
    /// Whether no other operator was seen here.
    pub alone: bool,
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
    /// The times that were ahead when this leader first saw them: what the next pass has to know.
    pub ahead: Ahead,
}

/// A version, and the variant of the nodes that are to run it.
pub(crate) type Release<'a> = (&'a str, &'a str);

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

    /// How many nodes may be updated at once in all: never more than the ledger has room for.
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
        starts: Starts::Open,
        pool_left_out: None,
    };
}
