//! Expressions as upstream's users wrote them, durations, time zones, and the nights on which clocks are changed.

use super::*;
use crate::tests::world::{at, rows};
use proptest::prelude::*;

fn schedule(text: &str) -> Schedule {
    Schedule::new(text, TimeZone::UTC, None).unwrap()
}

fn opening(text: &str, zone: &str, hours: i64) -> Schedule {
    Schedule::new(
        text,
        TimeZone::get(zone).unwrap(),
        Some(SignedDuration::from_hours(hours)),
    )
    .unwrap()
}

#[test]
fn what_an_expression_means_without_a_duration() {
    for (text, minutes) in [
        ("* * * * * * *", None),
        ("  *  * * * * * * ", None),
        ("* * 10-11 * * * *", Some(1)),
        ("* * * * * SAT,SUN *", Some(1)),
        ("0 0 3 * * MON *", Some(24 * 60)),
        ("0 0 3 1 1 * 2030", Some(24 * 60)),
    ] {
        let schedule = windows(text, TimeZone::UTC, None).unwrap().pop();
        let length = schedule.map(|schedule| schedule.length.as_mins());
        assert_eq!(length, minutes, "{text}");
    }
}

#[test]
fn a_daily_one_shot_needs_a_duration() {
    for text in [
        "0 0 3 * * * *",
        "0 0 3 * * MON-FRI *",
        "0 * * * * * *",
        "*/2 * * * * * *",
        "0-29 * * * * * *",
    ] {
        let sentence = Schedule::new(text, TimeZone::UTC, None).unwrap_err();
        assert!(
            sentence.contains("SCHEDULER_WINDOW_DURATION, such as 4h"),
            "{text}: {sentence}"
        );
        assert!(
            Schedule::new(text, TimeZone::UTC, Some(SignedDuration::from_hours(4))).is_ok(),
            "{text}"
        );
    }
}

fn open(schedule: &Schedule, time: &str) -> bool {
    schedule.open(at(time)).is_some()
}

/// The first fire time after this time.
fn fires(schedule: &Schedule, after: Timestamp) -> Timestamp {
    schedule.fire(after + SECOND, Direction::Forward).unwrap()
}

#[test]
fn a_window_opens_and_closes_to_the_second() {
    let (matching, one_shot) = (
        schedule("* * 10-11 * * MON-FRI *"),
        schedule("0 0 3 * * MON *"),
    );
    let nights = opening("0 22 * * MON-FRI", "Europe/Berlin", 4);
    for (what, schedule, time, expected) in rows! {
        "on a Friday", &matching, "2026-11-20T09:59:59Z" => false;
        "while it matches", &matching, "2026-11-20T10:00:00Z" => true;
        "to its end", &matching, "2026-11-20T11:59:59.999Z" => true;
        "and no longer", &matching, "2026-11-20T12:00:00Z" => false;
        "nor on a Saturday", &matching, "2026-11-21T10:30:00Z" => false;
        "on a Monday", &one_shot, "2026-11-23T02:59:59Z" => false;
        "for a day", &one_shot, "2026-11-23T03:00:00Z" => true;
        "to its end", &one_shot, "2026-11-24T02:59:59Z" => true;
        "and no longer", &one_shot, "2026-11-24T03:00:00Z" => false;
        "on a Friday, 21:59:59 in Berlin", &nights, "2026-11-20T20:59:59Z" => false;
        "in its time zone", &nights, "2026-11-20T21:00:00Z" => true;
        "to its end", &nights, "2026-11-21T00:59:59Z" => true;
        "and no longer", &nights, "2026-11-21T01:00:00Z" => false;
        "nor on a Saturday", &nights, "2026-11-21T21:30:00Z" => false;
        "while one is open", &opening("0 * * * *", "UTC", 2), "2026-11-21T12:34:56Z" => true;
    } {
        assert_eq!(open(schedule, time), expected, "{what}: {time}");
    }
    for (schedule, after, opens) in [
        (&matching, "2026-11-20T12:00:00Z", "2026-11-23T10:00:00Z"),
        (&one_shot, "2026-11-24T03:00:00Z", "2026-11-30T03:00:00Z"),
        (&nights, "2026-11-21T12:00:00Z", "2026-11-23T21:00:00Z"),
    ] {
        assert_eq!(fires(schedule, at(after)), at(opens), "after {after}");
    }
}

