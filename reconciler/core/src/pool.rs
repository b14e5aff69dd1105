//! Pools as they are watched: which nodes each selects, and its rules.

use brupop_api::BottlerocketPool;
use brupop_api::item::{self, Readable, Unreadable};
use brupop_api::pool::{BottlerocketPoolSpec, NodeSelector, Operator};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, Selector};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::rules::{Invalid, Rules};

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
    /// A person paused it, as far as the spec can be read.
    pub paused: bool,
    /// What it says of these nodes; if that cannot be understood, why.
    pub rules: Result<Rules, Invalid>,
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
        let selector = spec
            .as_ref()
            .ok()
            .map(|spec| Selector::from_iter(requirements(&spec.node_selector)));
        let rules = spec
            .as_ref()
            .map_err(|error| Invalid::new("spec", Unreadable::from(error).to_string()))
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
