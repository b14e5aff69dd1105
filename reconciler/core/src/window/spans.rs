//! Windows of a fixed length, each of which opens at a fire time. What overlaps or touches is one window.
//!
//! A fire time is a time of day on the days that match. So the times of a day that are no further apart than the length are
//! put together once, when the expression is read; after that, a step is one such run of one day, however often the
//! expression fires.

use croner::Cron;
use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{Schedule, ScheduleKind};

/// From when a window is open, and the first moment at which it no longer is.
pub(crate) type Span = (Timestamp, Timestamp);

/// This many runs are put together at most, before and after the time that is asked about.
const STEPS: usize = 36;
/// Nor is the beginning or the end of a window looked for further away than this.
const LONGEST_SPAN: SignedDuration = SignedDuration::from_hours(31 * 24);
const HOURS_PER_DAY: i64 = 24;

/// Fire times of one day, in seconds of the clock on the wall, each no later after the one before than the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: i32,
    last: i32,
}

/// When windows open, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// Matches midnight of each day on which the expression fires.
    days: Cron,
    /// The fire times of each of these days.
    runs: Box<[Run]>,
    length: SignedDuration,
}

impl Windows {
    /// On these days, at these times of the expression.
    pub(super) fn new(days: Cron, times: &Cron, length: SignedDuration) -> Self {
        let pattern = &times.pattern;
        let (hours, minutes, seconds) = (
            pattern.hours.values(),
            pattern.minutes.values(),
            pattern.seconds.values(),
        );
        let mut runs: Vec<Run> = vec![];
        for hour in hours {
            for minute in &minutes {
                for second in &seconds {
                    let at = (i32::from(hour) * 60 + i32::from(*minute)) * 60 + i32::from(*second);
                    match runs.last_mut() {
                        Some(run) if i64::from(at - run.last) <= length.as_secs() => run.last = at,
                        _ => runs.push(Run {
                            first: at,
                            last: at,
                        }),
                    }
                }
            }
        }
        Self {
            days,
            runs: runs.into(),
            length,
        }
    }

    fn fires_on(&self, date: Date) -> bool {
        self.days
            .is_time_matching(&DateTime::from_parts(date, Time::midnight()))
            .unwrap_or(false)
    }

