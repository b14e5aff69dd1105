//! Which nodes have slots, and which slots are given back.

use brupop_api::State;
use brupop_api::fleet::Slot;

use crate::facts::{FleetFacts, NamedSlot, NodeView};

/// Which views have slots. It is found out once, in one walk along both, because to search for each name waits for memory.
pub(crate) struct Holders<'a> {
    /// For each view, by index: the slot of its name, and whether it keeps it.
    slots: Vec<Option<(NamedSlot<'a>, bool)>>,
    /// The slots that are given back, and the view (by index) that each belongs to, if there is one.
    pub(crate) freed: Vec<(&'a str, Option<usize>)>,
}

impl<'a> Holders<'a> {
    /// Of these views, which are sorted by name.
    pub(crate) fn of(fleet: &FleetFacts<'a>, views: &[NodeView<'a>]) -> Self {
        debug_assert!(
            views.is_sorted_by_key(|view| view.shadow_name),
            "the views are sorted"
        );
        let mut holders = Self {
            slots: vec![None; views.len()],
            freed: vec![],
        };
        let mut rest = views.iter().enumerate().peekable();
        for (name, slot) in fleet.slots {
            while rest
                .next_if(|(_, view)| view.shadow_name < name.as_str())
                .is_some()
            {}
            let found = rest.next_if(|(_, view)| view.shadow_name == name);
            let over = is_over(slot, found.map(|(_, view)| view));
            if over {
                holders.freed.push((name, found.map(|(index, _)| index)));
            }
            if let Some((index, _)) = found {
                holders.slots[index] = Some(((name, slot), !over));
            }
        }
        holders
    }

    /// The slot of each view, if the slot of its name is for this very shadow.
    pub(crate) fn held(
        &self,
        views: &[NodeView<'a>],
    ) -> impl Iterator<Item = Option<&'a Slot>> + Clone {
        let slots = self
            .slots
            .iter()
            .map(|found| found.map(|((_, slot), _)| slot));
        views
            .iter()
            .zip(slots)
            .map(|(view, slot)| slot.filter(|slot| view.holds(slot)))
    }

    /// The slots that are kept, with the views of their names.
    pub(super) fn kept<'v>(
        &self,
        views: &'v [NodeView<'a>],
    ) -> impl Iterator<Item = (&'v NodeView<'a>, NamedSlot<'a>)> + Clone {
        let kept = views.iter().zip(&self.slots);
        kept.filter_map(|(view, found)| {
            found
                .filter(|(_, keeps)| *keeps)
                .map(|(slot, _)| (view, slot))
        })
    }

    /// Has this view, by index, a slot?
    pub(super) fn have(&self, index: usize) -> bool {
        self.slots[index].is_some()
    }

    /// And does it keep it?
    pub(super) fn keep(&self, index: usize) -> bool {
        self.slots[index].is_some_and(|(_, keeps)| keeps)
    }
}

/// Is the attempt over that this slot is for? This rests only on facts that stay true.
///
/// A spec that is Idle at the slot's own attempt is final: it never goes back to that attempt, and the next attempt
/// needs another slot.
fn is_over(slot: &Slot, view: Option<&NodeView<'_>>) -> bool {
    let Some(view) = view else { return true };
    let Some(node) = view.node else { return true };
    if view.unreadable {
        return false;
    }
    let tidy = node.is_tidy();
    match view.shadow {
        None => !node.labelled && tidy && node.ready,
        Some(shadow) if shadow.uid != slot.uid => {
            tidy && node.ready && (shadow.reports(State::Idle) || view.time.step_overdue)
        }
        Some(shadow) => {
            shadow.spec.state == State::Idle
                && shadow.spec.attempt >= Some(slot.attempt)
                && tidy
                && (shadow.reports(State::Idle) || view.time.step_overdue)
        }
    }
}
