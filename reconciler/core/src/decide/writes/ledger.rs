//! The write to the ledger with which a leader begins, and what all others test.

use std::borrow::Cow;
use std::collections::BTreeMap;

use brupop_api::crds::COUNTER_MAX;
use brupop_api::fleet::{BottlerocketFleetStatus, Slot};
use brupop_api::{Field, Object, Value, Write};

use crate::facts::{FleetFacts, NodeView};

/// The write to the ledger with which a process begins to lead, before it writes anything else; and the term in which it
/// then leads.
///
/// The term is higher than the ledger's, and higher than every term in a shadow or a marker. So it rises even if the ledger
/// was lost. The slots of a lost ledger are made again from the updates that run, and from the markers of nodes whose shadows
/// are lost, too.
pub fn new_term<'a>(
    ledger: Option<&'a BottlerocketFleetStatus>,
    views: &[NodeView<'a>],
) -> (u64, Write<'a>) {
    let shadows = || views.iter().filter_map(|view| Some((view, view.shadow?)));
    let markers = || {
        views
            .iter()
            .filter_map(|view| Some((view, view.node?, view.node?.marker()?)))
    };
    let seen = shadows().filter_map(|(_, shadow)| shadow.spec.leader_term);
    // The ledger has no room for what is beyond; in a marker anything may stand.
    let seen = seen
        .chain(markers().map(|(.., marker)| marker.term))
        .filter(|term| *term < COUNTER_MAX)
        .max();
    let read = ledger.and_then(|ledger| ledger.term);
    let term = read.max(seen).unwrap_or(0).saturating_add(1);
    let slots = ledger.map_or_else(
        || Cow::Owned(BTreeMap::new()),
        |ledger| Cow::Borrowed(&ledger.slots),
    );

    let tests = vec![
        (Field::Term, Value::number_or_absent(read)),
        (Field::Slots, Value::Slots(slots)),
    ];
    let mut sets = vec![(Field::Term, Value::Number(term))];
    if read.is_none() {
        let running = shadows().filter(|(view, shadow)| view.marked() || shadow.is_in_update());
        sets.extend(running.map(|(_, shadow)| {
            let slot = Slot {
                uid: shadow.uid.to_owned(),
                attempt: shadow.spec.attempt.unwrap_or(1),
                version: shadow.spec.version.map(str::to_owned),
                ..Slot::default()
            };
            (Field::Slot(shadow.name), Value::Slot(slot))
        }));
        let alone =
            markers().filter(|(view, _, marker)| view.shadow.is_none() && marker.holds_changes());
        sets.extend(alone.map(|(view, node, marker)| {
            // The Node's UID: what the marker calls the shadow's may be no UID, and the next shadow has another one anyway.
            let (uid, attempt) = (
                node.uid.as_str().to_owned(),
                marker.attempt.min(COUNTER_MAX),
            );
            (
                Field::Slot(view.shadow_name),
                Value::Slot(Slot {
                    uid,
                    attempt,
                    ..Slot::default()
                }),
            )
        }));
    }
    (
        term,
        Write {
            object: Object::Ledger,
            tests,
            sets,
        },
    )
}

/// What must still be so when these fields of the ledger are set: the leader, the slots, and the lists that change as they
/// were read, so that a write that lingers does not undo what was counted or halted since.
pub(crate) fn ledger_tests<'a>(
    fleet: &FleetFacts<'a>,
    sets: &[(Field<'a>, Value<'a>)],
) -> Vec<(Field<'a>, Value<'a>)> {
    let lists = sets.iter().filter_map(|(field, _)| {
        let read = match field {
            Field::Versions => Value::Versions(Cow::Borrowed(fleet.versions)),
            Field::DonePools => Value::DonePools(Cow::Borrowed(fleet.done_pools)),
            _ => return None,
        };
        Some((*field, read))
    });
    let fixed = [
        (Field::Term, Value::Number(fleet.term)),
        (Field::Slots, Value::Slots(Cow::Borrowed(fleet.slots))),
    ];
    fixed.into_iter().chain(lists).collect()
}
