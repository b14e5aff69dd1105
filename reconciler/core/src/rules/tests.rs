//! When updates may start, and to which versions.

mod read;

use super::*;
use crate::tests::world::{at, rows};
use crate::window::{Starts, Until};
use jiff::tz::TimeZone;
use read::spec;
use serde_json::{Value, json};

#[allow(
    clippy::needless_pass_by_value,
    reason = "it is written where it is used"
)]
fn rules(more: Value) -> Rules {
    Rules::of(&spec(&more)).unwrap()
}

/// The time of this day of November 2026, such as `21T02:00`.
fn of_november(text: &str) -> Timestamp {
    at(&format!("2026-11-{text}:00Z"))
}

fn gate(rules: &Rules, now: Timestamp) -> Starts<'static> {
    rules.starts(now, rules.window(now))
}

fn until(text: &str) -> Until {
    Until::At(at(text))
}

#[test]
fn windows_are_a_union() {
    let rules = rules(json!({"windows": [
        {"schedule": "0 2 * * *", "duration": "2h"},
        {"schedule": "0 22 * * SAT", "duration": "4h", "timeZone": "Europe/Berlin"},
    ]}));
    for (now, expected) in rows! {
        "2026-11-21T01:59:59Z" => Starts::OutsideWindow(until("2026-11-21T02:00:00Z"));
        "2026-11-21T02:00:00Z" => Starts::Open;
        "2026-11-21T03:59:59Z" => Starts::Open;
        "2026-11-21T04:00:00Z" => Starts::OutsideWindow(until("2026-11-21T21:00:00Z"));
        "2026-11-21T21:00:00Z" => Starts::Open;
        "2026-11-22T01:30:00Z" => Starts::OutsideWindow(until("2026-11-22T02:00:00Z"));
    } {
        assert_eq!(gate(&rules, at(now)), expected, "{now}");
    }
}

#[test]
fn a_freeze_is_half_open_and_beats_windows() {
    let freeze =
        |name: &str, start: &str, end: &str| json!({"name": name, "start": start, "end": end});
    let rules = rules(json!({
        "windows": [{"schedule": "0 0 * * *", "duration": "24h"}],
        "freezes": [
            freeze("xmas", "2026-12-20T00:00:00+01:00", "2026-12-27T00:00:00+01:00"),
            freeze("audit", "2026-12-26T23:00:00Z", "2027-01-07T00:00:00+01:00"),
        ],
    }));
    let frozen = Starts::Frozen(until("2027-01-06T23:00:00Z"));
    for (now, expected) in [
        ("2026-12-19T22:59:59Z", Starts::Open),
        ("2026-12-19T23:00:00Z", frozen),
        ("2026-12-26T23:00:00Z", frozen),
        ("2027-01-06T22:59:59Z", frozen),
        ("2027-01-06T23:00:00Z", Starts::Open),
    ] {
        assert_eq!(gate(&rules, at(now)), expected, "{now}");
    }
}

#[test]
fn window_that_another_follows_has_no_end() {
    let window =
        |schedule: &str, duration: &str| json!({"schedule": schedule, "duration": duration});
    let (with_a_gap, into_the_day) = (window("0 2,4 * * *", "1h"), window("0 22 * * *", "5h"));
    for (windows, start, end, reopens) in rows! {
        json!([with_a_gap]), "21T02:00", "21T03:00" => false;
        json!([window("*/30 2 * * *", "45m")]), "21T02:00", "21T02:45" => true;
        json!([with_a_gap, window("0 3 * * *", "1h")]), "21T02:00", "21T03:00" => true;
        json!([into_the_day, window("0 2 * * *", "3h")]), "20T22:00", "21T05:00" => false;
        json!([window("0 0 * * *", "24h")]), "21T00:00", "22T00:00" => true;
    } {
        let (rules, start, end) = (
            rules(json!({"windows": windows})),
            of_november(start),
            of_november(end),
        );
        let now = at("2026-11-21T02:10:07Z");
        let expected = Span {
            start,
            end,
            reopens,
        };
        assert_eq!(rules.window(now), Some(expected), "{windows}");
        assert_eq!(gate(&rules, end) == Starts::Open, reopens, "{windows}");
    }
}

/// Anyone who sleeps until the next change misses none.
#[test]
fn nothing_changes_before_the_next_change() {
    let rules = rules(json!({
        "windows": [{"schedule": "0 2 * * *", "duration": "2h"}, {"schedule": "30 3 * * SAT", "duration": "1h"}],
        "freezes": [{"name": "x", "start": "2026-11-21T02:10:00Z", "end": "2026-11-21T02:20:00Z"}],
    }));
    let mut now = at("2026-11-21T00:00:00Z");
    let end = at("2026-11-22T00:00:00Z");
    let is_open = |now| gate(&rules, now) == Starts::Open;
    let mut changes = 0;
    while now < end {
        let next = rules.next_change(now, rules.window(now)).unwrap();
        let minute = SignedDuration::from_mins(1);
        let mut between = now;
        while between + minute < next && between + minute < end {
            between += minute;
            assert_eq!(is_open(between), is_open(now), "{between} before {next}");
        }
        (now, changes) = (next, changes + 1);
    }
    assert!(changes > 3, "{changes}");
}

#[test]
fn versions_are_vetoed_by_their_order() {
    let rules = rules(json!({"versions": {"atLeast": "1.20.0", "below": "2.0.0"}}));
    for (version, allowed) in [
        ("1.19.9", false),
        ("1.20.0-rc.1", false),
        ("1.20.0", true),
        ("1.100.0", true),
        ("2.0.0-rc.1", true),
        ("2.0.0", false),
        ("latest", false),
    ] {
        assert_eq!(rules.allow(version), allowed, "{version}");
    }
    assert!(self::rules(json!({})).allow("latest"));
}

#[test]
fn an_expression_of_past_years_never_opens() {
    let now = at("2026-11-22T12:00:00Z");
    let of = |text: &str, duration| {
        let windows = window::windows(text, TimeZone::UTC, duration).unwrap();
        Rules {
            windows,
            ..Rules::default()
        }
        .open_ever(now)
    };
    for (text, ever) in [
        ("* * * * * * *", true),
        ("0 0 2 * * SAT 2025", false),
        ("0 0 2 * * SUN 2026", true),
        ("0 0 2 21 11 * 2026", false),
        ("* * * 22 11 * 2026", true),
    ] {
        assert_eq!(of(text, None), ever, "{text}");
    }
    let lasting = |hours| {
        of(
            "0 0 6 22 11 * 2026",
            Some(SignedDuration::from_hours(hours)),
        )
    };
    assert!(lasting(8) && !lasting(4));
}
