//! What a leader remembers beside what the watches show: of each node, of the fleet, and of the last request about each
//! object. All of it is forgotten with the lead, and what is remembered of a node is forgotten with the node. Pure: the clock
//! is an argument.

pub(super) mod in_flight;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_api::{Object, names};
use brupop_core::cluster::Cluster;
use brupop_core::debounced::Debounced;
use brupop_core::decide::Abort;
use brupop_core::led::Denied;
use brupop_core::status::{DesiredCondition, DesiredFleetStatus, DesiredPoolStatus};
use brupop_runtime::FailureLog;
use brupop_runtime::logs::Quota;

use crate::operation::Reply;
use in_flight::InFlight;

/// This many denials in a row are no accident.
const DENIALS_IN_A_ROW: u32 = 3;
/// For so long after the last denial no update of the node begins.
const DENIAL_HOLDS_FOR: Duration = Duration::from_mins(5);
/// How often a line may be logged about one node: its agent can change the reason as often as it likes, and its kubelet have
/// the shadow made and deleted, or its Node unreadable now and then. An update has some twenty reasons, one after the other,
/// and a dozen writes.
const REASONS_LOGGED: Quota = Quota::new(60, Duration::from_mins(1));

/// What is remembered. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By the name that the node's shadow has or would have.
    nodes: BTreeMap<String, NodeMemory>,
    /// By name.
    pools: BTreeMap<String, PoolMemory>,
    ledger: InFlight,
    fleet_status: InFlight,
    pub(super) debounced_fleet: Debounced<DesiredFleetStatus>,
    /// Of all nodes: the same answer is told once.
    pub(super) opt_in: FailureLog,
}

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(super) struct NodeMemory {
    node: InFlight,
    shadow: InFlight,
    condition: InFlight,
    pub(super) node_denials: Denials,
    pub(super) shadow_denials: Denials,
    pub(super) explained: Explained,
    left_alone: FailureLog,
    /// In which words evictions were refused in this drain, as they were published.
    refusals: BTreeSet<String>,
}

/// What is remembered of one pool.
#[derive(Debug, Default)]
pub(super) struct PoolMemory {
    status: InFlight,
    pub(super) debounced: Debounced<DesiredPoolStatus>,
}

/// What was said of a node's reason.
#[derive(Debug)]
pub(super) struct Explained {
    /// The reason that was last logged.
    pub(super) reason: Option<&'static str>,
    pub(super) quota: Quota,
    debounced: Debounced<Vec<DesiredCondition>>,
    /// Why its last attempt was given up.
    pub(super) given_up: Option<Abort>,
    /// The last step of an update that was told at once, as long as the node has a slot.
    step: Option<&'static str>,
}

impl Default for Explained {
    fn default() -> Self {
        Self {
            reason: None,
            quota: REASONS_LOGGED,
            debounced: Debounced::default(),
            given_up: None,
            step: None,
        }
    }
}

impl Explained {
    /// These conditions are wanted, and others are stored. Returns when to ask again; `None` if they are due. Steps of an
    /// update are told at once, and once each, and so is its end; all else only if it lasts.
    pub(super) fn waits_until(
        &mut self,
        wanted: &[DesiredCondition],
        step: Step,
        now: Duration,
    ) -> Option<Duration> {
        let at_once = match step {
            Step::Begins(word) => self.step != Some(word),
            Step::Ended => true,
            Step::Other => false,
        };
        if at_once {
            return None;
        }
        self.debounced.waits_until(wanted.to_vec(), now)
    }

    /// The conditions that are wanted are stored.
    pub(super) fn stored(&mut self, step: Step, has_slot: bool) {
        self.debounced.forget();
        match step {
            Step::Begins(word) => self.step = Some(word),
            _ if !has_slot => self.step = None,
            _ => {}
        }
    }
}

/// What a reason means for the update of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A step begins, of this word.
    Begins(&'static str),
    /// The update has ended, and the condition does not say so yet.
    Ended,
    /// Anything else.
    Other,
}

/// Changes of the Node, or of its shadow, that the API server did not take.
#[derive(Debug, Default)]
pub(super) struct Denials {
    in_a_row: u32,
    why: String,
    until: Duration,
}

impl Memory {
    /// The last call about this object.
    pub(super) fn in_flight(&mut self, object: &Object<String>) -> &mut InFlight {
        match object {
            Object::Ledger => &mut self.ledger,
            Object::FleetStatus => &mut self.fleet_status,
            Object::PoolStatus(name) => &mut self.pool(name).status,
            Object::ShadowSpec(name) => &mut self.node(name).shadow,
            Object::ShadowStatus(name) => &mut self.node(name).condition,
            Object::Node(name) => &mut self.node(&names::shadow_name(name)).node,
        }
    }

    /// What is remembered of the node of this shadow.
    pub(super) fn node(&mut self, name: &str) -> &mut NodeMemory {
        self.nodes.entry(name.to_owned()).or_default()
    }

    /// Why the last attempt of the node of this shadow was given up, if this leader has seen it.
    pub(super) fn given_up(&self, name: &str) -> Option<Abort> {
        self.nodes.get(name)?.explained.given_up
    }

    /// What is remembered of this pool.
    pub(super) fn pool(&mut self, name: &str) -> &mut PoolMemory {
        self.pools.entry(name.to_owned()).or_default()
    }

