//! Pools: which nodes each selects and its rules, as they are watched; and what decisions see of them at one time.

use std::collections::BTreeMap;

use brupop_api::item::{self, Readable, Unreadable};
use brupop_api::names::DEFAULT_POOL;
use brupop_api::pool::{BottlerocketPoolSpec, Gate};
use brupop_api::{BottlerocketPool, BottlerocketPoolStatus, Item};
use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::objects::Clock;
use crate::rules::{GateState, Rules};
use crate::window::{Span, Starts, Until};

/// A version, and the variant of the nodes that are to run it.
pub(crate) type Release<'a> = (&'a str, &'a str);

/// The pool that owns a node. It decides how and when the node is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The default pool, because no `BottlerocketPool` selects it.
    #[default]
    DefaultPool,
    /// The `BottlerocketPool` with this index, in the order of their names.
    Pool(usize),
    /// None, because these two select it with the same, highest priority.
    Conflict(usize, usize),
    /// Not known yet, so no update starts.
    Unknown,
}

/// A pool as it is watched.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The metadata: namespace, name, UID, generation.
    pub metadata: ObjectMeta,
    /// The status, to tell what is stored already. No decision reads it.
    pub stored: BottlerocketPoolStatus,
    /// The nodes that it selects; `None` = nobody knows, so it holds all.
    pub selector: Option<Selector>,
    /// Of the pools that select a node, the one of the highest priority owns it.
    pub priority: u64,
    /// A person paused it, as far as the spec can be read.
    pub paused: bool,
    /// Its rules for these nodes; or why they cannot be understood.
    pub rules: Result<Rules, String>,
}

/// Maximum number of pools that are read, the first by name. While there are more, no update begins.
pub(crate) const POOLS_MAX: usize = 128;

impl Pool {
    /// Whether this is the same pool, and says the same of the same nodes. Its generation does not tell: once etcd was restored
    /// from a snapshot, another spec may have it.
    pub(crate) fn says_the_same(&self, before: &Self) -> bool {
        self.metadata.uid == before.metadata.uid
            && (&self.selector, self.priority) == (&before.selector, before.priority)
            && self.rules == before.rules
    }

    /// Whether it selects a node with these labels. If not even its selector can be read, nobody knows which nodes it was
    /// meant for, so it holds all.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.selector.as_ref();
        selector.is_none_or(|selector| selector.matches(labels))
    }

    /// Returns what it says of its nodes, if that can be understood.
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref().ok()
    }

    pub(crate) fn gates(&self) -> &[Gate] {
        self.rules().map_or(&[], |rules| &rules.gates)
    }
}

impl From<Item<Self>> for Pool {
    fn from(item: Item<Self>) -> Self {
        item.body.unwrap_or_else(|why| Self {
            metadata: item.metadata,
            stored: BottlerocketPoolStatus::default(),
            selector: None,
            priority: u64::MAX,
            paused: false,
            rules: Err(format!("metadata: {why}")),
        })
    }
}

impl Readable for Pool {
    type Kind = BottlerocketPool;

    /// A spec that cannot be read makes a pool that is not understood, and a status that cannot be read is written again.
    fn read(json: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Shape<'j> {
            metadata: item::Metadata,
            #[serde(borrow, default)]
            spec: Option<&'j RawValue>,
            #[serde(borrow, default)]
            status: Option<&'j RawValue>,
        }
        let Shape {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        // Nobody bounds its owners, and nothing is asked of them.
        let metadata = ObjectMeta {
            owner_references: None,
            ..metadata.into()
        };
        let spec: Result<BottlerocketPoolSpec, _> =
            serde_json::from_str(spec.map_or("null", RawValue::get));
        let selector = spec.as_ref().ok().and_then(|spec| {
            // It has the same form.
            let selector = serde_json::to_value(&spec.node_selector).ok()?;
            let selector: LabelSelector = serde_json::from_value(selector).ok()?;
            Selector::try_from(selector).ok()
        });
        let rules = spec
            .as_ref()
            .map_err(|error| format!("spec: {}", Unreadable::from(error)))
            .and_then(Rules::of);
        Ok(Self {
            metadata,
            stored: status
                .and_then(|status| serde_json::from_str(status.get()).ok())
                .unwrap_or_default(),
            selector,
            priority: spec.as_ref().map_or(u64::MAX, |spec| spec.priority),
            paused: spec.as_ref().is_ok_and(|spec| spec.paused),
            rules,
        })
    }
}

