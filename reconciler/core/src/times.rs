//! Times that stand in objects. All are read here.
//!
//! A leader whose clock was ahead has written times that have not come yet. Such a time counts as now, or its deadline
//! would come as much later; and [`crate::decide`] writes it again, so that it does not count as now for ever.

use jiff::{SignedDuration, Timestamp};

/// The clocks of two leaders may differ by so much, and nobody heeds it.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// The time that stands there, if one does that can be read.
pub(crate) fn read(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// The same, but for one that lies ahead: that counts as now.
pub(crate) fn past(text: Option<&str>, now: Timestamp) -> Option<Timestamp> {
    read(text).map(|time| if lies_ahead(time, now) { now } else { time })
}

/// Does a time stand there that lies ahead?
pub(crate) fn is_ahead(text: Option<&str>, now: Timestamp) -> bool {
    ahead_until(text, now).is_some()
}

/// Until when the time that stands there lies ahead, if it does.
pub(crate) fn ahead_until(text: Option<&str>, now: Timestamp) -> Option<Timestamp> {
    read(text).filter(|time| lies_ahead(*time, now))?.checked_sub(AHEAD).ok()
}

fn lies_ahead(time: Timestamp, now: Timestamp) -> bool {
    time.duration_since(now) > AHEAD
}
