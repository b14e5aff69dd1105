//! What holds for every fleet, however odd.

use brupop_api::fleet::BottlerocketFleetStatus;
use proptest::prelude::*;

use super::opt_in::BARE;
use super::world::*;
use crate::decide::{Holders, new_term, opt_in};

/// A node in any state, consistent or not, with the marker it may carry.
#[derive(Clone, Debug)]
struct Odd {
    spec: (State, Option<u64>, Option<&'static str>, Option<&'static str>),
    status: (Option<State>, Option<u64>, Option<&'static str>, Option<&'static str>),
    node: (bool, bool, bool, bool, &'static str, &'static str),
    marker: Option<(u64, bool)>,
    time: (bool, bool, bool, bool),
    pods: bool,
    slot: Option<u64>,
}

fn boots() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![Just(None), Just(Some(FIRST_BOOT)), Just(Some(SECOND_BOOT))]
}

fn odd() -> impl Strategy<Value = Odd> {
    let states = prop::sample::select(&State::ALL[..4]);
    let statuses = prop::option::of(prop::sample::select(&State::ALL[..]));
    let attempts = || prop::option::of(1..3_u64);
    let (boot, version) =
        (prop::sample::select(&[FIRST_BOOT, SECOND_BOOT]), prop::sample::select(&[OLD, NEW]));
    (
        (states, attempts(), boots(), boots()),
        (statuses, attempts(), boots(), boots()),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), boot, version),
        prop::option::of((1..3_u64, any::<bool>())),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        any::<bool>(),
        prop::option::of(1..3_u64),
    )
        .prop_map(|(spec, status, node, marker, time, pods, slot)| Odd {
            spec,
            status,
            node,
            marker,
            time,
            pods,
            slot,
        })
}

/// A fleet of such nodes as facts; names and markers live in the arena.
struct Arena {
    names: Vec<String>,
    markers: Vec<Option<Marker>>,
    slots: BTreeMap<String, Slot>,
}

impl Arena {
    fn of(odds: &[Odd]) -> Self {
        let names: Vec<String> = (0..odds.len()).map(|index| format!("brs-{index:02}")).collect();
        let slots = names
            .iter()
            .zip(odds)
            .filter_map(|(name, odd)| {
                Some((name.clone(), Slot { uid: UID.to_owned(), attempt: odd.slot?, ..Slot::default() }))
            })
            .collect();
        let markers =
            odds.iter().map(|odd| odd.marker.map(|(attempt, drained)| marker(attempt, drained))).collect();
        Self { names, markers, slots }
    }

    fn views(&self, odds: &[Odd]) -> Vec<NodeView<'_>> {
        odds.iter()
            .enumerate()
            .map(|(index, odd)| {
                let idle: NodeView<'_> = idle();
                let mut view = idle.named(&self.names[index]).with_shadow(|shadow| shadow.uid = UID);
                let shadow = view.shadow.as_mut().unwrap();
                let (state, attempt, baseline, grant) = odd.spec;
                shadow.spec.state = state;
                shadow.spec.attempt = attempt;
                shadow.spec.version = Some(NEW);
                shadow.spec.baseline_boot_id = baseline;
                shadow.spec.reboot_from_boot_id = grant;
                let (reached, echoed, boot, claim) = odd.status;
                shadow.status.current_state = reached;
                shadow.status.attempt = echoed;
                shadow.status.boot_id = boot;
                shadow.status.reboot_requested = claim;
                let node = view.node.as_mut().unwrap();
                (node.labelled, node.ready, node.unschedulable, node.paused, node.boot_id, node.version) =
                    (odd.node.0, odd.node.1, odd.node.2, odd.node.3, odd.node.4, Some(odd.node.5));
                node.marker = self.markers[index].as_ref();
                (view.time.backing_off, view.time.step_overdue) = (odd.time.0, odd.time.1);
                (view.time.drain_overdue, view.time.soak_over) = (odd.time.2, odd.time.3);
                view.pods.drained = odd.pods;
                view
            })
            .collect()
    }

    fn fleet(&self, limit: u64, starts: Starts<'static>) -> FleetFacts<'_> {
        FleetFacts { slots: &self.slots, default_pool: limited(limit), starts, ..fleet() }
    }
}

