//! Nodes that leave service together: of the control plane at most one, and of a pool that keeps zones apart those of one
//! zone.

use std::collections::{BTreeMap, BTreeSet};

use brupop_api::{Marker, names};
use proptest::prelude::*;

use super::allocate;
use super::passes::{fleet, taken};
use crate::cluster::Cluster;
use crate::decide::{Decision, Step};
use crate::facts::{NodeView, Owner};
use crate::objects::NodeFacts;

/// The Nodes of the control plane, and whether each is out of service, by name of the shadow.
fn control_plane(cluster: &Cluster) -> BTreeMap<&str, bool> {
    let is_control_plane = |node: &NodeFacts| node.label(names::CONTROL_PLANE_LABEL).is_some();
    let is_away = |node: &NodeFacts| {
        let ready = node.readiness.is_some_and(|readiness| readiness.ready);
        !ready || node.unschedulable || node.marker().is_some_and(Marker::holds_changes)
    };
    let nodes = cluster.nodes().filter(|(_, node)| is_control_plane(node));
    nodes.map(|(name, node)| (name, is_away(node))).collect()
}

/// Whether the decision takes a node out of service.
fn leaves(view: &NodeView<'_>, decision: &Decision<'_>) -> bool {
    !view.marked() && matches!(decision.step, Some(Step::Exclude | Step::Cordon))
}

fn reboots(decision: &Decision<'_>) -> bool {
    decision.step == Some(Step::Grant)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn one_node_of_the_control_plane_begins_at_a_time(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let control_plane = control_plane(&cluster);
        let others = |name: &str| {
            let others = control_plane.iter().filter(|(other, _)| **other != name);
            others.map(|(other, away)| (*other, *away)).collect::<Vec<_>>()
        };
        let chosen = allocate(&observed.fleet, &observed.views);
        let taken = taken(fleet.status(), chosen.write.as_ref());
        let freed = |name: &&str| chosen.freed.iter().any(|(freed, ..)| freed == name);
        let is_idle = |view: &&NodeView<'_>| {
            view.shadow.is_some_and(|shadow| shadow.spec.state == brupop_api::State::Idle)
        };
        let begins = observed.views.iter().filter(is_idle).filter(|view| taken.contains(view.shadow_name));
        for view in begins.filter(|view| control_plane.contains_key(view.shadow_name)) {
            for (other, away) in others(view.shadow_name) {
                let has_slot = (observed.fleet.slots.contains_key(other) && !freed(&other)) || taken.contains(other);
                prop_assert!(!away && !has_slot, "{} begins beside {other}", view.shadow_name);
            }
        }
        let decisions = observed.decide().nodes;
        let leaving = observed.views.iter().zip(&decisions);
        let leaving = leaving.filter(|(view, decision)| leaves(view, decision) || reboots(decision));
        let leaving: BTreeSet<_> = leaving.map(|(view, _)| view.shadow_name).collect();
        for name in leaving.iter().filter(|name| control_plane.contains_key(*name)) {
            for (other, away) in others(name) {
                prop_assert!(!away && !leaving.contains(other), "{name} leaves service beside {other}");
            }
        }
    }

    #[test]
    fn zones_that_are_kept_apart_are_not_left_together(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let decisions = observed.decide().nodes;
        let mut zones: BTreeMap<usize, BTreeSet<Option<&str>>> = BTreeMap::new();
        for (view, decision) in observed.views.iter().zip(&decisions) {
            if let Owner::Pool(pool) = view.owner
                && observed.fleet.pools[pool].one_zone_at_a_time()
                && leaves(view, decision)
            {
                zones.entry(pool).or_default().insert(view.zone);
            }
        }
        prop_assert!(zones.values().all(|zones| zones.len() == 1), "{zones:?}");
    }
}
