//! Times that stand in objects. All are read here.
//!
//! A leader whose clock was ahead has written times that have not come yet. Such a time counts as now, or its deadline
//! would come as much later; and [`crate::decide`] writes it again, so that it does not count as now for ever.

use jiff::{SignedDuration, Timestamp};

/// Differences between two leaders' clocks up to this are ignored.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// The time that stands there, if one does that can be read.
pub(crate) fn read(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// This time, but now if it lies ahead.
pub(crate) fn past(time: Timestamp, now: Timestamp) -> Timestamp {
    if is_ahead(time, now) { now } else { time }
}

/// Does this time lie ahead?
pub(crate) fn is_ahead(time: Timestamp, now: Timestamp) -> bool {
    time.duration_since(now) > AHEAD
}

/// Until when this time lies ahead, if it does.
pub(crate) fn ahead_until(time: Timestamp, now: Timestamp) -> Option<Timestamp> {
    Some(time).filter(|time| is_ahead(*time, now))?.checked_sub(AHEAD).ok()
}
