//! Whether the fleet is idle: what `kubectl wait` waits for before somebody deletes the operator.

use std::collections::BTreeMap;

use brupop_api::State;
use brupop_api::conditions::{ConditionStatus, IDLE};
use brupop_api::fleet::Slot;

use super::DesiredCondition;
use crate::cluster::{Cluster, Entry};

impl DesiredCondition {
    /// The condition `Idle` of the fleet, from its nodes and the slots in its ledger. The message changes only with the
    /// number of nodes.
    pub fn idle(cluster: &Cluster, slots: &BTreeMap<String, Slot>) -> Self {
        let busy =
            cluster.entries.iter().filter(|(name, entry)| !slots.contains_key(*name) && is_busy(entry));
        let (status, reason, message) = match slots.len() + busy.count() {
            0 => (
                ConditionStatus::True,
                "NothingInProgress",
                "no node is being updated, and no change of the operator is left on any Node".to_owned(),
            ),
            1 => (
                ConditionStatus::False,
                "InProgress",
                "1 node is being updated, carries changes of the operator, or cannot be read".to_owned(),
            ),
            many => (
                ConditionStatus::False,
                "InProgress",
                format!("{many} nodes are being updated, carry changes of the operator, or cannot be read"),
            ),
        };
        Self::of(IDLE, status, reason, &message)
    }
}

/// Does this node have an update to finish or changes to undo? If its Node or its shadow cannot be read, it may.
fn is_busy(entry: &Entry) -> bool {
    let is_marked = entry.node.as_ref().is_some_and(|node| !matches!(node.marker(), Ok(None)));
    let is_updated = entry
        .shadow
        .as_ref()
        .is_some_and(|shadow| shadow.ok().is_none_or(|shadow| shadow.spec.state != State::Idle));
    is_marked || is_updated
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::{BottlerocketShadow, Item, names};
    use serde_json::{Value, json};

    use crate::cluster::Member as _;
    use crate::objects::WatchedNode;

    fn put_node(cluster: &mut Cluster, name: &str, marker: Option<&str>) {
        let annotations = marker.map(|marker| json!({names::MARKER_ANNOTATION: marker}));
        let node = json!({"metadata": {"name": name, "annotations": annotations}});
        serde_json::from_value::<WatchedNode>(node).unwrap().put(cluster);
    }

    fn put_shadow(cluster: &mut Cluster, name: &str, state: &str) {
        let shadow = json!({"metadata": {"name": format!("brs-{name}")}, "spec": {"state": state}});
        serde_json::from_value::<Item<BottlerocketShadow>>(shadow).unwrap().put(cluster);
    }

    fn message(cluster: &Cluster, slots: &Value) -> (ConditionStatus, String) {
        let condition = DesiredCondition::idle(cluster, &serde_json::from_value(slots.clone()).unwrap());
        (condition.status, condition.message.split(' ').next().unwrap().to_owned())
    }

    #[test]
    fn a_fleet_at_rest_is_idle() {
        let none = json!({});
        let mut cluster = Cluster::default();
        assert_eq!(message(&cluster, &none), (ConditionStatus::True, "no".to_owned()));
        put_node(&mut cluster, "n", None);
        put_shadow(&mut cluster, "n", "Idle");
        put_node(&mut cluster, "without-shadow", None);
        put_shadow(&mut cluster, "without-node", "Idle");
        assert_eq!(message(&cluster, &none), (ConditionStatus::True, "no".to_owned()));
    }

    #[test]
    fn whatever_is_left_to_do_is_counted_once() {
        let marker = json!({"shadow_uid": "u", "attempt": 1, "tainted": true}).to_string();
        let (none, slot) = (json!({}), json!({"brs-n": {"uid": "u", "attempt": 1}}));
        for (why, slots, marker, state) in [
            ("everything at once", &slot, Some(marker.as_str()), Some("RebootedIntoUpdate")),
            ("a slot that is about to be given back", &slot, None, Some("Idle")),
            ("a slot without a shadow", &slot, None, None),
            ("a marker that is to be undone", &none, Some(&marker), Some("Idle")),
            ("a marker that cannot be read", &none, Some("?"), Some("Idle")),
            ("a marker without a shadow", &none, Some(&marker), None),
            ("an update without a slot", &none, None, Some("MonitoringUpdate")),
            ("a shadow that cannot be read", &none, None, Some("?")),
        ] {
            let mut cluster = Cluster::default();
            put_node(&mut cluster, "n", marker);
            if let Some(state) = state {
                put_shadow(&mut cluster, "n", state);
            }
            assert_eq!(message(&cluster, slots), (ConditionStatus::False, "1".to_owned()), "{why}");
        }
    }

    #[test]
    fn nodes_and_shadows_that_are_gone_count() {
        let mut cluster = Cluster::default();
        put_shadow(&mut cluster, "without-node", "StagedAndPerformedUpdate");
        let slots = json!({"brs-without-both": {"uid": "u", "attempt": 1}});
        assert_eq!(message(&cluster, &slots), (ConditionStatus::False, "2".to_owned()));
    }
}
