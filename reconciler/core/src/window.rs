//! When updates may start: a cron expression, with or without the duration of a maintenance window.
//!
//! With a duration, each fire time opens a window of that length; windows that overlap or touch are one. Without one, an
//! expression of seven fields means nearly what it means to upstream's operator: if it fires in consecutive seconds, the
//! window is open while it matches; otherwise each fire time is a one-shot, and opens a window of [`ONE_SHOT`].
//!
//! The fields are in the time zone. A fire time that the clock skips in spring is that much later. If the clock shows a
//! fire time twice in autumn, the first one counts. A window that is open while the expression matches follows the clock
//! on the wall.

use brupop_api::pool::FIVE_FIELDS;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, AmbiguousTimestamp, TimeZone};
use jiff::{SignedDuration, Timestamp};

use self::spans::Windows;
pub(crate) use self::spans::{Span, span};

mod spans;

/// How long the window of a one-shot is open.
const ONE_SHOT: SignedDuration = SignedDuration::from_hours(24);
/// This many fire times are compared to tell what an expression means: more than fit into a minute without being
/// consecutive.
const FIRES_COMPARED: usize = 61;
/// The largest change of a clock on the wall.
const LARGEST_SHIFT: SignedDuration = SignedDuration::from_hours(3);
/// The end of a window that is open while the expression matches is looked for up to a week ahead.
const LONGEST_WINDOW: SignedDuration = SignedDuration::from_hours(7 * 24);
/// From here on it is looked whether an expression without years ever fires, up to the year 5000.
const LATE_YEAR: i16 = 4900;
const ALWAYS: &str = "* * * * * * *";
const HINT: &str = "write seven fields (second minute hour day month weekday year), such as \
                    \"* * * * * * *\" for always or \"* * 2-4 * * SAT *\" for Saturdays from 2 to 5 o'clock";
const DURATION_HINT: &str = "with a duration, write when the window opens in five fields (minute hour day \
                             month weekday), such as \"0 2 * * SAT\", or in seven";

/// What the expression means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ScheduleKind {
    /// Updates may start while it matches.
    WhileMatching(Cron),
    /// They may start for a while after each fire time.
    After(Windows),
}

