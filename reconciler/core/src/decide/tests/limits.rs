//! Properties of the nodes that begin in one pass over any fleet.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::allocate;
use super::passes::{fleet, is_idle, records, taken};
use super::world::OLD;
use crate::decide::assess::assess;
use crate::facts::{NodeView, Owner};

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_limit_holds_in_the_written_ledger(fleet in fleet()) {
        let before = fleet.cluster();
        let observed = fleet.observe(&before);
        let Some(write) = allocate(&observed.fleet, &observed.views).write else { return Ok(()) };
        // A slot is never given back and taken again in one patch.
        let touched: BTreeSet<_> = write.sets.iter().map(|(field, _)| format!("{field:?}")).collect();
        prop_assert_eq!(touched.len(), write.sets.len());
        let mut after = fleet.clone();
        after.write_ledger(&write);
        let kept = |name: &String| after.status().slots.contains_key(name);
        let had = fleet.status().slots.keys().filter(|name| kept(name)).count();
        let names = taken(fleet.status(), Some(&write));
        let taken = names.len();
        prop_assert_eq!(after.status().slots.len(), had + taken);
        let cluster = after.cluster();
        let seen = after.observe(&cluster);
        if taken == 0 {
            return Ok(());
        }
        // A node in service leaves it only within the limit, counting all unavailable nodes.
        let in_service = |view: &NodeView<'_>| {
            !view.marked() && view.node.is_some_and(|it| it.is_ready() && !it.unschedulable && it.version() == Some(OLD))
        };
        let is_cordoned = |view: &NodeView<'_>| view.node.is_some_and(|node| node.unschedulable);
        let begins = |view: &NodeView<'_>| {
            let leaves = is_idle(view) && !is_cordoned(view) || in_service(view);
            leaves && names.contains(view.shadow_name)
        };
        let pool_of = |view: &NodeView<'_>| match view.owner {
            Owner::Pool(index) => Some(seen.fleet.pools[index].name),
            _ => None,
        };
        // Of a pool, of what is in none, and of all; each if a slot was taken there.
        let within = |counts: &dyn Fn(Option<&str>) -> bool, limit: u64| {
            let mine: Vec<_> = seen.views.iter().filter(|view| counts(pool_of(view))).collect();
            let is_mine = |name: &String| mine.iter().any(|view| view.shadow_name == name);
            if !names.iter().any(is_mine) {
                return true;
            }
            let slots = &after.status().slots;
            let held = slots.iter().filter(|(name, slot)| is_mine(name) || counts(slot.pool.as_deref())).count();
            let away = mine.iter().filter(|view| {
                !kept(&view.shadow_name.to_owned())
                    && (view.marked() || view.node.is_some_and(|node| node.labelled && !node.is_ready()))
            });
            let any_begins = observed.views.iter().any(|view| begins(view) && is_mine(&view.shadow_name.to_owned()));
            let used = held + if any_begins { away.count() } else { 0 };
            u64::try_from(used).unwrap() <= limit
        };
        prop_assert!(within(&|_| true, seen.fleet.ceiling), "in all");
        prop_assert!(after.status().slots.len() <= 500, "the ledger has no room for more");
        prop_assert!(within(&|pool| pool.is_none(), seen.fleet.default_pool.limit), "in the default pool");
        for pool in seen.fleet.pools {
            prop_assert!(within(&|of| of == Some(pool.name), pool.limit), "in {}", pool.name);
        }
        for pool in seen.fleet.pools.iter().filter(|pool| pool.one_zone_at_a_time()) {
            let mine = |view: &&NodeView<'_>| pool_of(view) == Some(pool.name);
            let holds = |view: &&NodeView<'_>| kept(&view.shadow_name.to_owned());
            let away = |view: &NodeView<'_>| view.marked() || view.node.is_some_and(|it| it.labelled && !it.is_ready());
            let zone = |view: &NodeView<'_>| view.zone.map(str::to_owned);
            if observed.views.iter().filter(|view| pool_of(view) == Some(pool.name)).any(begins) {
                let zones: BTreeSet<_> =
                    seen.views.iter().filter(mine).filter(|view| holds(view) || away(view)).map(zone).collect();
                prop_assert!(zones.len() == 1, "in zones {:?} of {}", zones, pool.name);
            }
        }
    }

    #[test]
    fn everybody_who_may_begin_has_one_turn(fleet in fleet()) {
        let cluster = fleet.cluster();
        let observed = fleet.observe(&cluster);
        let chosen = allocate(&observed.fleet, &observed.views);
        let after = records(fleet.status(), chosen.write.as_ref());
        let may_begin = observed.views.iter().enumerate().filter(|(_, view)| {
            let may_start = assess(&observed.fleet, view).may_start;
            let is_halted = |version: &str| {
                view.node.is_some_and(|node| crate::facts::is_halted(&after, (version, node.variant())))
            };
            !observed.fleet.slots.contains_key(view.shadow_name) && may_start.is_some_and(|it| !is_halted(it))
        });
        let expected: Vec<usize> = may_begin.map(|(index, _)| index).collect();
        let in_turn = chosen.taken.iter().chain(chosen.queued.iter().map(|(index, _)| index));
        let mut in_turn: Vec<usize> = in_turn.copied().filter(|index| is_idle(&observed.views[*index])).collect();
        in_turn.sort_unstable();
        prop_assert_eq!(in_turn, expected);
    }
}
