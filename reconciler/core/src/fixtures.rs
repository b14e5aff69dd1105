//! Plain facts, for tests and the model to vary.

use std::collections::BTreeMap;

use crate::facts::{Evicted, FleetFacts, Gate, NodeFacts, NodeView, PodFacts, TimeFacts};
use crate::policy::FailureBudget;

/// A fleet that is led, without slots, in which one node may be updated at once.
pub const FLEET: FleetFacts<'static> = FleetFacts {
    now: "2026-11-21T04:00:00Z",
    term: 4,
    ledger_term: Some(4),
    slots: &BTreeMap::new(),
    versions: &BTreeMap::new(),
    acknowledged: &[],
    budget: FailureBudget::DEFAULT,
    enforced: true,
    alone: true,
    force: false,
    all_ready: true,
    resting: false,
    limit: 1,
    gate: Gate::Open,
    exclude: false,
};

/// A node that is labelled, Ready and in service, with its agent.
pub const NODE: NodeFacts<'static> = NodeFacts {
    name: "n",
    uid: "node-n",
    labelled: true,
    ready: true,
    boot_id: "boot-1",
    version: Some("1.0.0"),
    unschedulable: false,
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

/// Nothing is there of this name yet.
pub fn nothing(shadow_name: &str) -> NodeView<'_> {
    NodeView {
        shadow_name,
        node: None,
        shadow: None,
        owner_uid: None,
        pods: PodFacts::default(),
        denied: None,
        evicted: Evicted::Back,
        time: TimeFacts::default(),
    }
}