/// The length of each window of an expression whose fire times are at least `gap` apart; without it, there is but one.
fn length(
    gap: Option<SignedDuration>,
    duration: Option<SignedDuration>,
) -> Result<SignedDuration, String> {
    match duration {
        Some(duration) => Ok(duration),
        None if gap.is_some_and(|gap| gap <= ONE_SHOT) => Err(
            "it fires again within a day, so say how long each window stays open: set \
                 SCHEDULER_WINDOW_DURATION, such as 4h"
                .to_owned(),
        ),
        None => Ok(ONE_SHOT),
    }
}

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
    kind: ScheduleKind,
    zone: TimeZone,
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
        let fields = text.split_whitespace().count();
        let hint = match duration {
            Some(_) if fields == 5 => FIVE_FIELDS,
            Some(_) => DURATION_HINT,
            None => HINT,
        };
        if fields != 7 && (fields != 5 || duration.is_none()) {
            return Err(format!("it has {fields} fields: {hint}"));
        }
        // With these options croner accepts what upstream's parser accepts, with the same meaning.
        let parser = CronParser::builder()
            .seconds(if fields == 5 {
                Seconds::Disallowed
            } else {
                Seconds::Required
            })
            .year(Year::Optional)
            .alternative_weekdays(fields == 7)
            .dom_and_dow(fields == 7)
            .sloppy_ranges(true)
            .build();
        let cron = parser.parse(text).map_err(|error| {
            let error = error.to_string();
            let error = error
                .strip_prefix("Component error: ")
                .unwrap_or(&error)
                .trim_end_matches('.');
            let (first, rest) = error.split_at_checked(1).unwrap_or((error, ""));
            format!("{}{rest}: {hint}", first.to_lowercase())
        })?;
        // Any start will do: a pattern of seconds repeats in each minute that matches, and days without a year do so
        // within decades. Later, less is searched in if it never fires.
        let start =
            DateTime::constant(if fields == 5 { LATE_YEAR } else { 2020 }, 1, 1, 0, 0, 0, 0);
        let compared = if fields == 5 { 1 } else { FIRES_COMPARED };
        let fires: Vec<DateTime> = cron.iter_after(start).take(compared).collect();
        if fires.is_empty() {
            return Err("it never fires: there is no such day".to_owned());
        }
        let gap = fires
            .windows(2)
            .map(|pair| pair[1].duration_since(pair[0]))
            .min();
        let kind = match (gap == Some(SignedDuration::from_secs(1)), duration) {
            (true, None) => ScheduleKind::WhileMatching(cron),
            (true, Some(_)) => {
                return Err(format!(
                    "it fires each second, so it has no times at which to open: {hint}"
                ));
            }
            (false, _) => {
                let times = fields / 2;
                let midnight = std::iter::repeat_n("0", times);
                let days: Vec<&str> = midnight
                    .chain(text.split_whitespace().skip(times))
                    .collect();
                let days = parser
                    .parse(&days.join(" "))
                    .map_err(|error| format!("{error}: {hint}"))?;
                ScheduleKind::After(Windows::new(days, &cron, length(gap, duration)?))
            }
        };
        Ok(Self { kind, zone })
    }

    /// Does the expression match this second of the clock on the wall?
    fn matches(&self, cron: &Cron, at: Timestamp) -> bool {
        cron.is_time_matching(&self.zone.to_datetime(at))
            .unwrap_or(false)
    }

    /// The first time after this one that the expression matches, if there is one. Times that the clock skips do not come.
    fn next(&self, cron: &Cron, after: Timestamp) -> Option<Timestamp> {
        // If the clock was put back in between, the same times on the wall come once more.
        let earlier = after
            .saturating_sub(LARGEST_SHIFT)
            .unwrap_or(Timestamp::MIN);
        let shifted = self.zone.to_offset(earlier) != self.zone.to_offset(after);
        let from = self.zone.to_datetime(if shifted { earlier } else { after });
        let first = |instant: fn(AmbiguousTimestamp) -> Result<Timestamp, jiff::Error>| {
            let fires = cron
                .iter_after(from)
                .map(|fires| self.zone.to_ambiguous_timestamp(fires));
            let fires =
                fires.filter(|fires| !matches!(fires.offset(), AmbiguousOffset::Gap { .. }));
            fires
                .filter_map(|fires| instant(fires).ok())
                .find(|fires| *fires > after)
        };
        let both = [
            first(AmbiguousTimestamp::earlier),
            first(AmbiguousTimestamp::later),
        ];
        both.into_iter().flatten().min()
    }

    /// The first time after this one at which updates may start. Ask only at a time at which they may not.
    pub fn opens(&self, after: Timestamp) -> Option<Timestamp> {
        opens(std::slice::from_ref(self), after)
    }

    /// If updates may start while the expression matches: from when, and until when. It is asked from now on.
    fn matching(&self, now: Timestamp) -> Option<Span> {
        let ScheduleKind::WhileMatching(cron) = &self.kind else {
            return None;
        };
        let start = if self.matches(cron, now) {
            now
        } else {
            self.matches_next(cron, now)?
        };
        Some((start, self.matches_until(cron, start, LONGEST_WINDOW)))
    }

    /// The first time from this one on at which the expression does not match; or a time at least `longest`
    /// later, if it matches until there.
    fn matches_until(&self, cron: &Cron, start: Timestamp, longest: SignedDuration) -> Timestamp {
        let each = |values: Vec<u16>| values.len() == 60;
        let (each_second, each_minute) = (
            each(cron.pattern.seconds.values()),
            each(cron.pattern.minutes.values()),
        );
        let (minute, hour) = (SignedDuration::from_mins(1), SignedDuration::from_hours(1));
        let mut end = start
            .checked_sub(SignedDuration::from_nanos(start.subsec_nanosecond().into()))
            .unwrap_or(start);
        while self.matches(cron, end) && end.duration_since(start) < longest {
            let wall = self.zone.to_datetime(end);
            let an_hour_later = |at: Timestamp| {
                wall.checked_add(hour)
                    .is_ok_and(|wall| self.zone.to_datetime(at) == wall)
            };
            let step = if !each_second || wall.second() != 0 {
                SignedDuration::from_secs(1)
            } else if each_minute
                && wall.minute() == 0
                && end.checked_add(hour).is_ok_and(an_hour_later)
            {
                hour
            } else {
                minute
            };
            let Ok(later) = end.checked_add(step) else {
                break;
            };
            end = later;
        }
        end
    }

    /// The first time after this one, at which the expression does not match, at which it begins to.
    fn matches_next(&self, cron: &Cron, after: Timestamp) -> Option<Timestamp> {
        let next = self.next(cron, after);
        // An hour that comes twice opens the window once more, although the times on the wall are past.
        let turn = self
            .zone
            .following(after)
            .next()
            .map(|turn| turn.timestamp());
        let is_near = |turn: &Timestamp| turn.duration_since(after) < LARGEST_SHIFT;
        match turn.filter(|turn| is_near(turn) && next.is_none_or(|next| *turn < next)) {
            Some(turn) if self.matches(cron, turn) => Some(turn),
            Some(turn) => self.next(cron, turn),
            None => next,
        }
    }
}

/// When the first of these windows opens after this time; if one is open, the first after that.
pub(crate) fn opens(schedules: &[Schedule], after: Timestamp) -> Option<Timestamp> {
    let (start, end) = span(schedules, after)?;
    if start > after {
        Some(start)
    } else {
        span(schedules, end).map(|(start, _)| start.max(end))
    }
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
