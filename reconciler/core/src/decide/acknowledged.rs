//! Which halts a person has lifted. An acknowledgement names a time: it lifts what was counted up to then, and nothing
//! that comes later, however long it stands in the spec.
//!
//! So what is counted is given a time that is later than what was acknowledged before, whatever the leaders' clocks say,
//! and also within the same second.

use brupop_api::fleet::{Halt, NodeFailure, VersionRecord};
use jiff::{SignedDuration, Timestamp};

use crate::facts::FleetFacts;

/// Times are written in whole seconds.
const NEXT: SignedDuration = SignedDuration::from_secs(1);

/// The time up to which a person lifts this halt of the version; `None` if nobody does.
pub(super) fn lifted(fleet: &FleetFacts<'_>, version: &str, halt: &Halt) -> Option<Timestamp> {
    let at = time(&halt.at)?;
    // The clock of an earlier leader may have been ahead, so a halt may be of a time that has not come.
    said(fleet, version).filter(|said| *said >= at && Some(*said) <= time(fleet.now).max(Some(at)))
}

/// The time of what is counted now against the version with this record.
pub(super) fn moment(fleet: &FleetFacts<'_>, version: &str, record: &VersionRecord) -> String {
    let now = time(fleet.now);
    let halted = record.halted.as_ref().and_then(|halt| time(&halt.at));
    let acknowledged = record.acknowledged_at.as_deref().and_then(time);
    // The record may have been forgotten since. A time that lies ahead must not lift, once it has come, what nobody saw.
    let said = said(fleet, version);
    let last = [halted, acknowledged, said].into_iter().flatten().max();
    let next = last.and_then(|last| last.checked_add(NEXT).ok()).filter(|next| Some(*next) > now);
    next.map_or_else(|| fleet.now.to_owned(), |next| next.to_string())
}

/// Was this node's failure of that time counted before? A request that took long may take the slot of an attempt that is
/// over once more.
pub(super) fn is_known(fleet: &FleetFacts<'_>, record: &VersionRecord, node: &str, failed_at: &str) -> bool {
    let counted = record.failures.iter().find(|failure| failure.node == node);
    // What a clock that was ahead has counted hides nothing.
    counted.is_some_and(|it| time(failed_at) <= time(&it.at) && time(&it.at) <= time(fleet.now))
}

/// The failures that no person has acknowledged.
pub(super) fn counting(record: &VersionRecord) -> Vec<&NodeFailure> {
    let acknowledged = record.acknowledged_at.as_deref().and_then(time);
    // One whose time cannot be read counts.
    let counts = |failure: &&NodeFailure| {
        acknowledged.zip(time(&failure.at)).is_none_or(|(acknowledged, failed)| failed > acknowledged)
    };
    record.failures.iter().filter(counts).collect()
}

/// The later of these times, as it is written there.
pub(super) fn later<'t>(one: &'t str, other: &'t str) -> &'t str {
    if time(other) > time(one) { other } else { one }
}

/// Can nobody acknowledge this halt, because its time cannot be read?
pub(super) fn is_timeless(halt: &Halt) -> bool {
    time(&halt.at).is_none()
}

fn said(fleet: &FleetFacts<'_>, version: &str) -> Option<Timestamp> {
    let of_version = fleet.acknowledged.iter().find(|acknowledged| acknowledged.version == version);
    of_version.and_then(|acknowledged| time(&acknowledged.halted_at))
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
