//! When updates may start: a cron expression, with or without the duration of a maintenance window.
//!
//! With a duration, each fire time opens a window of that length. Without one, an expression of seven fields means nearly
//! what it means to upstream's operator: if it fires in consecutive seconds, the window is open while it matches;
//! otherwise each fire time is a one-shot, and opens a window of [`ONE_SHOT`].
//!
//! The fields are in the time zone. A fire time that the clock skips in spring is that much later. If the clock shows a
//! fire time twice in autumn, the first one counts. A window that is open while the expression matches follows the clock
//! on the wall.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

/// How long the window of a one-shot is open.
const ONE_SHOT: SignedDuration = SignedDuration::from_hours(24);
/// So many fire times are compared to tell what an expression means: more than fit into a minute without being
/// consecutive.
const FIRES_COMPARED: usize = 61;
/// The largest change of a clock on the wall.
const LARGEST_SHIFT: SignedDuration = SignedDuration::from_hours(3);
/// The end of a window that is open while the expression matches is looked for up to a week ahead, minute by minute.
const LONGEST_WINDOW_MINUTES: u32 = 7 * 24 * 60;
/// So many fire times may fall into an hour that the clock skips, at steps of ten minutes.
const SKIPPED_AT_MOST: u32 = 24;
/// Of windows that overlap for longer than this, the end is not looked for.
const LONGEST_SPAN: SignedDuration = SignedDuration::from_hours(31 * 24);
const ALWAYS: &str = "* * * * * * *";
const HINT: &str = "write seven fields (second minute hour day month weekday year), such as \
                    \"* * * * * * *\" for always or \"* * 2-4 * * SAT *\" for Saturdays from 2 to 5 o'clock";
const DURATION_HINT: &str = "with a duration, write when the window opens in five fields (minute hour day \
                             month weekday), such as \"0 2 * * SAT\", or in seven";

/// What the expression means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Updates may start at any time.
    Always,
    /// They may start while it matches.
    WhileMatching,
    /// They may start for this long after each fire time.
    After(SignedDuration),
}

impl Kind {
    /// Of an expression whose fire times are at least `gap` apart; without it, there is but one.
    fn of_shots(gap: Option<SignedDuration>, duration: Option<SignedDuration>) -> Result<Self, String> {
        match duration {
            Some(duration) => Ok(Self::After(duration)),
            None if gap.is_some_and(|gap| gap <= ONE_SHOT) => {
                Err("it fires again within a day, so say how long each window stays open: set \
                     SCHEDULER_WINDOW_DURATION, such as 4h"
                    .to_owned())
            }
            None => Ok(Self::After(ONE_SHOT)),
        }
    }
}

/// When updates may start; always by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Needed unless the kind is `Always`.
    cron: Option<Cron>,
    kind: Kind,
    zone: TimeZone,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { cron: None, kind: Kind::Always, zone: TimeZone::UTC }
    }
}

impl Schedule {
    /// The schedule that this expression means in this time zone, with or without a duration.
    ///
    /// # Errors
    /// What is wrong with the expression, and what to write instead.
    pub fn new(text: &str, zone: TimeZone, duration: Option<SignedDuration>) -> Result<Self, String> {
        let hint = if duration.is_some() { DURATION_HINT } else { HINT };
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
            cron.iter_after(DateTime::constant(2020, 1, 1, 0, 0, 0, 0)).take(FIRES_COMPARED).collect();
        if fires.is_empty() {
            return Err(format!("it never fires: {hint}"));
        }
        let gap = fires.windows(2).map(|pair| pair[1].duration_since(pair[0])).min();
        let kind = match (gap == Some(SignedDuration::from_secs(1)), duration) {
            (_, None) if text.split_whitespace().eq(ALWAYS.split_whitespace()) => return Ok(Self::default()),
            (true, None) => Kind::WhileMatching,
            (true, Some(_)) => {
                return Err(format!("it fires each second, so it has no times at which to open: {hint}"));
            }
            (false, _) => Kind::of_shots(gap, duration)?,
        };
        Ok(Self { cron: Some(cron), kind, zone })
    }

    /// May updates start now, if at least `remaining` of the window must be left?
    pub fn is_open(&self, now: Timestamp, remaining: SignedDuration) -> bool {
        let end = now.saturating_add(remaining).unwrap_or(Timestamp::MAX);
        match self.kind {
            Kind::Always => true,
            Kind::WhileMatching => {
                let last = if remaining.is_positive() { end - SignedDuration::from_nanos(1) } else { now };
                let minutes = (0..).map_while(|minute| {
                    now.checked_add(SignedDuration::from_mins(minute)).ok().filter(|at| *at < end)
                });
                self.matches(now) && minutes.chain([last]).all(|at| self.matches(at))
            }
            Kind::After(length) => {
                let opened = now.saturating_sub(length).unwrap_or(Timestamp::MIN);
                // Overlapping windows count as one.
                let mut fired = self.next(opened).filter(|fires| *fires <= now);
                while let Some(fires) = fired {
                    let closes = fires.saturating_add(length).unwrap_or(Timestamp::MAX);
                    if closes >= end {
                        return true;
                    }
                    fired = self.next(fires).filter(|next| *next <= closes);
                }
                false
            }
        }
    }

    /// The window of a fixed length that is open, or the first that opens: from its first fire time to its end. Windows that
    /// overlap count as one.
    pub(crate) fn span(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let Kind::After(length) = self.kind else { return None };
        let start = self.next(now.saturating_sub(length).ok()?)?;
        let mut end = start.saturating_add(length).ok()?;
        while let Some(next) = self.next(end.saturating_sub(length).ok()?).filter(|next| *next <= end) {
            let later = next.saturating_add(length).ok()?;
            if later <= end || end.duration_since(start) > LONGEST_SPAN {
                break;
            }
            end = later;
        }
        Some((start, end))
    }

    /// Is there a window, the first of them, in which so much is left when it opens?
    pub fn leaves(&self, remaining: SignedDuration) -> bool {
        let start =
            self.zone.to_timestamp(DateTime::constant(2020, 1, 1, 0, 0, 0, 0)).unwrap_or(Timestamp::MIN);
        self.is_open(start, remaining) || self.opens(start).is_none_or(|opens| self.is_open(opens, remaining))
    }

    /// Does the expression match this second of the clock on the wall?
    fn matches(&self, at: Timestamp) -> bool {
        self.cron.as_ref().is_none_or(|cron| cron.is_time_matching(&self.civil(at)).unwrap_or(false))
    }

    /// Will an update ever be allowed to start, at this time or later? Not if the expression names only years gone by.
    pub fn opens_ever(&self, now: Timestamp) -> bool {
        self.is_open(now, SignedDuration::ZERO) || self.next(now).is_some()
    }

    /// The first fire time after this time, if there is one.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        // If the clock was put back in between, the same times on the wall come once more.
        let earlier = after.saturating_sub(LARGEST_SHIFT).unwrap_or(Timestamp::MIN);
        let shifted = self.zone.to_offset(earlier) != self.zone.to_offset(after);
        let from = self.civil(if shifted { earlier } else { after });
        self.cron
            .as_ref()?
            .iter_after(from)
            .filter_map(|fires| self.instant(fires))
            .find(|fires| *fires > after)
    }

    /// The first time after this one at which updates may start. Ask only at a time at which they may not.
    pub fn opens(&self, after: Timestamp) -> Option<Timestamp> {
        if self.kind != Kind::WhileMatching {
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
