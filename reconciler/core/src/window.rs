//! When updates may start: a cron expression, and for how long each of its fire times opens a window.
//!
//! Without a duration, an expression of seven fields means nearly what it means to upstream's operator: if it fires in each
//! second of a minute, the window is open during that minute; otherwise each fire time is a one-shot, and opens a window of
//! [`ONE_SHOT`].
//!
//! The fields are in the time zone. A fire time that the clock skips in spring is that much later. If the clock shows a
//! fire time twice in autumn, the first one counts.

use brupop_api::pool::FIVE_FIELDS;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// How long the window of a one-shot is open.
const ONE_SHOT: SignedDuration = SignedDuration::from_hours(24);
/// The number of fire times whose distances are compared with [`ONE_SHOT`].
const FIRES_COMPARED: usize = 61;
/// An expression without years that fires never does so from here to the year 5000, in which croner's search ends.
const LATE_YEAR: i16 = 4900;
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
    TimeZone::get(name)
        .map_err(|_| "write a name of the IANA database, such as Europe/Berlin or UTC".into())
}

/// When updates may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    cron: Cron,
    /// How long each fire time opens a window.
    length: SignedDuration,
    zone: TimeZone,
}

/// The window that is open, or the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it opens, or has opened.
    pub start: Timestamp,
    /// The first moment at which it is no longer open, unless `reopens`.
    pub end: Timestamp,
    /// Whether another window opens at `end` or before.
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
        // With these options croner accepts what upstream's parser accepts, with the same meaning.
        let parser = CronParser::builder()
            .seconds(if count == 5 {
                Seconds::Disallowed
            } else {
                Seconds::Required
            })
            .year(Year::Optional)
            .alternative_weekdays(count == 7)
            .dom_and_dow(count == 7)
            .sloppy_ranges(true)
            .build();
        let cron = parser.parse(&fields.join(" ")).map_err(|error| {
            let error = error.to_string();
            let error = error
                .strip_prefix("Component error: ")
                .unwrap_or(&error)
                .trim_end_matches('.');
            let (first, rest) = error.split_at_checked(1).unwrap_or((error, ""));
            format!("{}{rest}: {hint}", first.to_lowercase())
        })?;
        let year = if count == 5 { LATE_YEAR } else { 2020 };
        let mut fires = cron.iter_after(DateTime::constant(year, 1, 1, 0, 0, 0, 0));
        let Some(first) = fires.next() else {
            return Err("it never fires: there is no such day".to_owned());
        };
        let length = match duration {
            Some(duration) => duration,
            None if each_second => SignedDuration::from_mins(1),
            None => {
                let mut before = first;
                for fire in fires.take(FIRES_COMPARED) {
                    if fire.duration_since(before) <= ONE_SHOT {
                        return Err(
                            "it fires again within a day, so say how long each window stays open: set \
                             SCHEDULER_WINDOW_DURATION, such as 4h"
                                .to_owned(),
                        );
                    }
                    before = fire;
                }
                ONE_SHOT
            }
        };
        Ok(Self { cron, length, zone })
    }

    /// What it takes in memory, roughly: a byte for each year, and few for all else.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>() + usize::from(self.cron.pattern.years.max) + 512
    }

    /// If `at` is in an hour that the clock skips or shows twice, or just after: the offset before that change, and the first
    /// time on the wall that means the offset after it.
    fn change(&self, at: Timestamp) -> Option<(Offset, DateTime)> {
        let change = self.zone.preceding(at.checked_add(SECOND).ok()?).next()?;
        let from = change.timestamp();
        let before = self.zone.to_offset(from.checked_sub(SECOND).ok()?);
        let walls = [before.to_datetime(from), change.offset().to_datetime(from)];
        let shift = walls[0].duration_since(walls[1]).abs();
        let [one, other] = walls;
        (at.duration_since(from) < shift).then(|| (before, one.max(other)))
    }

    /// The fire time that is closest to `at` in this direction, `at` included.
    ///
    /// The wall clock's order of fire times is that of instants, except for those in an hour that the clock skips: they come
    /// after the first ones that follow the change.
    fn fire(&self, at: Timestamp, direction: Direction) -> Option<Timestamp> {
        let forward = direction == Direction::Forward;
        let near = |wall: DateTime| {
            let found = if forward {
                self.cron.find_next_occurrence(&wall, true)
            } else {
                self.cron.find_previous_occurrence(&wall, true)
            };
            let fire = self.zone.to_ambiguous_timestamp(found.ok()?).compatible();
            let beyond = |fire: &Timestamp| if forward { *fire >= at } else { *fire <= at };
            fire.ok().filter(beyond)
        };
        let closest = |fires: [Option<Timestamp>; 3]| {
            let fires = fires.into_iter().flatten();
            if forward { fires.min() } else { fires.max() }
        };
        let beside = |from: Timestamp| {
            let (before, after) = self.change(from)?;
            let edge = if forward {
                after
            } else {
                after.checked_sub(SECOND).ok()?
            };
            Some((near(before.to_datetime(at)), near(edge)))
        };
        let (before, after) = beside(at).unwrap_or_default();
        let first = closest([near(self.zone.to_datetime(at)), before, after])?;
        let (_, after) = beside(first).unwrap_or_default();
        closest([Some(first), after, None])
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
    let next = opens(now);
    let (start, end, next) = match open(now) {
        Some((start, end)) => (start, end, next),
        None => {
            let start = next?;
            (start, open(start)?.1, opens(start))
        }
    };
    Some(Span {
        start,
        end,
        reopens: next.is_some_and(|next| next <= end),
    })
}

/// A time that comes, as the end of a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Until {
    /// It is not known.
    #[default]
    Unknown,
    /// It never comes.
    Never,
    /// Then.
    At(Timestamp),
}

/// May updates start in the fleet, or in a pool?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts<'a> {
    /// Yes.
    Open,
    /// A person paused it.
    Paused,
    /// It is frozen: a pool only.
    Frozen(Until),
    /// None of its windows is open.
    OutsideWindow(Until),
    /// Our own admission rules were not seen to be in force: the fleet only.
    AdmissionNotEnforced,
    /// It cannot be understood. Says why. A pool only.
    Invalid(&'a str),
}

#[cfg(test)]
mod tests;
