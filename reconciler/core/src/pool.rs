//! Pools as they are watched: which nodes each selects, and its rules.

mod bound;

use brupop_api::item::{self, Readable, Unreadable};
use brupop_api::pool::{BottlerocketPoolSpec, NodeSelector, Operator};
use brupop_api::{BottlerocketPool, Item};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, Selector};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kept::weight;
use crate::rules::{Invalid, Rules};
pub(crate) use bound::bound;

/// A pool as it is watched.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Namespace, name, UID, generation.
    pub metadata: ObjectMeta,
    /// The status, to tell what is stored already. No decision reads it.
    pub stored: brupop_api::BottlerocketPoolStatus,
    /// Which nodes it selects; `None` = nobody knows, so it holds all.
    pub selector: Option<Selector>,
    /// Of the pools that select a node, the one of the highest priority owns it.
    pub priority: u64,
    /// How many requirements the selector has.
    pub(crate) requirements: usize,
    /// A person paused it, as far as the spec can be read.
    pub paused: bool,
    /// What it says of these nodes; if that cannot be understood, why.
    pub rules: Result<Rules, Invalid>,
    /// What it takes in memory, roughly.
    pub bytes: usize,
    given_up: bool,
}

/// What a pool takes in memory beside what it says: a place, and sentences about it.
const BESIDE: usize = size_of::<Item<Pool>>() + 1024;
/// What a byte of a status takes in memory.
const IN_MEMORY: usize = 2;
/// Why a pool is given up.
const TOO_MUCH: &str = "there are more pools than are kept, or larger ones: 32 MiB in memory, and the largest are given up first. \
                        It holds the nodes that it selects; delete pools, or make this one smaller. \
                        They are looked at again every five minutes";
/// Why not even its selector is kept.
const TOO_MUCH_LEFT: &str = "there are more pools than are kept, or larger ones, and so many that the selectors of the largest are \
                             not kept either. It holds all nodes; delete pools, or make this one smaller. \
                             They are looked at again every five minutes";

impl Pool {
    /// Forgets what it says of its nodes; see [`crate::kept`].
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
        self.bytes -= self.rules.as_ref().map_or(0, Rules::weight);
        self.rules = Err(Invalid::new("spec", TOO_MUCH));
    }

    /// Forgets which nodes it selects, too.
    pub(crate) fn forget_selector(&mut self) {
        self.bytes -= self
            .selector
            .take()
            .into_iter()
            .flatten()
            .map(|it| weight_of(&it))
            .sum::<usize>();
        (self.requirements, self.priority) = (0, u64::MAX);
        self.rules = Err(Invalid::new("spec", TOO_MUCH_LEFT));
    }

    /// Is it forgotten what it says?
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Is this the same pool, and does it say the same of the same nodes? Its generation does not tell: once etcd was restored
    /// from a snapshot, another spec may have it.
    pub(crate) fn says_the_same(&self, before: &Self) -> bool {
        self.metadata.uid == before.metadata.uid
            && (&self.selector, self.priority) == (&before.selector, before.priority)
            && self.rules == before.rules
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
        let selector: Option<Vec<_>> = spec
            .as_ref()
            .ok()
            .map(|spec| requirements(&spec.node_selector));
        let rules = spec
            .as_ref()
            .map_err(|error| Invalid::new("spec", Unreadable::from(error).to_string()))
            .and_then(Rules::of);
        let bytes = BESIDE
            + IN_MEMORY * status.map_or(0, |status| status.get().len())
            + selector.iter().flatten().map(weight_of).sum::<usize>()
            + rules.as_ref().map_or(0, Rules::weight);
        Ok(Self {
            metadata,
            stored: status
                .and_then(|status| serde_json::from_str(status.get()).ok())
                .unwrap_or_default(),
            requirements: selector.as_ref().map_or(0, Vec::len),
            selector: selector.map(Selector::from_iter),
            priority: spec.as_ref().map_or(u64::MAX, |spec| spec.priority),
            paused: spec.as_ref().is_ok_and(|spec| spec.paused),
            rules,
            bytes,
            given_up: false,
        })
    }
}

/// What a requirement takes in memory, roughly.
fn weight_of(requirement: &Expression) -> usize {
    let (key, values): (_, Vec<&str>) = match requirement {
        Expression::In(key, values) | Expression::NotIn(key, values) => {
            (key, values.iter().map(String::as_str).collect())
        }
        Expression::Equal(key, value) | Expression::NotEqual(key, value) => (key, vec![value]),
        Expression::Exists(key) | Expression::DoesNotExist(key) => (key, vec![]),
    };
    size_of::<Expression>() + weight(values.into_iter().chain([key.as_str()]))
}

fn requirements(selector: &NodeSelector) -> Vec<Expression> {
    let labels = selector
        .match_labels
        .iter()
        .map(|(key, value)| Expression::Equal(key.clone(), value.clone()));
    let expressions = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (
            requirement.key.clone(),
            requirement.values.iter().cloned().collect(),
        );
        match requirement.operator {
            Operator::In => Expression::In(key, values),
            Operator::NotIn => Expression::NotIn(key, values),
            Operator::Exists => Expression::Exists(key),
            Operator::DoesNotExist => Expression::DoesNotExist(key),
        }
    });
    labels.chain(expressions).collect()
}