proptest! {
    #[test]
    fn a_walk_finds_the_slots_of_all(odds in prop::collection::vec(odd(), 1..12), missing in any::<u8>()) {
        let mut arena = Arena::of(&odds);
        // Of shadows before, between and after those that are there.
        for name in ["brs", "brs-00a", "brs-05a", "brs-z"] {
            arena.slots.insert(name.to_owned(), Slot::default());
        }
        let mut views = arena.views(&odds);
        views.remove(usize::from(missing) % views.len());
        let fleet = arena.fleet(500, Starts::Open);
        let holders = Holders::of(&fleet, &views);
        let held = holders.held(&views).collect::<Vec<_>>();
        prop_assert_eq!(held, views.iter().map(|view| view.slot(&fleet)).collect::<Vec<_>>());
        let gone = |name: &&String| views.iter().all(|view| view.shadow_name != **name);
        let freed = holders.freed.iter().filter(|(_, view)| view.is_none()).map(|(name, _)| *name);
        prop_assert_eq!(freed.collect::<Vec<_>>(), arena.slots.keys().filter(gone).collect::<Vec<_>>());
    }

    #[test]
    fn no_slot_is_taken_beyond_the_limit(
        odds in prop::collection::vec(odd(), 1..12),
        limit in 0..8_u64,
    ) {
        let arena = Arena::of(&odds);
        let views = arena.views(&odds);
        let fleet = arena.fleet(limit, Starts::Open);
        let Some(write) = slots(&fleet, &views).write else { return Ok(()) };
        let taken = write.sets.iter().filter(|(_, value)| matches!(value, Value::Slot(slot) if !slot.counted)).count();
        let freed =
            write.sets.iter().filter(|(field, value)| matches!(field, Field::Slot(_)) && *value == Value::Absent).count();
        let gone = |name: &str| write.sets.contains(&(Field::Slot(name), Value::Absent));
        let takes = |name: &str| matches!(sets(&write, Field::Slot(name)), Some(Value::Slot(slot)) if !slot.counted);
        let unavailable = views
            .iter()
            .filter(|view| !arena.slots.contains_key(view.shadow_name) || gone(view.shadow_name))
            .filter(|view| !takes(view.shadow_name))
            .filter(|view| view.node.is_some_and(|node| node.labelled && !node.ready) || view.marked())
            .count();
        let after = arena.slots.len() - freed + taken;
        prop_assert!(taken == 0 || after <= usize::try_from(limit).unwrap());
        // Who is in service leaves it only if that is within the limit, too, with all who are away.
        let begins = views.iter().any(|view| {
            let (node, shadow) = (view.node.unwrap(), view.shadow.unwrap());
            let in_service = node.ready && !node.unschedulable && !view.marked() && node.version == Some(OLD);
            takes(view.shadow_name) && (in_service || shadow.spec.state == Idle)
        });
        prop_assert!(!begins || after + unavailable <= usize::try_from(limit).unwrap());
        // A slot is never given back and taken again in one patch.
        let mut touched: Vec<_> = write.sets.iter().map(|(field, _)| format!("{field:?}")).collect();
        touched.sort();
        touched.dedup();
        prop_assert_eq!(touched.len(), write.sets.len());
    }

    #[test]
    fn every_write_fits_its_object(odds in prop::collection::vec(odd(), 1..6)) {
        let arena = Arena::of(&odds);
        let views = arena.views(&odds);
        let fleet = arena.fleet(2, Starts::Open);
        let decisions: Vec<_> = views.iter().map(|view| decide(&fleet, view)).collect();
        let of_nodes = decisions.iter().flat_map(|decision| match &decision.effect {
            Some(Effect::Write(write)) => vec![write],
            Some(Effect::Grant { confirm, grant }) => vec![confirm, grant],
            _ => vec![],
        });
        let ledger = slots(&fleet, &views).write;
        let read = BottlerocketFleetStatus { term: Some(3), slots: arena.slots.clone(), ..Default::default() };
        let terms = [None, Some(&read)].map(|ledger| new_term(ledger, &views).1);
        let label = opt_in(&fleet, &BARE).unwrap();
        for write in of_nodes.chain(&ledger).chain(&terms).chain([&label]) {
            prop_assert_eq!(write.fits(), Ok(()));
        }
    }

    #[test]
    fn a_grant_needs_drain_marker_and_slot(odd in odd()) {
        let odds = [odd];
        let arena = Arena::of(&odds);
        let view = arena.views(&odds)[0];
        let fleet = arena.fleet(500, Starts::Open);
        let (node, shadow) = (view.node.unwrap(), view.shadow.unwrap());
        match decide(&fleet, &view).effect {
            Some(Effect::Grant { confirm, grant }) => {
                prop_assert_eq!(sets(&grant, Field::SpecRebootFromBootId), Some(Value::text(node.boot_id)));
                let draining = node.marker.is_some_and(|marker| marker.drain_started_at.is_some());
                prop_assert!(draining && node.unschedulable && view.pods.drained);
                prop_assert!(confirm.tests.contains(&(Field::Unschedulable, Value::Set)));
                prop_assert_eq!(view.slot(&fleet).map(|slot| slot.attempt), shadow.spec.attempt);
            }
            Some(Effect::Write(write)) => {
                let granted = sets(&write, Field::SpecRebootFromBootId);
                prop_assert!(matches!(granted, None | Some(Value::Absent)), "{:?}", granted);
            }
            _ => {}
        }
    }

    #[test]
    fn what_is_not_ours_is_not_undone(odd in odd(), cordoned in any::<bool>()) {
        let odds = [odd];
        let mut arena = Arena::of(&odds);
        if let Some(marker) = &mut arena.markers[0] {
            marker.cordoned_at = cordoned.then(|| "then".to_owned());
        }
        let view = arena.views(&odds)[0];
        let decision = decide(&arena.fleet(500, Starts::Open), &view);
        let Some(Effect::Write(write)) = &decision.effect else { return Ok(()) };
        if sets(write, Field::Unschedulable) == Some(Value::Absent) {
            prop_assert!(arena.markers[0].as_ref().is_some_and(|marker| marker.cordoned_at.is_some()));
        }
        prop_assert_ne!(sets(write, Field::ExcludedFromLoadBalancers), Some(Value::Absent));
    }

    #[test]
    fn a_claimed_reboot_is_never_aborted(odd in odd()) {
        let odds = [odd];
        let arena = Arena::of(&odds);
        let mut view = arena.views(&odds)[0];
        let shadow = view.shadow.as_mut().unwrap();
        shadow.spec.state = RebootedIntoUpdate;
        shadow.spec.attempt = Some(1);
        shadow.spec.reboot_from_boot_id = Some(FIRST_BOOT);
        shadow.status.reboot_requested = Some(FIRST_BOOT);
        view.node.as_mut().unwrap().boot_id = FIRST_BOOT;
        let decision = decide(&arena.fleet(500, Starts::Open), &view);
        prop_assert!(!matches!(decision.reason, Reason::Aborting(_)), "{:?}", decision);
    }
}
