//! When updates may start: `SCHEDULER_CRON_EXPRESSION` with upstream's two meanings.
//!
//! If the expression fires in two seconds that follow each other it is a *window*: nodes start while it matches.
//! Otherwise each time it fires is a *shot*: from then on nodes start until none is left.

use std::str::FromStr;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

/// Fire times looked at to tell a window from a shot: more than there are in a minute of shots.
const LOOKED_AT: usize = 61;
const ALWAYS: &str = "* * * * * * *";
const HINT: &str = "write seven fields (second minute hour day month weekday year, in UTC), such as \
                    \"* * * * * * *\" for always or \"* * 2-4 * * SAT *\" for Saturdays from 2 to 5 o'clock";

/// What the expression means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nodes may start at any time.
    Always,
    /// Nodes may start while it matches.
    Window,
    /// Nodes may start from each fire time on until none is left.
    Shot,
}

/// A schedule, understood.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    kind: Kind,
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fields = text.split_whitespace().count();
        if fields != 7 {
            return Err(format!("it has {fields} fields: {HINT}"));
        }
        // The options under which croner takes and means what upstream's parser does.
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Optional)
            .alternative_weekdays(true)
            .dom_and_dow(true)
            .sloppy_ranges(true)
            .build();
        let cron = parser.parse(text).map_err(|error| format!("{error}: {HINT}"))?;
        let always = text.split_whitespace().eq(ALWAYS.split_whitespace());
        // Any instant does: a pattern of seconds repeats in each minute that matches.
        let fires: Vec<DateTime> =
            cron.iter_after(DateTime::constant(2020, 1, 1, 0, 0, 0, 0)).take(LOOKED_AT).collect();
        if fires.is_empty() {
            return Err(format!("it never fires: {HINT}"));
        }
        let adjacent =
            fires.windows(2).any(|pair| pair[1].duration_since(pair[0]) == SignedDuration::from_secs(1));
        let kind = match (always, adjacent) {
            (true, _) => Kind::Always,
            (false, true) => Kind::Window,
            (false, false) => Kind::Shot,
        };
        Ok(Self { cron, kind })
    }
}

impl Schedule {
    /// What the expression means.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Does the expression match this second?
    pub fn matches(&self, at: Timestamp) -> bool {
        self.cron.is_time_matching(&civil(at)).unwrap_or(false)
    }

    /// The first time after this one at which it fires, if there is one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let next = self.cron.find_next_occurrence(&civil(after), false).ok()?;
        next.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    }
}

fn civil(at: Timestamp) -> DateTime {
    at.to_zoned(TimeZone::UTC).datetime()
}

/// Whether new nodes may start; remembers the shot that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts {
    looked_at: Option<Timestamp>,
    shot: bool,
}

impl Starts {
    /// May new nodes start now? A shot that was under way when this process took over is known by updates that run.
    pub fn allowed(&mut self, schedule: &Schedule, now: Timestamp, updates_run: bool) -> bool {
        match schedule.kind {
            Kind::Always => true,
            Kind::Window => schedule.matches(now),
            Kind::Shot => {
                match self.looked_at {
                    None => self.shot = updates_run || schedule.matches(now),
                    Some(before) if schedule.next(before).is_some_and(|fires| fires <= now) => {
                        self.shot = true;
                    }
                    Some(_) => {}
                }
                self.looked_at = Some(now);
                self.shot
            }
        }
    }

    /// No node is left that could start, and none is being updated: the shot is over.
    pub fn none_left(&mut self) {
        self.shot = false;
    }

    /// When nodes may start next, seen from a time at which they may not.
    pub fn opens(schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
        schedule.next(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        text.parse().unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn two_meanings_of_an_expression() {
        for (text, kind) in [
            ("* * * * * * *", Kind::Always),
            ("  *  * * * * * * ", Kind::Always),
            ("* * 10-11 * * * *", Kind::Window),
            ("* * * * * SAT,SUN *", Kind::Window),
            ("0-29 * * * * * *", Kind::Window),
            ("0 0 3 * * MON *", Kind::Shot),
            ("0 * * * * * *", Kind::Shot),
            ("*/2 * * * * * *", Kind::Shot),
            ("0 0 3 1 1 * 2030", Kind::Shot),
        ] {
            assert_eq!(schedule(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "* * * * *", "* * * * * *", "61 * * * * * *", "* * * 31 2 * *", "a b c d e f g"] {
            let sentence = text.parse::<Schedule>().unwrap_err();
            assert!(sentence.contains("* * * * * * *"), "{text}: {sentence}");
        }
    }

    #[test]
    fn a_window_is_open_while_it_matches() {
        let window = schedule("* * 10-11 * * MON-FRI *");
        let mut starts = Starts::default();
        for (time, open) in [
            ("2026-11-20T09:59:59Z", false), // a Friday
            ("2026-11-20T10:00:00Z", true),
            ("2026-11-20T11:59:59.999Z", true),
            ("2026-11-20T12:00:00Z", false),
            ("2026-11-21T10:30:00Z", false),
        ] {
            assert_eq!(starts.allowed(&window, at(time), false), open, "{time}");
        }
        assert_eq!(Starts::opens(&window, at("2026-11-20T12:00:00Z")), Some(at("2026-11-23T10:00:00Z")));
    }

    #[test]
    fn a_shot_lasts_until_none_is_left() {
        let nightly = schedule("0 0 3 * * * *");
        let mut starts = Starts::default();
        let allowed = |time: &str, starts: &mut Starts| starts.allowed(&nightly, at(time), false);
        assert!(!allowed("2026-11-20T02:59:59Z", &mut starts));
        assert!(allowed("2026-11-20T03:00:07Z", &mut starts), "fired between two looks");
        assert!(allowed("2026-11-20T09:00:00Z", &mut starts));
        starts.none_left();
        assert!(!allowed("2026-11-20T09:00:01Z", &mut starts));
        assert!(allowed("2026-11-21T03:00:00Z", &mut starts));
    }

    #[test]
    fn a_new_leader_goes_on_with_a_shot_that_is_under_way() {
        let nightly = schedule("0 0 3 * * * *");
        assert!(Starts::default().allowed(&nightly, at("2026-11-20T04:00:00Z"), true));
        assert!(!Starts::default().allowed(&nightly, at("2026-11-20T04:00:00Z"), false));
    }
}