    /// Records that a change of a Node or a shadow was denied, or made. A grant is about its shadow, and changes the Node first.
    pub(super) fn record_reply(&mut self, object: &Object<String>, reply: &Reply, now: Duration) {
        let shadow = match object {
            Object::Node(node) => &names::shadow_name(node),
            Object::ShadowSpec(shadow) => shadow,
            _ => return,
        };
        let memory = self.node(shadow);
        match (object, reply) {
            (Object::Node(_), Reply::Denied(why)) | (_, Reply::NodeDenied(why)) => {
                memory.node_denials.denied(&format!("the Node: {why}"), now);
            }
            (_, Reply::Denied(why)) => {
                memory
                    .shadow_denials
                    .denied(&format!("the node's shadow: {why}"), now);
            }
            (Object::Node(_), Reply::Written { .. }) => memory.node_denials.resolved(),
            (_, Reply::Written { node, .. }) => {
                if node.is_some() {
                    memory.node_denials.resolved();
                    memory.node.wait_for_version(*node, false, now);
                }
                memory.shadow_denials.resolved();
            }
            (_, Reply::Removed) => memory.shadow_denials.resolved(),
            _ => {}
        }
    }

    /// What the API server takes no change of, by name of the shadow; and when the first of these denials is forgotten.
    pub(super) fn denied(&self, now: Duration) -> (BTreeMap<String, Denied>, Option<Duration>) {
        let (mut all, mut until) = (BTreeMap::new(), None);
        for (
            name,
            NodeMemory {
                node_denials,
                shadow_denials,
                ..
            },
        ) in &self.nodes
        {
            let [node, shadow] =
                [node_denials, shadow_denials].map(|it| it.hold(now).then_some(it));
            if node.or(shadow).is_none() {
                continue;
            }
            until = [node, shadow]
                .into_iter()
                .flatten()
                .map(|it| it.until)
                .chain(until)
                .min();
            let [node, shadow] = [node, shadow].map(|it| it.map(|it| it.why.clone()));
            all.insert(name.clone(), Denied { node, shadow });
        }
        (all, until)
    }

    /// Whether a line may be logged about what came of a call about this object; see [`REASONS_LOGGED`].
    pub(super) fn may_log(&mut self, object: &Object<String>, now: Duration) -> bool {
        let shadow = match object {
            Object::ShadowSpec(name) | Object::ShadowStatus(name) => name,
            Object::Node(name) => &names::shadow_name(name),
            Object::Ledger | Object::FleetStatus | Object::PoolStatus(_) => return true,
        };
        self.node(shadow).explained.quota.take(now).is_some()
    }

    /// Records that the node is left alone. Returns whether the reason is worth a line, and an Event; see [`REASONS_LOGGED`].
    pub(super) fn leave_alone(&mut self, name: &str, why: &str, now: Duration) -> bool {
        let memory = self.node(name);
        memory.left_alone.is_new(why) && memory.explained.quota.take(now).is_some()
    }

    /// The node is not left alone any more.
    pub(super) fn look_after(&mut self, name: &str) {
        if let Some(memory) = self.nodes.get_mut(name) {
            memory.left_alone.resolved();
        }
    }

    /// Records in which words evictions of this drain are refused. Returns whether they are new.
    pub(super) fn refused(&mut self, name: &str, why: &str) -> bool {
        self.node(name).refusals.insert(why.to_owned())
    }

    /// Forgets nodes, shadows and pools that are gone, and drains that have ended.
    pub(super) fn prune(&mut self, cluster: &Cluster) {
        self.pools.retain(|name, memory| {
            memory.status.is_under_way() || cluster.pools.contains_key(name)
        });
        self.nodes.retain(|name, memory| {
            let record = cluster.records.get(name);
            if record.is_none_or(|record| record.shadow.is_none()) {
                // Its kubelet can have the shadow made and deleted as often as it likes, by the opt-in label.
                let Explained { quota, reason, .. } = memory.explained;
                memory.explained = Explained {
                    reason,
                    quota,
                    ..Explained::default()
                };
                memory.node_denials = Denials::default();
                if !record
                    .and_then(|record| record.node.as_ref())
                    .is_some_and(|node| node.is_managed())
                {
                    memory.left_alone.resolved();
                }
            }
            if cluster.drain(name).is_none() {
                memory.refusals.clear();
            }
            let under_way = [&memory.node, &memory.shadow, &memory.condition]
                .iter()
                .any(|last| last.is_under_way());
            under_way || record.is_some_and(|it| it.node.is_some() || it.shadow.is_some())
        });
    }
}

impl Denials {
    /// A change was denied.
    pub(super) fn denied(&mut self, why: &str, now: Duration) {
        let in_a_row = if now < self.until {
            self.in_a_row.saturating_add(1)
        } else {
            1
        };
        *self = Self {
            in_a_row,
            why: why.to_owned(),
            until: now + DENIAL_HOLDS_FOR,
        };
    }

    /// A change was made.
    pub(super) fn resolved(&mut self) {
        *self = Self::default();
    }

    fn hold(&self, now: Duration) -> bool {
        self.in_a_row >= DENIALS_IN_A_ROW && now < self.until
    }
}

#[cfg(test)]
mod tests;
