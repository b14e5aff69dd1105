//! What a leader remembers beside what the watches show: of each node, and of the fleet. All of it is forgotten with the
//! lead, and what is remembered of a node is forgotten with the node. Pure: the clock is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brupop_core::cluster::Cluster;
use brupop_core::deadlines::Debounced;
use brupop_core::status::{DesiredCondition, DesiredFleetStatus};
use brupop_runtime::FailureLog;
use brupop_runtime::logs::Quota;

use super::in_flight::InFlight;
use super::requests::Key;
use crate::operation::{Operation, Outcome};

/// So many denials in a row are no accident.
const DENIALS_IN_A_ROW: u32 = 3;
/// For so long after the last denial no update of the node begins.
const DENIAL_HOLDS_FOR: Duration = Duration::from_mins(5);
/// How often the reason of a node may be logged, which its agent can change as often as it likes. An update has some
/// twenty reasons, one after the other.
const REASONS_LOGGED: Quota = Quota::new(60, Duration::from_mins(1));

/// What is remembered. Instants are durations since any fixed moment of a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By the name that the node's shadow has or would have.
    nodes: BTreeMap<String, NodeMemory>,
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
    pub(super) denials: Denials,
    pub(super) explained: Explained,
    left_alone: FailureLog,
    /// In which words evictions were refused in this drain, as they were published.
    refusals: BTreeSet<String>,
}

/// What was said of a node's reason.
#[derive(Debug)]
pub(super) struct Explained {
    /// The reason that was last logged.
    pub(super) reason: Option<&'static str>,
    pub(super) quota: Quota,
    pub(super) debounced: Debounced<Vec<DesiredCondition>>,
}

impl Default for Explained {
    fn default() -> Self {
        Self { reason: None, quota: REASONS_LOGGED, debounced: Debounced::default() }
    }
}

/// Changes of the Node that the API server did not take.
#[derive(Debug, Default)]
pub(super) struct Denials {
    in_a_row: u32,
    why: String,
    until: Duration,
}

impl Memory {
    /// The last request about this object.
    pub(super) fn in_flight(&mut self, key: &Key) -> &mut InFlight {
        match key {
            Key::Ledger => &mut self.ledger,
            Key::FleetStatus => &mut self.fleet_status,
            Key::Shadow(name) => &mut self.node(name).shadow,
            Key::Node(name) => &mut self.node(name).node,
            Key::Condition(name) => &mut self.node(name).condition,
        }
    }

    /// What is remembered of the node of this shadow.
    pub(super) fn node(&mut self, name: &str) -> &mut NodeMemory {
        self.nodes.entry(name.to_owned()).or_default()
    }

    /// Books a change of a Node that was denied, or made. A grant has the key of its shadow, and changes the Node first.
    pub(super) fn note_denial(&mut self, key: &Key, operation: &Operation, outcome: &Outcome, now: Duration) {
        let (Key::Node(shadow) | Key::Shadow(shadow)) = key else { return };
        match outcome {
            Outcome::NodeDenied(why) => self.node(shadow).denials.denied(why, now),
            Outcome::Written(_) if operation.changes_node() => self.node(shadow).denials.resolved(),
            _ => {}
        }
    }

    /// Why the API server takes no change of each of these nodes, by name of the shadow; and when the first of these is
    /// forgotten.
    pub(super) fn denied(&self, now: Duration) -> (BTreeMap<&str, &str>, Option<Duration>) {
        let holding = || self.nodes.iter().filter(|(_, memory)| memory.denials.hold(now));
        let reasons = holding().map(|(name, memory)| (name.as_str(), memory.denials.why.as_str())).collect();
        (reasons, holding().map(|(_, memory)| memory.denials.until).min())
    }

    /// The node is left alone. Is the reason worth a line?
    pub(super) fn leave_alone(&mut self, name: &str, why: &str) -> bool {
        self.node(name).left_alone.is_new(why)
    }

    /// The node is not left alone any more.
    pub(super) fn look_after(&mut self, name: &str) {
        if let Some(memory) = self.nodes.get_mut(name) {
            memory.left_alone.resolved();
        }
    }

    /// Evictions of this drain are refused in these words. Are they new?
    pub(super) fn refused(&mut self, name: &str, why: &str) -> bool {
        self.node(name).refusals.insert(why.to_owned())
    }

    /// Forgets nodes and shadows that are gone, and drains that have ended.
    pub(super) fn prune(&mut self, cluster: &Cluster) {
        self.nodes.retain(|name, memory| {
            let entry = cluster.entries.get(name);
            if entry.is_none_or(|entry| entry.shadow.is_none()) {
                memory.explained = Explained::default();
                memory.denials = Denials::default();
                if !entry.and_then(|entry| entry.node.as_ref()).is_some_and(|node| node.is_managed()) {
                    memory.left_alone.resolved();
                }
            }
            if entry.is_none_or(|entry| entry.drain.is_none()) {
                memory.refusals.clear();
            }
            let under_way =
                [&memory.node, &memory.shadow, &memory.condition].iter().any(|last| last.is_under_way());
            under_way || entry.is_some_and(|entry| entry.node.is_some() || entry.shadow.is_some())
        });
    }
}

impl Denials {
    /// A change of the Node was denied.
    pub(super) fn denied(&mut self, why: &str, now: Duration) {
        let in_a_row = if now < self.until { self.in_a_row.saturating_add(1) } else { 1 };
        *self = Self { in_a_row, why: why.to_owned(), until: now + DENIAL_HOLDS_FOR };
    }