    /// Of the windows that are open at this time, the one that closes last.
    fn open_at(&self, at: Timestamp, zone: &TimeZone) -> Option<Span> {
        let mut date = zone.to_datetime(at).date();
        // A run may last until the end of its day, and its window for the length after that.
        for _ in 0..self.length.as_hours() / HOURS_PER_DAY + 3 {
            if self.fires_on(date) {
                let day = Day::of(date, zone);
                let begun = self
                    .runs
                    .partition_point(|run| day.instant(run.first) <= Some(at));
                if let Some(run) = begun.checked_sub(1).and_then(|last| self.runs.get(last)) {
                    return self.span(&day, *run).filter(|(_, end)| at < *end);
                }
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// Of the windows that open before this time and reach it, when the first opens.
    fn reaches(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (before, today) = (
            zone.to_datetime(at.checked_sub(self.length).ok()?),
            zone.to_datetime(at).date(),
        );
        let mut date = before.date().yesterday().ok()?;
        while date <= today {
            if self.fires_on(date) {
                let day = Day::of(date, zone);
                let closed = |run: &Run| self.span(&day, *run).is_some_and(|(_, end)| end < at);
                let first = self.runs.get(self.runs.partition_point(closed));
                let opens = first.and_then(|run| day.instant(run.first));
                if let Some(opens) = opens.filter(|opens| *opens < at) {
                    return Some(opens);
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first window that opens after this time.
    fn after(&self, at: Timestamp, zone: &TimeZone) -> Option<Span> {
        let today = Day::of(zone.to_datetime(at).date(), zone);
        if self.fires_on(today.midnight.date()) {
            let begun = self
                .runs
                .partition_point(|run| today.instant(run.first) <= Some(at));
            if let Some(run) = self.runs.get(begun) {
                return self.span(&today, *run);
            }
        }
        let next = self
            .days
            .find_next_occurrence(&today.midnight, false)
            .ok()?;
        self.span(&Day::of(next.date(), zone), *self.runs.first()?)
    }

    fn span(&self, day: &Day<'_>, run: Run) -> Option<Span> {
        let closes = day.instant(run.last)?.saturating_add(self.length).ok()?;
        Some((day.instant(run.first)?, closes))
    }
}

/// A day in a time zone.
struct Day<'z> {
    midnight: DateTime,
    zone: &'z TimeZone,
    /// When the day begins, if the clock is not changed on it: the zone need not be asked again.
    begins: Option<Timestamp>,
}

impl<'z> Day<'z> {
    fn of(date: Date, zone: &'z TimeZone) -> Self {
        let midnight = DateTime::from_parts(date, Time::midnight());
        let begins = zone.to_ambiguous_timestamp(midnight).compatible().ok();
        let lasts = SignedDuration::from_hours(HOURS_PER_DAY);
        let unchanged = |begins: &Timestamp| {
            let ends = begins.saturating_add(lasts).unwrap_or(Timestamp::MAX);
            zone.to_datetime(*begins) == midnight && zone.to_offset(*begins) == zone.to_offset(ends)
        };
        Self {
            midnight,
            zone,
            begins: begins.filter(unchanged),
        }
    }

    /// When the clock on the wall shows this second; that much later if it skips it, and the first of two times.
    fn instant(&self, second: i32) -> Option<Timestamp> {
        let second = SignedDuration::from_secs(second.into());
        match self.begins {
            Some(begins) => begins.checked_add(second).ok(),
            None => self
                .zone
                .to_ambiguous_timestamp(self.midnight.checked_add(second).ok()?)
                .compatible()
                .ok(),
        }
    }
}

fn all(schedules: &[Schedule]) -> impl Iterator<Item = (&Windows, &TimeZone)> {
    schedules
        .iter()
        .filter_map(|schedule| match &schedule.kind {
            ScheduleKind::After(windows) => Some((windows, &schedule.zone)),
            ScheduleKind::WhileMatching(_) => None,
        })
}

/// Of the runs that are open at this time, the one that opens first.
fn open_at(schedules: &[Schedule], at: Timestamp) -> Option<Span> {
    all(schedules)
        .filter_map(|(windows, zone)| windows.open_at(at, zone))
        .min()
}

/// When the runs that are open at this time are closed.
fn closed_after(schedules: &[Schedule], at: Timestamp) -> Option<Timestamp> {
    all(schedules)
        .filter_map(|(windows, zone)| windows.open_at(at, zone))
        .map(|(_, end)| end)
        .max()
}

/// The first run that opens after this time.
fn after(schedules: &[Schedule], at: Timestamp) -> Option<Span> {
    all(schedules)
        .filter_map(|(windows, zone)| windows.after(at, zone))
        .min()
}

/// The window that is open at this time, or the first that opens after it. One that is open while its expression matches is
/// put together with no other.
pub(crate) fn span(schedules: &[Schedule], now: Timestamp) -> Option<Span> {
    let matching = schedules
        .iter()
        .filter_map(|schedule| schedule.matching(now));
    lasting(schedules, now).into_iter().chain(matching).min()
}

/// The window of a fixed length that is open at this time, or the first that opens after it.
fn lasting(schedules: &[Schedule], now: Timestamp) -> Option<Span> {
    let open = open_at(schedules, now);
    let (mut start, mut end) = open.or_else(|| after(schedules, now))?;
    for _ in 0..STEPS {
        let Some(later) = closed_after(schedules, end) else {
            break;
        };
        end = later;
        if end.duration_since(now) > LONGEST_SPAN {
            break;
        }
    }
    for _ in 0..open.map_or(0, |_| STEPS) {
        let Some(earlier) = all(schedules)
            .filter_map(|(windows, zone)| windows.reaches(start, zone))
            .min()
        else {
            break;
        };
        start = earlier;
        if now.duration_since(start) > LONGEST_SPAN {
            break;
        }
    }
    Some((start, end))
}
