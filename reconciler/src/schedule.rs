//! When updates may start: a cron expression, which has upstream's two meanings, or a third.
//!
//! With seven fields and no duration it means what it means to upstream's operator. If it fires in two consecutive
//! seconds, it is a *window*: nodes start while it matches. Otherwise each fire time is a *shot*: from then on nodes
//! start, until none is left. With a duration, each fire time opens a *span* of that length.
//!
//! The fields are in the time zone. A fire time that the clock skips in spring is that much later. If the clock shows a
//! fire time twice in autumn, the first one counts. A window follows the clock on the wall.

mod starts;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

pub use starts::Starts;

/// So many fire times are compared to tell a window from shots: more than fit into a minute without being consecutive.
const LOOKED_AT: usize = 61;
/// The largest change of a clock on the wall.
const LARGEST_SHIFT: SignedDuration = SignedDuration::from_hours(3);
/// The end of a window is looked for up to a week ahead, minute by minute.
const LONGEST_WINDOW_MINUTES: u32 = 7 * 24 * 60;
/// So many fire times may fall into an hour that the clock skips, at steps of ten minutes.
const SKIPPED_AT_MOST: u32 = 24;
/// A window must be at least this much longer than an update, so that there is time to start one.
const TO_BEGIN: SignedDuration = SignedDuration::from_mins(5);
const ALWAYS: &str = "* * * * * * *";
const HINT: &str = "write seven fields (second minute hour day month weekday year), such as \
                    \"* * * * * * *\" for always or \"* * 2-4 * * SAT *\" for Saturdays from 2 to 5 o'clock";
const SPAN_HINT: &str = "with SCHEDULER_WINDOW_DURATION write when the window opens in five fields (minute hour day month \
                         weekday), such as \"0 2 * * SAT\", or in seven";

/// What the expression means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nodes may start at any time.
    Always,
    /// Nodes may start while it matches.
    Window,
    /// Nodes may start from each fire time on until none is left.
    Shot,
    /// Nodes may start for this long after each fire time.
    Span(SignedDuration),
}

/// A parsed schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    kind: Kind,
    zone: TimeZone,
}

impl Schedule {
    /// The schedule that this expression means in this time zone, with or without a duration.
    ///
    /// # Errors
    /// What is wrong with the expression, and what to write instead.
    pub fn new(text: &str, zone: TimeZone, duration: Option<SignedDuration>) -> Result<Self, String> {
        let hint = if duration.is_some() { SPAN_HINT } else { HINT };
        let fields = text.split_whitespace().count();
        if fields != 7 && (fields != 5 || duration.is_none()) {
            return Err(format!("it has {fields} fields: {hint}"));
        }
        // With these options croner accepts what upstream's parser accepts, with the same meaning.
        let parser = CronParser::builder()
            .seconds(if fields == 5 { Seconds::Disallowed } else { Seconds::Required })
            .year(Year::Optional)
            .alternative_weekdays(fields == 7)
            .dom_and_dow(fields == 7)
            .sloppy_ranges(true)
            .build();
        let cron = parser.parse(text).map_err(|error| format!("{error}: {hint}"))?;
        // Any start will do: a pattern of seconds repeats in each minute that matches.
        let fires: Vec<DateTime> =
            cron.iter_after(DateTime::constant(2020, 1, 1, 0, 0, 0, 0)).take(LOOKED_AT).collect();
        if fires.is_empty() {
            return Err(format!("it never fires: {hint}"));
        }
        let adjacent =
            fires.windows(2).any(|pair| pair[1].duration_since(pair[0]) == SignedDuration::from_secs(1));
        let always = text.split_whitespace().eq(ALWAYS.split_whitespace());
        let kind = match duration {
            None if always => Kind::Always,
            Some(_) if adjacent => {
                return Err(format!("it fires each second, so it has no times at which to open: {hint}"));
            }
            Some(duration) => Kind::Span(duration),
            None if adjacent => Kind::Window,
            None => Kind::Shot,
        };
        Ok(Self { cron, kind, zone })
    }

    /// What the expression means.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Would an update of this duration fit into a window, with time to start? Asked of a window by expression, it
    /// means the one that is open now.
    pub fn fits(&self, now: Timestamp, takes: SignedDuration) -> bool {
        let takes = takes + TO_BEGIN;
        match self.kind {
            Kind::Always | Kind::Shot => true,
            Kind::Span(length) => takes <= length,
            Kind::Window => {
                let open = |minutes: &i64| {
                    let at = now.checked_add(SignedDuration::from_mins(*minutes));
                    at.is_ok_and(|at| self.matches(at))
                };
                let most = takes.as_mins();
                let (before, after) = ((0..=most).map(|minute| -minute), 1..=most);
                let length = before.take_while(open).count() + after.take_while(open).count();
                i64::try_from(length).is_ok_and(|minutes| minutes > most)
            }
        }
    }

    /// Does the expression match this second of the clock on the wall?
    pub fn matches(&self, at: Timestamp) -> bool {
        self.cron.is_time_matching(&self.civil(at)).unwrap_or(false)
    }

    /// Will an update ever be allowed to start, at this time or later? Not if the expression names only years gone by.
    pub fn opens_ever(&self, now: Timestamp) -> bool {
        // A window that is open now may have begun at its last fire time.
        let from = match self.kind {
            Kind::Span(length) => now.saturating_sub(length).unwrap_or(Timestamp::MIN),
            Kind::Always | Kind::Window | Kind::Shot => now,
        };
        self.matches(now) || self.next(from).is_some()
    }

    /// The first fire time after this time, if there is one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        // If the clock was put back in between, the same times on the wall come once more.
        let earlier = after.saturating_sub(LARGEST_SHIFT).unwrap_or(Timestamp::MIN);
        let shifted = self.zone.to_offset(earlier) != self.zone.to_offset(after);
        let from = self.civil(if shifted { earlier } else { after });
        self.cron.iter_after(from).filter_map(|fires| self.instant(fires)).find(|fires| *fires > after)
    }

    /// Did it fire in the day that ends at this time?
    pub fn fired_in_day_before(&self, end: Timestamp) -> bool {
        let begin = end.saturating_sub(SignedDuration::from_hours(24)).unwrap_or(Timestamp::MIN);
        self.next(begin).is_some_and(|fires| fires <= end)
    }

    /// The first time after this one at which nodes may start. Ask only at a time at which they may not.
    pub fn opens(&self, after: Timestamp) -> Option<Timestamp> {
        if self.kind != Kind::Window {
            return self.next(after);
        }
        // The window may be open, with too little left of it; then the next one counts.
        let minute = SignedDuration::from_mins(1);
        let mut after = after;
        for _ in 0..LONGEST_WINDOW_MINUTES {
            if !self.matches(after) {
                break;
            }
            after = after.saturating_add(minute).ok()?;
        }
        for _ in 0..SKIPPED_AT_MOST {
            let fires = self.next(after)?;
            // An hour that comes twice opens the window once more, although it fires only once.
            let turn = self.zone.following(after).next().map(|turn| turn.timestamp());
            if let Some(turn) = turn.filter(|turn| *turn < fires && self.matches(*turn)) {
                return Some(turn);
            }
            if self.matches(fires) {
                return Some(fires);
            }
            // The clock on the wall skips this one.
            after = fires.saturating_add(minute * 10).ok()?;
        }
        None
    }

    fn civil(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    fn instant(&self, at: DateTime) -> Option<Timestamp> {
        self.zone.to_ambiguous_timestamp(at).compatible().ok()
    }
}

#[cfg(test)]
mod tests;
