//! When updates may start: a cron expression, and for how long each of its fire times opens a window.
//!
//! Without a duration, an expression of seven fields means nearly what it means to upstream's operator: if it fires in each
//! second of a minute, the window is open during that minute; otherwise each fire time is a one-shot, and opens a window of
//! [`ONE_SHOT`].
//!
//! The fields are in the time zone. A fire time that the clock skips in spring is that much later. If the clock shows a
//! fire time twice in autumn, the first one counts.

use brupop_api::pool::{FIVE_FIELDS, TIME_ZONE_HINT};
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// Time for which the window of a one-shot is open.
const ONE_SHOT: SignedDuration = SignedDuration::from_hours(24);
/// The number of fire times whose distances are compared with [`ONE_SHOT`].
const FIRES_COMPARED: usize = 61;
/// Expressions with years are searched from here, up to the year 5000.
const EARLY_START: DateTime = DateTime::constant(2020, 1, 1, 0, 0, 0, 0);
/// Those without are searched from here: less is searched if they never fire.
const LATE_START: DateTime = DateTime::constant(4900, 1, 1, 0, 0, 0, 0);
const SECOND: SignedDuration = SignedDuration::from_secs(1);
const ALWAYS: &str = "* * * * * * *";
const HINT: &str = "write seven fields (second minute hour day month weekday year), such as \
                    \"* * * * * * *\" for always or \"* * 2-4 * * SAT *\" for Saturdays from 2 to 5 o'clock";
const DURATION_HINT: &str = "with a duration, write when the window opens in five fields (minute hour day \
                             month weekday), such as \"0 2 * * SAT\", or in seven";

/// The time zone of this name.
///
/// # Errors
/// What to write, if there is none.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| TIME_ZONE_HINT.to_owned())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    cron: Cron,
    /// Time for which each fire time opens a window.
    length: SignedDuration,
    pub(crate) zone: TimeZone,
}

/// The window that is open, or the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it opens, or has opened.
    pub start: Timestamp,
    /// The first moment at which it is no longer open, unless `reopens`.
    pub end: Timestamp,
    /// Whether another window is open at `end`.
    pub reopens: bool,
}

/// The windows that an expression of the settings means, with or without a duration; none = always.
///
/// # Errors
/// What is wrong with the expression, and what to write instead.
pub fn windows(
    text: &str,
    zone: TimeZone,
    duration: Option<SignedDuration>,
) -> Result<Vec<Schedule>, String> {
    let always = duration.is_none() && text.split_whitespace().eq(ALWAYS.split_whitespace());
    if always {
        Ok(vec![])
    } else {
        Ok(vec![Schedule::new(text, zone, duration)?])
    }
}

/// Parses an expression of this number of fields. croner then accepts what upstream's parser accepts, with the same meaning.
fn parse(text: &str, fields: usize) -> Result<Cron, String> {
    let seconds = if fields == 5 {
        Seconds::Disallowed
    } else {
        Seconds::Required
    };
    let parser = CronParser::builder()
        .seconds(seconds)
        .year(Year::Optional)
        .alternative_weekdays(fields == 7)
        .dom_and_dow(fields == 7)
        .sloppy_ranges(true)
        .build();
    parser.parse(text).map_err(|error| {
        let error = error.to_string();
        let error = error
            .strip_prefix("Component error: ")
            .unwrap_or(&error)
            .trim_end_matches('.');
        let (first, rest) = error.split_at_checked(1).unwrap_or((error, ""));
        format!("{}{rest}", first.to_lowercase())
    })
}

fn fires_within_a_day(cron: &Cron) -> bool {
    let fires: Vec<DateTime> = cron.iter_after(EARLY_START).take(FIRES_COMPARED).collect();
    fires
        .windows(2)
        .any(|pair| pair[1].duration_since(pair[0]) <= ONE_SHOT)
}