    /// A change of it was made.
    pub(super) fn resolved(&mut self) {
        *self = Self::default();
    }

    fn hold(&self, now: Duration) -> bool {
        self.in_a_row >= DENIALS_IN_A_ROW && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::operation::Confirm;
    use brupop_core::drain::DrainPlan;
    use serde_json::json;

    const NOW: Duration = Duration::from_secs(1);

    fn cluster() -> Cluster {
        let node = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
        let mut cluster = Cluster::default();
        cluster.entry("brs-n").node = Some(Arc::new(serde_json::from_value(node).unwrap()));
        cluster
    }

    #[test]
    fn three_denials_in_a_row_hold_a_node_for_a_while() {
        let mut memory = Memory::default();
        let held = |memory: &Memory, seconds| {
            let (denied, until) = memory.denied(Duration::from_secs(seconds));
            assert_eq!(denied.is_empty(), until.is_none());
            denied.values().map(ToString::to_string).collect::<Vec<_>>()
        };
        for times in 1..=3 {
            assert!(held(&memory, 0).is_empty(), "{times}");
            memory.node("brs-n").denials.denied("frozen", NOW);
        }
        assert_eq!(held(&memory, 300), ["frozen"]);
        assert!(held(&memory, 301).is_empty());
        memory.node("brs-n").denials.denied("frozen", Duration::from_secs(301));
        assert!(held(&memory, 302).is_empty(), "the others are forgotten");
        memory.node("brs-n").denials.resolved();
        memory.node("brs-n").denials.denied("frozen", NOW);
        assert!(held(&memory, 2).is_empty(), "one in a row");
    }

    #[test]
    fn a_node_denied_within_a_grant_is_booked_as_any_other() {
        let patch = || json_patch::Patch(vec![]);
        let confirm = || Confirm { node: "n".into(), patch: patch(), marker: None };
        let grant = Operation::Grant { confirm: confirm(), name: "brs-n".into(), patch: patch() };
        let spec = Operation::PatchShadow { name: "brs-n".into(), patch: patch() };
        let (of_node, of_shadow) = (Key::Node("brs-n".into()), Key::Shadow("brs-n".into()));
        let frozen = Outcome::NodeDenied("frozen".into());
        let mut memory = Memory::default();
        let held =
            |memory: &Memory| memory.denied(NOW).0.values().map(ToString::to_string).collect::<Vec<_>>();
        memory.note_denial(&of_node, &Operation::ConfirmDrained(confirm()), &frozen, NOW);
        memory.note_denial(&of_shadow, &grant, &frozen, NOW);
        assert!(held(&memory).is_empty());
        memory.note_denial(&of_shadow, &grant, &frozen, NOW);
        assert_eq!(held(&memory), ["frozen"]);
        memory.note_denial(&of_shadow, &spec, &Outcome::Written(None), NOW);
        memory.note_denial(&of_shadow, &grant, &Outcome::Refused(String::new()), NOW);
        assert_eq!(held(&memory), ["frozen"], "neither has changed the Node");
        memory.note_denial(&of_shadow, &grant, &Outcome::Written(None), NOW);
        assert!(held(&memory).is_empty());
        let shadow_denied = Outcome::Denied("the shadow".into());
        (0..3).for_each(|_| memory.note_denial(&of_shadow, &grant, &shadow_denied, NOW));
        assert!(held(&memory).is_empty(), "that is no change of the Node");
    }

    #[test]
    fn the_same_is_said_once_until_it_is_over() {
        let mut memory = Memory::default();
        assert!(memory.leave_alone("brs-n", "?") && memory.leave_alone("brs-long", "too long"));
        assert!(!memory.leave_alone("brs-n", "?"));
        assert!(memory.leave_alone("brs-n", "!"), "something else is news");
        memory.look_after("brs-n");
        assert!(memory.leave_alone("brs-n", "!"), "it came back");
        assert!(!memory.leave_alone("brs-long", "too long"));
        memory.prune(&cluster());
        assert!(memory.leave_alone("brs-n", "!"), "it was left out in between");
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone_but_requests_under_way() {
        let mut memory = Memory::default();
        for name in ["brs-n", "brs-gone", "brs-sent"] {
            (0..3).for_each(|_| memory.node(name).denials.denied("frozen", NOW));
        }
        memory.in_flight(&Key::Shadow("brs-sent".into())).sent();
        memory.prune(&cluster());
        assert_eq!(memory.nodes.keys().collect::<Vec<_>>(), ["brs-n", "brs-sent"]);
        assert!(memory.denied(NOW).0.is_empty(), "the shadow is gone, and its update with it");
    }

    #[test]
    fn a_refusal_is_published_once_a_drain() {
        let mut memory = Memory::default();
        let mut cluster = cluster();
        cluster.entry("brs-n").drain = Some(Arc::new(DrainPlan::default()));
        let published = ["a", "b", "a", "b"].map(|why| {
            memory.prune(&cluster);
            memory.refused("brs-n", why)
        });
        assert_eq!(published, [true, true, false, false], "though two budgets take turns");
        cluster.entry("brs-n").drain = None;
        memory.prune(&cluster);
        assert!(memory.refused("brs-n", "a"), "another drain");
    }
}