/// A pool, as decisions see it.
#[derive(Clone, Debug)]
pub struct PoolFacts<'a> {
    pub name: &'a str,
    /// Number of opted-in nodes that it owns.
    pub nodes: u64,
    /// Number of its nodes that may be unavailable at once.
    pub limit: u64,
    /// Whether it lets updates start now, and go on to the cordon.
    pub starts: Starts<'a>,
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
        starts: Starts::Open,
        gate: None,
        next_window: None,
        rules: None,
        waits_for: BTreeMap::new(),
        missing: None,
        ripens: BTreeMap::new(),
    };

    /// Whether it keeps two of its zones from being unavailable together.
    pub(crate) fn one_zone_at_a_time(&self) -> bool {
        self.rules.is_some_and(Rules::one_zone_at_a_time)
    }

    /// Whether the pool has gates.
    pub(crate) fn has_gates(&self) -> bool {
        self.rules.is_some_and(|rules| !rules.gates.is_empty())
    }

    /// The pool that has to be done with this version first, if there is one that is not.
    pub(crate) fn waits_for(&self, version: &str) -> Option<FirstPool<'a>> {
        if let Some(pool) = self.missing {
            return Some(FirstPool::Missing(pool));
        }
        let first = || Some(FirstPool::NotDone(&self.rules?.depends_on.first()?.0));
        self.waits_for.get(version).copied().unwrap_or_else(first)
    }

    /// Returns until when this version is too young for nodes of this variant in the pool, if it is.
    pub(crate) fn ripens(&self, (version, variant): Release<'_>) -> Option<Until> {
        let unknown = || self.rules?.min_age.is_positive().then_some(Until::Unknown);
        self.ripens
            .get(&(version, variant))
            .copied()
            .unwrap_or_else(unknown)
    }
}

/// A pool that goes first, by its name, and why others still wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FirstPool<'a> {
    #[error("{0} goes first (spec.dependsOn), and there is no BottlerocketPool of this name")]
    Missing(&'a str),
    #[error("{0} goes first (spec.dependsOn): it has not finished this version")]
    NotDone(&'a str),
    #[error(
        "{0} goes first (spec.dependsOn), and owns no node that is opted in, so it never finishes"
    )]
    Empty(&'a str),
    /// This node of it runs an older version and does not ask for this one.
    #[error(
        "{0} goes first (spec.dependsOn): it has not finished this version: its node {1} runs an older version, and its host does not \
         name this one; its wave may not have come (settings.updates.ignore-waves)"
    )]
    Behind(&'a str, &'a str),
    /// It has been done for long enough at this time.
    #[error("{0} goes first (spec.dependsOn): it has finished this version, and soaks until {until}", until = to_second(*.1))]
    Soaking(&'a str, Timestamp),
}

fn to_second(time: Timestamp) -> Timestamp {
    time.round(Unit::Second).unwrap_or(time)
}

/// The pools at one time.
#[derive(Clone, Debug)]
pub struct Pools<'a> {
    /// The pool of nodes that no `BottlerocketPool` selects.
    pub default: PoolFacts<'a>,
    /// All others, sorted by name.
    pub all: Vec<PoolFacts<'a>>,
    /// Number of nodes that may be unavailable at once in all of them.
    pub ceiling: u64,
    /// The clock that was asked for them.
    pub clock: Clock<'a>,
}
