//! Properties of every decision about any fleet.

use brupop_api::fleet::Slot;
use proptest::prelude::*;

use super::opt_in::bare;
use super::passes::fleet;
use super::world::*;
use crate::decide::allocate::{assess_all, freed};
use crate::decide::{new_term, opt_in};

/// Its reboot from its present boot is granted, and its agent has claimed it.
fn claimed<'a>(view: &NodeView<'a>) -> Option<NodeView<'a>> {
    let (node, _) = (view.node?, view.shadow?);
    Some(view.with_shadow(|shadow| {
        shadow.spec.state = RebootedIntoUpdate;
        shadow.spec.attempt = Some(1);
        shadow.spec.reboot_granted_boot_id = Some(node.boot_id.clone());
        shadow.status.reboot_claimed_boot_id = Some(node.boot_id.clone());
    }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn slots_without_nodes_are_given_back(fleet in fleet(), missing in any::<u8>()) {
        let mut fleet = fleet;
        let slots = &mut fleet.ledger.status.as_mut().unwrap().slots;
        // Of shadows before, between and after those that are there.
        slots.extend(["brs", "brs-n0a", "brs-n2a", "brs-z"].map(|name| (name.to_owned(), Slot::default())));
        let cluster = fleet.cluster();
        let Observed { fleet, mut views, .. } = fleet.observe(&cluster);
        if let Some(at) = usize::from(missing).checked_rem(views.len()) {
            views.remove(at);
        }
        let gone = |name: &&String| views.iter().all(|view| view.shadow_name != **name);
        let freed = freed(&fleet, &assess_all(&fleet, &views));
        let freed = freed.iter().filter(|(_, _, view)| view.is_none()).map(|(name, ..)| *name);
        prop_assert_eq!(freed.collect::<Vec<_>>(), fleet.slots.keys().filter(gone).collect::<Vec<_>>());
    }

    #[test]
    fn every_write_fits_its_object(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let decided = observed.decide();
        let of_nodes = observed.views.iter().zip(&decided.nodes).flat_map(|(view, decision)| {
            let decision = Decided::of(&observed.fleet, view, *decision);
            decision.write.into_iter().chain(decision.confirm)
        });
        let terms = [None, Some(fleet.status())].map(|ledger| new_term(ledger, &observed.views).1);
        let bare = bare();
        let label = opt_in(&FleetFacts::EXAMPLE, &bare).unwrap();
        for write in of_nodes.chain(decided.write).chain(terms).chain([label]) {
            prop_assert_eq!(brupop_apply::fits(&write), Ok(()));
        }
    }

    #[test]
    fn only_drained_nodes_reboot_and_only_what_is_ours_is_undone(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        for view in &observed.views {
            let decision = claimed(view).map(|view| decide(&observed.fleet, &view));
            let aborts = decision.as_ref().is_some_and(|it| matches!(it.reason, Reason::Aborting(_)));
            prop_assert!(!aborts, "a claimed reboot: {decision:?}");
            let (Some(node), Some(shadow)) = (view.node, view.shadow) else { continue };
            let Decided { write, confirm, .. } = decide(&observed.fleet, view);
            match (write, confirm) {
                (Some(grant), Some(confirm)) => {
                    prop_assert_eq!(sets(&grant, Field::SpecRebootGrantedBootId), Some(Value::text(node.boot_id())));
                    let draining = node.marker().is_some_and(|marker| marker.drain_started_at.is_some());
                    prop_assert!(draining && node.unschedulable && view.led.is_drained());
                    prop_assert!(confirm.tests.contains(&(Field::Unschedulable, Value::Set)));
                    prop_assert_eq!(view.held().map(|slot| slot.attempt), shadow.spec.attempt);
                }
                (Some(write), None) => {
                    let granted = sets(&write, Field::SpecRebootGrantedBootId);
                    prop_assert!(matches!(granted, None | Some(Value::Absent)), "{granted:?}");
                    let ours = |at: fn(&Marker) -> &Option<String>| node.marker().is_some_and(|it| at(it).is_some());
                    for (field, ours) in [
                        (Field::Unschedulable, ours(|marker| &marker.cordoned_at)),
                        (Field::ExcludedFromLoadBalancers, ours(|marker| &marker.excluded_at)),
                    ] {
                        prop_assert!(ours || sets(&write, field) != Some(Value::Absent), "{field:?}: {write:?}");
                    }
                }
                _ => {}
            }
        }
    }
}