#[test]
fn seven_fields_may_have_a_duration_too() {
    let hours =
        |text: &str| Schedule::new(text, TimeZone::UTC, Some(SignedDuration::from_hours(1)));
    assert!(open(
        &hours("30 0 3 * * * *").unwrap(),
        "2026-11-21T03:59:59Z"
    ));
    // The default expression, too: who sets only the duration wants a window, and would have none.
    for each_second in [ALWAYS, "* * 3 * * * *"] {
        let sentence = hours(each_second).unwrap_err();
        assert!(
            sentence.contains("fires each second") && sentence.contains("0 2 * * SAT"),
            "{sentence}"
        );
    }
    let sentence = Schedule::new("0 3 * * *", TimeZone::UTC, None).unwrap_err();
    assert!(sentence.contains("seven fields"), "{sentence}");
}

/// The times at which this zone's clock changes, and beside them the year's end and the leap day.
fn changes(zone: &TimeZone) -> Vec<Timestamp> {
    // The whole 30th of December 2011 is skipped in Apia.
    let skipped_day = zone.following(at("2011-12-01T00:00:00Z")).take(2);
    let changes = skipped_day.chain(zone.following(at("2026-01-01T00:00:00Z")).take(4));
    let days = ["2026-12-31T23:59:59Z", "2028-02-29T12:00:00Z"].map(at);
    changes
        .map(|change| change.timestamp())
        .chain(days)
        .collect()
}

proptest! {
    #[test]
    fn fire_times_are_those_of_each_minute_on_the_wall(
        zone in prop::sample::select(vec![
            "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll", "Pacific/Chatham", "America/Havana",
            "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Africa/Cairo", "UTC",
        ]),
        text in prop::sample::select(vec![
            "* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "29,30 2 * * *", "0 2-3 * * *",
            "10,50 2-3 * * *", "0 0 * * *", "45 2,4 L * *", "5 3 * * MON-FRI", "*/20 0-4 * * SUN",
            "59 23 31 12 *", "0 0 1 1 *", "0 12 29 2 *",
        ]),
        minutes in prop::sample::select(vec![1, 45, 25 * 60, 168 * 60]),
        change in any::<prop::sample::Index>(),
        second in prop_oneof![-4 * 3600..5 * 3600_i64, -72 * 3600..72 * 3600_i64],
    ) {
        let (zone, length) = (TimeZone::get(zone).unwrap(), SignedDuration::from_mins(minutes));
        let now = *change.get(&changes(&zone)) + SignedDuration::from_secs(second);
        let schedule = Schedule::new(text, zone.clone(), Some(length)).unwrap();
        // A day is the largest change of a clock.
        let (two_days, day) = (SignedDuration::from_hours(48), SignedDuration::from_hours(24));
        let from = zone.to_datetime(now).with().second(0).subsec_nanosecond(0).build().unwrap() - (length + day);
        let until = zone.to_datetime(now) + (two_days + day);
        let fires: Vec<Timestamp> = from
            .series(jiff::Span::new().minutes(1))
            .take_while(|wall| *wall < until)
            .filter(|wall| schedule.cron.is_time_matching(wall).unwrap())
            .map(|wall| zone.to_timestamp(wall).unwrap())
            .collect();
        let last = fires.iter().copied().filter(|fire| (now - length..=now).contains(fire) && *fire != now - length).max();
        prop_assert_eq!(schedule.open(now), last.map(|last| (last, last + length)), "{} at {}", text, now);
        let next = fires.iter().copied().filter(|fire| *fire > now && *fire < now + two_days).min();
        let found = schedule.fire(now + SECOND, Direction::Forward).filter(|fire| *fire < now + two_days);
        prop_assert_eq!(found, next, "{} after {}", text, now);
    }
}
