//! How a new leader begins: it writes a higher term into the ledger, before it writes anything else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::{Field, Object, State, Value, Write};

use crate::facts::NodeView;

/// The write to the ledger with which a process begins to lead, and the term in which it then leads.
///
/// The term is higher than the ledger's, and higher than every term in a shadow. So it rises even if the ledger was
/// lost. The slots of a lost ledger are made again from the updates that run. Updates that upstream's operator left
/// behind never had a slot: they take theirs in turn, when there is room.
pub fn new_term<'a>(ledger: Option<&'a BottlerocketFleetStatus>, views: &[NodeView<'a>]) -> (u64, Write<'a>) {
    const NO_SLOTS: &BTreeMap<String, Slot> = &BTreeMap::new();
    let shadows = || views.iter().filter_map(|view| view.shadow);
    let seen = shadows().filter_map(|shadow| shadow.spec.leader_term).max();
    let read = ledger.and_then(|ledger| ledger.term);
    let term = read.max(seen).unwrap_or(0).saturating_add(1);
    let slots = ledger.map_or(NO_SLOTS, |ledger| &ledger.slots);

    let tests = vec![
        (Field::Term, Value::number_or_absent(read)),
        (Field::Slots, Value::Slots(Cow::Borrowed(slots))),
    ];
    let mut sets = vec![(Field::Term, Value::Number(term))];
    if read.is_none() {
        sets.extend(
            views
                .iter()
                .filter_map(|view| view.shadow.map(|shadow| (view, shadow)))
                .filter(|(view, shadow)| {
                    let runs = shadow.spec.state != State::Idle && shadow.spec.attempt.is_some();
                    runs || view.marked()
                })
                .map(|(_, shadow)| {
                    let slot = Slot {
                        uid: shadow.uid.to_owned(),
                        attempt: shadow.spec.attempt.unwrap_or(1),
                        version: shadow.spec.version.map(str::to_owned),
                        ..Slot::default()
                    };
                    (Field::Slot(shadow.name), Value::Slot(slot))
                }),
        );
    }
    (term, Write { object: Object::Fleet, tests, sets })
}