impl Schedule {
    /// The schedule that this expression means in this time zone, with or without a duration.
    ///
    /// # Errors
    /// What is wrong with the expression, and what to write instead.
    pub fn new(
        text: &str,
        zone: TimeZone,
        duration: Option<SignedDuration>,
    ) -> Result<Self, String> {
        let mut fields: Vec<&str> = text.split_whitespace().collect();
        let count = fields.len();
        let hint = match duration {
            Some(_) if count == 5 => FIVE_FIELDS,
            Some(_) => DURATION_HINT,
            None => HINT,
        };
        if count != 7 && (count != 5 || duration.is_none()) {
            return Err(format!("it has {count} fields: {hint}"));
        }
        let each_second = count == 7 && fields.first() == Some(&"*");
        if each_second && duration.is_some() {
            return Err(format!(
                "it fires each second, so it has no times at which to open: {hint}"
            ));
        }
        if each_second && let Some(seconds) = fields.first_mut() {
            *seconds = "0";
        }
        let cron = parse(&fields.join(" "), count).map_err(|why| format!("{why}: {hint}"))?;
        let from = if count == 5 { LATE_START } else { EARLY_START };
        if cron.find_next_occurrence(&from, true).is_err() {
            return Err("it never fires: there is no such day".to_owned());
        }
        let length = match duration {
            Some(duration) => duration,
            None if each_second => SignedDuration::from_mins(1),
            None if fires_within_a_day(&cron) => {
                return Err(
                    "it fires again within a day, so say how long each window stays open: set \
                     SCHEDULER_WINDOW_DURATION, such as 4h"
                        .to_owned(),
                );
            }
            None => ONE_SHOT,
        };
        Ok(Self { cron, length, zone })
    }

    /// The change of the clock that skipped or repeated the hour before `at`: the offset before it, and the first time on the
    /// wall to which the offset after it applies.
    fn change(&self, at: Timestamp) -> Option<(Offset, DateTime)> {
        let change = self.zone.preceding(at.checked_add(SECOND).ok()?).next()?;
        let from = change.timestamp();
        let before = self.zone.to_offset(from.checked_sub(SECOND).ok()?);
        let [one, other] = [before, change.offset()].map(|offset| offset.to_datetime(from));
        let is_near = at.duration_since(from) < one.duration_since(other).abs();
        is_near.then(|| (before, one.max(other)))
    }

    /// Returns the fire time that is closest to `at` in this direction, `at` included.
    ///
    /// Fire times in an hour that the clock skips come after the first ones that follow it on the wall. So each side of a
    /// change near `at`, or near the time that is found, is searched on its own.
    fn fire(&self, at: Timestamp, direction: Direction) -> Option<Timestamp> {
        let forward = direction == Direction::Forward;
        let near = |wall: DateTime| {
            let found = if forward {
                self.cron.find_next_occurrence(&wall, true)
            } else {
                self.cron.find_previous_occurrence(&wall, true)
            };
            let fire = self.zone.to_ambiguous_timestamp(found.ok()?).compatible();
            fire.ok()
                .filter(|fire| if forward { *fire >= at } else { *fire <= at })
        };
        let beside = |change: Option<(Offset, DateTime)>| {
            let (before, after) = change?;
            let edge = if forward {
                Some(after)
            } else {
                after.checked_sub(SECOND).ok()
            };
            Some([near(before.to_datetime(at)), edge.and_then(near)])
        };
        let closest = |one: Option<Timestamp>, others: Option<[Option<Timestamp>; 2]>| {
            let fires = others.into_iter().flatten().chain([one]).flatten();
            if forward { fires.min() } else { fires.max() }
        };
        let first = closest(near(self.zone.to_datetime(at)), beside(self.change(at)))?;
        closest(Some(first), beside(self.change(first)))
    }

    /// The last fire time, if its window is open, and when this window closes.
    fn open(&self, at: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let start = self.fire(at, Direction::Backward)?;
        let end = start.checked_add(self.length).ok()?;
        (at < end).then_some((start, end))
    }
}

/// The window that is open at this time, or the first that opens after it.
pub(crate) fn span(schedules: &[Schedule], now: Timestamp) -> Option<Span> {
    let open = |at: Timestamp| {
        let open = schedules.iter().filter_map(|schedule| schedule.open(at));
        open.reduce(|(start, end), (one, other)| (start.min(one), end.max(other)))
    };
    let opens = |after: Timestamp| {
        // Fire times are whole seconds.
        let from = Timestamp::from_second(after.as_second().checked_add(1)?).ok()?;
        let fires = schedules
            .iter()
            .filter_map(|schedule| schedule.fire(from, Direction::Forward));
        fires.min()
    };
    let at = if open(now).is_some() {
        now
    } else {
        opens(now)?
    };
    let (start, end) = open(at)?;
    Some(Span {
        start,
        end,
        reopens: open(end).is_some(),
    })
}

/// A time that comes, as the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Until {
    #[error("at an unknown time")]
    Unknown,
    #[error("never again")]
    Never,
    #[error("at {0}")]
    At(Timestamp),
}

/// Whether updates may start in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts<'a> {
    Open,
    Paused,
    /// It is frozen.
    Frozen(Until),
    /// None of its windows is open.
    OutsideWindow(Until),
    /// It cannot be understood. Says why.
    Invalid(&'a str),
}

#[cfg(test)]
mod tests;
